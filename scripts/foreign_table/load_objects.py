"""Load shared objects beside the torch of this interpreter, each in a process of its own.

torch is imported once. Every object is then loaded in a fork (and called, if the task has a call),
so that a crash ends only that fork. The package is not imported: nothing is judged here.

    python load_objects.py < tasks > outcomes      (both with one JSON object per line)

A task: `root` (the folder that replaces site-packages), `object`, `preloads` (both inside root),
`load` ("file" or "import"), `beside` (more folders for sys.path), `claimed` (libraries that the
verdict calls missing) and `call` (null, or an expression that must be true; a string is stored).
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
from pathlib import Path
from typing import Any

import torch
from causes import without_folders

SECONDS = 120


def load(task: dict[str, Any]) -> dict[str, Any]:
    """Load the object of a task in this process; returns the names that its call may use."""
    root = Path(task["root"])
    sys.path[:0] = [str(root), *task["beside"]]
    failed: dict[str, Exception] = {}
    for name in task["preloads"] * 3:  # several tries, since their order is unknown
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
                raise cause  # noqa: B904  # the library of the package that it needs
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
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {"module": module}


def module_name(path: Path) -> str | None:
    """The Python module that a file defines, by its name and its content."""
    name = path.name.partition(".")[0]
    return name if b"PyInit_" + name.encode() + b"\0" in path.read_bytes() else None


def opens(library: str) -> bool:
    with contextlib.suppress(OSError):
        return bool(ctypes.CDLL(library))
    return False


def told(error: BaseException) -> str:
    # torch >= 2.9 hides the linker's text behind "Could not load this library".
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
    """The last outcome that the fork wrote, or how it died after it."""
    with (
        tempfile.TemporaryFile("w+", errors="replace") as printed,
        tempfile.TemporaryFile("w+") as said,
    ):

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
        for file in (said, printed):
            file.seek(0)
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
