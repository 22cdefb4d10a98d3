"""The Python whose environment is judged: this one, or another that is asked for its facts.

A process of the doctor judges for one Python. It says which with `judge_for`, before it judges
anything; by default it is the Python that runs the doctor.
"""

from __future__ import annotations

import json
import os
import signal
import site
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from .elf import MAGIC
from .project import Record
from .text import printable, read_regular

#: Where a prefix has its interpreter.
_IN_PREFIX = ("bin/python", "bin/python3", "python.exe", "Scripts/python.exe")
_MARK = "torch-doctor-probe:"
_SECONDS = 20.0
_MAX_ANSWER = 1 << 20
_MAX_ENTRIES = 10_000


class InterpreterError(LookupError):
    """A Python cannot be found or run, or does not tell its facts."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class Interpreter(Record, kw_only=True):
    """The facts of a Python, as it would run in its environment."""

    executable: str
    prefix: str
    base_prefix: str
    path: tuple[str, ...]  #: `sys.path` without the folder of the script
    sites: tuple[str, ...]  #: the folders whose `.pth` files it executes when it starts
    version: tuple[int, int, int]
    implementation: str
    free_threaded: bool
    machine: str
    #: Its C library as `confstr` tells it, such as `glibc 2.36`; None where there is no glibc.
    libc: str | None
    libstdcxx: Path | None  #: the file that it loads as libstdc++; None if not looked for or absent
    torch: Path | None  #: the folder of the torch that it imports; None if not looked for or absent
    #: The modules of the standard library of its version, whether its build has them or not; ()
    #: for a Python before 3.10, which does not tell.
    library: tuple[str, ...] = ()


_judged: Interpreter | None = None


def judged() -> Interpreter | None:
    """The Python that is judged; None for the one that runs the doctor."""
    return _judged


def judge_for(interpreter: Interpreter | None) -> None:
    """Judge the environment of this Python from now on; None for the one that runs the doctor."""
    global _judged
    _judged = interpreter


def search_path() -> tuple[str, ...]:
    """The `sys.path` of the judged Python."""
    return _judged.path if _judged else tuple(sys.path)


def prefixes() -> tuple[str, str]:
    """The prefix of the judged Python, and that of the Python that its venv was made with."""
    return (_judged.prefix, _judged.base_prefix) if _judged else (sys.prefix, sys.base_prefix)


def own_folders() -> tuple[str, ...]:
    """The folders whose files the judged Python executes when it starts, and its prefix, which
    holds conda's metadata."""
    if _judged is not None:
        return (_judged.prefix, *_judged.sites)
    user = (site.getusersitepackages(),) if site.ENABLE_USER_SITE else ()
    return (sys.prefix, *site.getsitepackages(), *user)


def library() -> frozenset[str]:
    """The modules of the standard library that the judged Python's version has, by its first
    names; empty if it does not tell."""
    return frozenset(_judged.library if _judged else sys.stdlib_module_names)


def executable() -> str:
    """The file of the judged Python."""
    return _judged.executable if _judged else sys.executable


def program() -> Path:
    """The program that runs as the judged Python.

    `sys.executable` may name a script that starts it, as under an emulator.
    """
    path = Path(executable())
    with suppress(OSError):
        if _judged is None and read_regular(path.resolve(), len(MAGIC)) != MAGIC:
            return Path("/proc/self/exe").readlink()
    return path


def ask(python: str) -> Interpreter:
    """Run a Python for its facts.

    Args:
        python: an interpreter, or the prefix of an environment.

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
            f"{program} did not tell its facts within {_SECONDS:g} s: it is no Python 3.7 or "
            "newer, or its environment is broken. "
            "Name an interpreter that runs: --python /env/bin/python"
        )
    try:
        return _interpreter(facts)
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
            f"{python} is no environment: it has no {_IN_PREFIX[0]}. "
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


def active_python(environ: Mapping[str, str], own_prefix: str) -> str | None:
    """The Python of the activated environment, else the first on PATH; None if it is this one.

    For a doctor that runs in an environment of its own, as `uvx torch-doctor` does.
    """
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = environ.get(variable)
        if prefix and not _is_same(prefix, own_prefix):
            with suppress(InterpreterError):
                return _program(prefix)
    for folder in environ.get("PATH", "").split(os.pathsep):
        if not os.path.isabs(folder) or _is_same(os.path.dirname(folder), own_prefix):  # noqa: PTH117,PTH120
            continue
        for name in ("python", "python3"):
            program = os.path.join(folder, name)  # noqa: PTH118
            if os.access(program, os.X_OK):
                return program
    return None


def python_elsewhere(prefix: str, site: str) -> str | None:
    """The Python of another environment than the judged one, by its prefix and the folder of its
    packages; None if they are the judged one's, or if there is none."""
    known = (*prefixes()[:1], *search_path())
    if any(_is_same(entry, place) for entry in filter(None, known) for place in (prefix, site)):
        return None
    for name in ("bin/python", "bin/python3"):
        program = os.path.join(prefix, name)  # noqa: PTH118
        if os.access(program, os.X_OK):
            return program
    return None


def _is_same(folder: str, other: str) -> bool:
    return os.path.realpath(folder) == os.path.realpath(other)
