"""Starts import_probe.py in the judged Python, hears what it tells, and ends its process group."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from ...judge.project import Record
from ...judge.records import NOTHING
from . import progress
from .seen import End, Found, Seen, facts_of

_MAX_TOLD = 32 << 20
_MAX_OUTPUT = 64_000
_CHUNK = 1 << 20
#: Before the other processes are looked at, too.
_MOST_READS = 32
#: How often a process is looked at, in seconds.
_PAUSE = 0.02
#: What a process gets to print where it hangs, in seconds.
_TO_PRINT = 0.5


class Program(Record, kw_only=True):
    """A run of import_probe.py."""

    how: str  #: "find", "screen", "import", "after" or "load"
    words: tuple[str, ...]  #: packages and extensions, as `import_probe.requests` reads them
    what: str  #: that is imported or loaded
    variables: Mapping[str, str] = NOTHING  #: beside those of the user
    log_folder: Path | None = None  #: where the linker writes, if it is asked
    max_log: int = 0


class Ended(Record, kw_only=True):
    """A run that has ended."""

    program: Program
    facts: tuple[Seen | End | Found, ...]
    end: End  #: of the process itself
    seconds: float


class Python(Record, kw_only=True):
    """The Python that looks, and how long it may."""

    executable: str
    seconds: float = 60.0  #: for each import, and for each extension
    jobs: int = 1  #: the processes at a time
    folder: Path | None = None  #: where it runs; None for the current folder
    environ: Mapping[str, str] | None = None  #: None for that of this process


def run(programs: Iterable[Program], python: Python) -> Iterator[Ended]:
    """Run each program, at most `python.jobs` at a time, and yield it when it has ended.

    Raises OSError if the Python cannot be started. All processes have ended when this ends.
    """
    waiting = list(reversed([*programs]))
    running: list[_Running] = []
    try:
        while waiting or running:
            while waiting and len(running) < python.jobs:
                program = waiting.pop()
                progress.show(_doing(program))
                running.append(_Running(program, python))
            for one in [*running]:
                one.hear()
                if one.has_ended():
                    running.remove(one)
                    yield one.close()
            time.sleep(_PAUSE)
    finally:
        for one in running:
            one.close()


def _doing(program: Program) -> str:
    """What a run does, in words."""
    if program.how == "find":
        return "asking Python for its modules"
    if program.how == "screen":
        count = program.words.count("--package")
        return f"importing torch and {count} packages"
    if program.how == "load":
        return f"loading {Path(program.what).name}"
    return f"importing {program.what}"


class _Running:
    """One process and the group that it leads."""

    def __init__(self, program: Program, python: Python) -> None:
        self.program = program
        self._start = self._heard = time.monotonic()
        # The children of the process are given up first, so that it can tell it.
        self._patience = python.seconds + (10 if program.how == "screen" else 2)
        self._seconds = python.seconds
        self._told = self._output = b""
        self._is_late = False
        self._aborted = 0.0
        reading, writing = os.pipe()
        environ = dict(os.environ if python.environ is None else python.environ)
        environ.update(program.variables)
        words = (str(writing), str(python.seconds), str(python.jobs), program.how, *program.words)
        try:
            self._process = subprocess.Popen(
                [python.executable, "-c", _source(), *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[writing],
                start_new_session=True,
                cwd=python.folder,
                env=environ,
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        assert self._process.stdout is not None
        self._pipes = {reading: True, self._process.stdout.fileno(): False}
        self._selector = selectors.DefaultSelector()
        for pipe in self._pipes:
            os.set_blocking(pipe, False)
            self._selector.register(pipe, selectors.EVENT_READ)

    def hear(self) -> None:
        """Take what is in the pipes."""
        for _ in range(_MOST_READS):
            # A selector without pipes would wait.
            events = self._selector.select(0) if self._selector.get_map() else []
            if not events:
                return
            for key, _ in events:
                content = os.read(key.fd, _CHUNK)
                if not content:
                    self._selector.unregister(key.fd)
                elif self._pipes[key.fd]:
                    self._told = (self._told + content)[:_MAX_TOLD]
                    self._heard = time.monotonic()
                else:
                    self._output = (self._output + content)[-_MAX_OUTPUT:]

    def has_ended(self) -> bool:
        """Whether the process has ended; one that is silent for too long is made to."""
        if self._process.poll() is not None:
            return True
        now = time.monotonic()
        if self._aborted:
            return now - self._aborted > _TO_PRINT
        # A first word that does not come counts from the start, without the time for children.
        patience = self._patience if self._told else self._seconds
        self._is_late = now - self._heard > patience
        if self._is_late or self._writes_too_much():
            self._aborted = now
            with suppress(OSError):
                self._process.send_signal(signal.SIGABRT)  # faulthandler tells where it hangs
        return False

    def _writes_too_much(self) -> bool:
        folder = self.program.log_folder
        if folder is None:
            return False
        size = 0
        with suppress(OSError), os.scandir(folder) as entries:
            size = sum(entry.stat().st_size for entry in entries)
        return size > self.program.max_log

    def close(self) -> Ended:
        """End the process and its group."""
        with suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        returncode = self._process.wait()
        self.hear()
        self._selector.close()
        os.close(next(iter(self._pipes)))
        assert self._process.stdout is not None
        self._process.stdout.close()
        output = self._output.decode("utf-8", "replace")
        end = End(
            what=self.program.what, returncode=returncode, is_late=self._is_late, output=output
        )
        return Ended(
            program=self.program,
            facts=tuple(facts_of(self._told)),
            end=end,
            seconds=time.monotonic() - self._start,
        )


def _source() -> str:
    import pkgutil  # reads it out of a zip archive, too

    return (pkgutil.get_data(__package__, "import_probe.py") or b"").decode()
