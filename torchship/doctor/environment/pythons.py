"""Asks a Python for its facts, and finds the one whose environment is to be judged."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...judge.project import Record
from ...judge.target import Interpreter, Target
from ...judge.text import printable

#: Where a prefix has its interpreter.
_IN_PREFIX = ("bin/python", "bin/python3", "python.exe", "Scripts/python.exe")
#: How it was found that its user named.
NAMED = "named by --python"
_MARK = "torch-doctor-probe:"
_SECONDS = 20.0
_MAX_ANSWER = 1 << 20
_MAX_ENTRIES = 10_000


class InterpreterError(LookupError):
    """A Python cannot be found or run, or does not tell its facts."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


def ask(python: str, *, found_by: str = "") -> Interpreter:
    """Run a Python for its facts.

    Args:
        python: an interpreter, or the prefix of an environment.
        found_by: how it was found, for the report.

    Raises:
        InterpreterError: nothing can be run there, or it gives no answer; the text ends with
            what to do.
    """
    program = _program(python)
    answer = _answer(program)
    start = answer.rfind(_MARK)
    facts: object = None
    with suppress(ValueError, RecursionError):
        facts = json.loads(answer[start + len(_MARK) :].partition("\n")[0]) if start >= 0 else None
    if not isinstance(facts, dict):
        raise InterpreterError(
            f"{program} did not tell its facts within {_SECONDS:g} s: it is not Python 3.7 or "
            "newer, or its environment is broken. "
            "Name an interpreter that runs: --python /env/bin/python"
        )
    try:
        return _interpreter(facts)._replace(found_by=found_by)
    except (KeyError, TypeError, ValueError):
        raise InterpreterError(
            f"{program} told facts that cannot be read. Name another interpreter."
        ) from None


def _program(python: str) -> str:
    if os.path.isdir(python):  # noqa: PTH112  # Path.is_dir raises in a closed folder
        for name in _IN_PREFIX:
            program = os.path.join(python, name)  # noqa: PTH118
            if os.path.isfile(program):  # noqa: PTH113
                return program
        raise InterpreterError(
            f"{python} is not an environment: it has no {_IN_PREFIX[0]}. "
            "Name the interpreter: --python /env/bin/python"
        )
    return python


def _answer(program: str) -> str:
    """What the probe prints there, or its start. Raises InterpreterError."""
    import pkgutil

    source = (pkgutil.get_data(__package__, "python_probe.py") or b"").decode()
    try:
        process = subprocess.Popen(
            [program, "-I", "-c", source],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise InterpreterError(
            f"{program} cannot be run ({error}). Name an interpreter: --python /env/bin/python"
        ) from None
    # A `.pth` file or a `sitecustomize` of the environment may hang, print without end, or leave a
    # process behind that keeps the pipe open.
    timer = threading.Timer(_SECONDS, _kill, (process,))
    timer.start()
    assert process.stdout is not None
    with process.stdout as answer:
        try:
            return answer.read(_MAX_ANSWER).decode("utf-8", "replace")
        finally:
            timer.cancel()
            _kill(process)
            process.wait()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)


def _interpreter(facts: Mapping[str, Any]) -> Interpreter:
    """The record of the probe's answer. Raises KeyError, TypeError or ValueError."""
    major, minor, patch = map(int, facts["version"])
    path = tuple(str(entry) for entry in facts["path"][:_MAX_ENTRIES])
    torch = facts["torch"]
    libstdcxx = facts["libstdcxx"]
    return Interpreter(
        executable=str(facts["executable"]),
        prefix=str(facts["prefix"]),
        base_prefix=str(facts["base_prefix"]),
        path=path,
        sites=tuple(str(folder) for folder in facts["sites"][:_MAX_ENTRIES]),
        version=(major, minor, patch),
        implementation=printable(str(facts["implementation"])),
        free_threaded=bool(facts["free_threaded"]),
        machine=printable(str(facts["machine"])),
        libc=None if facts["libc"] is None else printable(str(facts["libc"])),
        libstdcxx=None if libstdcxx is None else Path(str(libstdcxx)),
        torch=None if torch is None else Path(str(torch)).parent,
        library=tuple(printable(str(name)) for name in facts["library"][:_MAX_ENTRIES]),
    )


class ActivePython(Record):
    """A Python that is active, and by what."""

    program: str
    found_by: str


def active_python(environ: Mapping[str, str], own_prefix: str) -> ActivePython | None:
    """The Python of the activated environment, else the first on PATH; None if it is this one.

    For a doctor that runs in an environment of its own, as `uvx torch-doctor` does.
    """
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = environ.get(variable)
        if prefix and not _is_same(prefix, own_prefix):
            with suppress(InterpreterError):
                return ActivePython(_program(prefix), f"by ${variable}")
    for folder in environ.get("PATH", "").split(os.pathsep):
        if not os.path.isabs(folder) or _is_same(os.path.dirname(folder), own_prefix):  # noqa: PTH117,PTH120
            continue
        for name in ("python", "python3"):
            program = os.path.join(folder, name)  # noqa: PTH118
            if os.access(program, os.X_OK):
                return ActivePython(program, "the first on PATH")
    return None


def python_elsewhere(target: Target, prefix: str, site: str) -> str | None:
    """The Python of another environment than the target, by its prefix and the folder of its
    packages; None if they are the target's, or if there is none."""
    known = (target.prefix, *target.search_path())
    if any(_is_same(entry, place) for entry in filter(None, known) for place in (prefix, site)):
        return None
    for name in ("bin/python", "bin/python3"):
        program = os.path.join(prefix, name)  # noqa: PTH118
        if os.access(program, os.X_OK):
            return program
    return None


def _is_same(folder: str, other: str) -> bool:
    return os.path.realpath(folder) == os.path.realpath(other)
