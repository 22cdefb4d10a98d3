"""Loads shared objects beside the torch of this interpreter, each in a process of its own.

    python load_objects.py < tasks > outcomes

For each task, a new fork loads the object and evaluates the call, so that a crash ends only the
fork. Our package is not imported, so no checker of ours rejects an object first.

Each task and each outcome is a JSON object on one line. A task has `root` (a folder for sys.path),
`object` and `preloads` (paths inside root), `load` ("file" or "import"), `beside` (more folders for
sys.path), `claimed` (libraries that the verdict calls missing) and `call` (null, or an expression
that must be true; the outcome stores its value if that is a string).
"""

import contextlib
import ctypes
import importlib
import importlib.machinery
import importlib.util
import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from causes import without_folders

SECONDS = 120


def load(task: dict[str, Any]) -> dict[str, Any]:
    """Loads the object of a task in this process; returns the names that the call may use."""
    root = Path(task["root"])
    sys.path[:0] = [str(root), *task["beside"]]
    failed: dict[str, Exception] = {}
    for name in task["preloads"] * 3:  # three times, as the right order is unknown
        try:
            open_file(root / name)
            failed.pop(Path(name).name, None)
        except (OSError, ImportError) as error:
            failed[Path(name).name] = error
    try:
        return open_object(task, root)
    except (OSError, ImportError) as error:
        for name, cause in failed.items():
            if f"{name}: " in told(error):
                raise cause  # noqa: B904  # the object needs this preload
        raise


def open_object(task: dict[str, Any], root: Path) -> dict[str, Any]:
    path = root / task["object"]
    if task["load"] == "import" and module_name(path) is not None:
        parts = (*Path(task["object"]).parts[:-1], str(module_name(path)))
        module = importlib.import_module(".".join(parts))
        if not Path(str(module.__file__)).samefile(path):
            raise ModuleNotFoundError(f"{'.'.join(parts)} is {module.__file__}, not {path}")
        return {"module": module}
    return open_file(path)


def open_file(path: Path) -> dict[str, Any]:
    name = module_name(path)
    if name is None:
        torch.ops.load_library(str(path))
        return {"library": ctypes.CDLL(str(path))}
    if path.name.removeprefix(name) not in importlib.machinery.EXTENSION_SUFFIXES:
        raise ModuleNotFoundError(f"No module named {name!r} ({path.name} is not for this Python)")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {"module": module}


def module_name(path: Path) -> str | None:
    """The name of the Python module that a file defines; None if the file defines no module."""
    name = path.name.partition(".")[0]
    return name if b"PyInit_" + name.encode() + b"\0" in path.read_bytes() else None


def opens(library: str) -> bool:
    with contextlib.suppress(OSError):
        return bool(ctypes.CDLL(library))
    return False


def told(error: BaseException) -> str:
    # torch 2.9 and later raise "Could not load this library" from the loader's own error.
    seen = error.__cause__ or error
    return f"{type(seen).__name__}: {seen}"


def run(task: dict[str, Any], say: Callable[..., None]) -> None:
    try:
        names = load(task)
    except BaseException as error:
        absent = [name for name in task["claimed"] if not opens(name)]
        say(outcome="load error", error=told(error), absent=absent)
        return
    say(outcome="works", error="", called=False)
    if task["call"]:
        try:
            found = eval(task["call"], {"torch": torch, **names})
            assert found, task["call"]
        except AssertionError as error:
            say(outcome="wrong result", error=str(error))
        except BaseException as error:
            say(outcome="call error", error=told(error))
        else:
            say(outcome="works", error=found if isinstance(found, str) else "", called=True)


def in_a_fork(task: dict[str, Any]) -> dict[str, Any]:
    """The last outcome that a fork wrote; a crash if the fork died or ran longer than SECONDS."""
    file = partial(tempfile.TemporaryFile, "w+", errors="replace")
    with file() as printed, file() as said:

        def say(**outcome: Any) -> None:
            print(json.dumps(outcome), file=said, flush=True)

        def child() -> None:
            for stream in (1, 2):
                os.dup2(printed.fileno(), stream)
            run(task, say)
            os._exit(0)

        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join(SECONDS)
        process.kill()
        process.join()
        said.seek(0)
        printed.seek(0)
        outcomes, text = said.read().splitlines(), " ".join(printed.read().split())
    status = process.exitcode or 0
    if status == 0:
        return json.loads(outcomes[-1])
    when = "call" if outcomes else "load"
    how = f"signal {-status}" if status < 0 else f"exit {status}"
    return {"outcome": f"crash at {when}", "error": f"{how}: {text[-300:]}"}


if __name__ == "__main__":
    for line in sys.stdin:
        said = in_a_fork(json.loads(line))
        said["error"] = without_folders(said["error"])
        print(json.dumps(said), flush=True)
