"""Loads shared objects beside the torch of this interpreter, each in a process of its own.

    python load_objects.py < tasks > outcomes

For each task, a new fork loads the object and evaluates the call, so that a crash ends only
the fork. Our package is not imported, so no checker of ours rejects an object first. tasks.py
says what a task and an outcome hold.
"""

from __future__ import annotations

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
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import torch

REPO = str(Path(__file__).resolve().parents[2])
sys.path.append(REPO)

from measurements.foreign_table.causes import without_folders  # noqa: E402
from measurements.foreign_table.tasks import Outcome, Task  # noqa: E402

sys.path.remove(REPO)  # no object may find our packages

SECONDS = 120
Names = dict[str, object]
"""The names that a task's call may use."""


def load(task: Task) -> Names:
    """Loads the object of a task in this process."""
    root = Path(task.root)
    sys.path[:0] = [str(root), *task.beside]
    failed: dict[str, Exception] = {}
    for name in task.preloads * 3:  # three times, as the right order is unknown
        try:
            open_file(root / name)
            failed.pop(Path(name).name, None)
        except (OSError, ImportError) as error:
            failed[Path(name).name] = error
    try:
        return open_object(task)
    except (OSError, ImportError) as error:
        for name, cause in failed.items():
            if f"{name}: " in message_of(error):
                raise cause  # noqa: B904  # the object needs this preload
        raise


def open_object(task: Task) -> Names:
    name = module_name(task.path)
    if task.load != "import" or name is None:
        return open_file(task.path)
    parts = (*Path(task.object).parts[:-1], name)
    module = importlib.import_module(".".join(parts))
    if not Path(str(module.__file__)).samefile(task.path):
        raise ModuleNotFoundError(f"{'.'.join(parts)} is {module.__file__}, not {task.path}")
    return {"module": module}


def open_file(path: Path) -> Names:
    name = module_name(path)
    if name is None:
        torch.ops.load_library(str(path))
        return {"library": ctypes.CDLL(str(path))}
    if path.name.removeprefix(name) not in importlib.machinery.EXTENSION_SUFFIXES:
        raise ModuleNotFoundError(f"No module named {name!r} ({path.name} is not for this Python)")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {name!r} (nothing loads {path.name})")
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


def message_of(error: BaseException) -> str:
    # torch 2.9 and later raise "Could not load this library" from the loader's own error.
    origin = error.__cause__ or error
    return f"{type(origin).__name__}: {origin}"


def run(task: Task, report: Callable[[Outcome], None]) -> None:
    """Reports after the load, and again after the call: the last report counts."""
    try:
        names = load(task)
    except BaseException as error:
        absent = [name for name in task.claimed if not opens(name)]
        report(Outcome("load error", message_of(error), absent=absent))
        return
    report(Outcome("works"))
    if task.call:
        try:
            value = eval(task.call, {"torch": torch, **names})
            assert value, task.call
        except AssertionError as error:
            report(Outcome("wrong result", str(error)))
        except BaseException as error:
            report(Outcome("call error", message_of(error)))
        else:
            report(Outcome("works", value if isinstance(value, str) else "", called=True))


def run_in_fork(task: Task) -> Outcome:
    """The last outcome that a fork wrote; a crash if the fork died or ran longer than SECONDS."""
    file = partial(tempfile.TemporaryFile, "w+", errors="replace")
    with file() as printed, file() as reported:

        def report(outcome: Outcome) -> None:
            print(json.dumps(asdict(outcome)), file=reported, flush=True)

        def child() -> None:
            for stream in (1, 2):
                os.dup2(printed.fileno(), stream)
            run(task, report)
            os._exit(0)

        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join(SECONDS)
        process.kill()
        process.join()
        reported.seek(0)
        printed.seek(0)
        outcomes = reported.read().splitlines()
        output = " ".join(printed.read().split())
    status = process.exitcode or 0
    if status == 0:
        return Outcome(**json.loads(outcomes[-1]))
    when = "call" if outcomes else "load"
    how = f"signal {-status}" if status < 0 else f"exit {status}"
    return Outcome(f"crash at {when}", f"{how}: {output[-300:]}")


if __name__ == "__main__":
    for line in sys.stdin:
        outcome = run_in_fork(Task(**json.loads(line)))
        outcome = replace(outcome, error=without_folders(outcome.error))
        print(json.dumps(asdict(outcome)), flush=True)
