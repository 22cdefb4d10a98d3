"""Runs the steps of a plan, with ninja where possible, else one command at a time."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from .plan import Step
from .programs import BuildError, Log
from .signals import exit_on_signals, signals_held_back

# Characters that ninja cannot read in a path. If a command holds one, ninja is not used.
_NOT_FOR_NINJA = re.compile(r"[\n\r|]")
# Where a compiler names its first error, which the rest of its output may only follow from.
_ERROR = re.compile(r"\berror\s*:", re.IGNORECASE)
# How many lines of a failed command's output are shown: from its first error on, and its last.
_FIRST, _LAST = 10, 60
# The advice for a failed command whose output holds none of the texts in `_HINTS`.
_HINT = "read the compiler's message above, remove its cause, and run the same command again"
_HINTS = (
    ("unsupported GNU version", "this nvcc refuses this g++: set CXX to an older g++"),
    ("No space left on device", "free some disk space and run the same command again"),
    ("unrecognized command-line", "the compiler is too old: set CXX to a newer compiler"),
    (
        "requires .target sm_",
        "the GPUs before the named one lack an instruction of this source: take them out of "
        "`archs:` in build_matrix.yaml, or out of TORCH_CUDA_ARCH_LIST, or compile it for "
        "__CUDA_ARCH__ from there on",
    ),
    ("Killed", "the compiler ran out of memory: set MAX_JOBS=1 and run the same command again"),
)
# How long a command that was asked to end may take, in seconds.
_PATIENCE = 10.0


def execute(
    steps: Sequence[Step], work_dir: Path, jobs: int | None = None, log: Log = print
) -> None:
    """Runs `steps`. ninja leaves out the steps whose output is up to date.

    `work_dir` is the folder for `build.ninja`. `jobs` is how many commands ninja runs at a
    time: by default MAX_JOBS, else the number of processors. `log` gets the progress, line by
    line.

    In the main thread, an exception such as KeyboardInterrupt ends the running commands
    first, and so do SIGTERM and SIGHUP if the process has no handlers for them; then
    SystemExit is raised.

    Raises:
        BuildError: a command failed or did not start, or MAX_JOBS is no positive number. The text
            holds the first error of a failed command's output, and its end. Files that other
            steps have written stay.
    """
    for step in steps:
        for output in (step.output, *step.more_outputs):
            output.parent.mkdir(parents=True, exist_ok=True)
        if step.generated is not None:
            _write_if_changed(step.inputs[0], step.generated)
    jobs = jobs or _jobs(os.environ.get("MAX_JOBS"))
    ninja = find_ninja()
    arguments = [argument for step in steps for argument in step.command]
    with exit_on_signals():
        if ninja is None or any(map(_NOT_FOR_NINJA.search, arguments)):
            for step in steps:
                log(step.name)
                _run(step.command, step.name)
        else:
            _run_ninja(ninja, steps, work_dir.resolve(), jobs=jobs, log=log)


def _run_ninja(ninja: str, steps: Sequence[Step], folder: Path, *, jobs: int, log: Log) -> None:
    """Runs the steps in `folder`, an absolute path since ninja changes its folder."""
    file = folder / "build.ninja"
    _write_if_changed(file, _ninja_file(steps))
    for step in steps:
        log(f"planned: {step.name}")
    _run((ninja, "-f", str(file), "-C", str(folder), "-j", str(jobs)), "ninja", log)


def _jobs(max_jobs: str | None) -> int:
    if not max_jobs:
        return os.cpu_count() or 1
    if not max_jobs.isdecimal() or int(max_jobs) < 1:
        raise BuildError(
            f"MAX_JOBS must be the number of commands to run at a time, got {max_jobs!r}; set "
            "MAX_JOBS to a whole number from 1 on, or unset it"
        )
    return int(max_jobs)


def find_ninja() -> str | None:
    """The ninja on PATH, or the one beside the running Python; None if there is none."""
    beside = Path(sys.executable).parent / "ninja"
    return shutil.which("ninja") or (str(beside) if beside.is_file() else None)


def _write_if_changed(path: Path, content: str) -> None:
    data = os.fsencode(content)  # a path may not be UTF-8
    if not path.is_file() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _ninja_file(steps: Sequence[Step]) -> str:
    lines = ["ninja_required_version = 1.5", ""]
    for number, step in enumerate(steps):
        lines += [
            f"rule r{number}",
            f"  command = {shlex.join(step.command).replace('$', '$$')}",
            f"  description = {step.name}",
        ]
        if step.depfile is not None:
            lines += [f"  depfile = {_escape(step.depfile)}", "  deps = gcc"]
        inputs = " ".join(map(_escape, step.inputs))
        outputs = " ".join(map(_escape, (step.output, *step.more_outputs)))
        order = " || " + " ".join(map(_escape, step.after)) if step.after else ""
        lines += [f"build {outputs}: r{number} {inputs}{order}", ""]
    return "\n".join(lines)


def _escape(path: Path) -> str:
    return str(path).replace("$", "$$").replace(" ", "$ ").replace(":", "$:")


def _run(command: Sequence[str], name: str, log: Log = lambda _: None) -> None:
    # In a session of its own, a compiler can be ended with all processes that it has started.
    # The terminal's Ctrl-C does not reach such a session, but raises KeyboardInterrupt here.
    # It does not in another thread, so there the terminal must reach the compiler itself.
    own_session = threading.current_thread() is threading.main_thread()
    begin: int | None = None  # the number of the line with the first error
    first: list[str] = []
    last: deque[str] = deque(maxlen=_LAST)
    count = 0
    process: subprocess.Popen[str] | None = None
    try:
        with signals_held_back():
            process = _start(command, name, own_session=own_session)
        assert process.stdout is not None
        for count, line in enumerate(process.stdout, 1):
            if begin is None and _ERROR.search(line):
                begin = count
            if begin is not None and len(first) < _FIRST:
                first.append(line.rstrip())
            last.append(line.rstrip())
            log(last[-1])
        code = process.wait()
    except BaseException:
        if process is not None:
            _end(process, own_session=own_session)
        raise
    if code != 0:
        # How many lines from the first error on are no longer among the last.
        lost = 0 if begin is None else max(count - len(last) - begin + 1, 0)
        gap = ["..."] if lost > len(first) else []
        text = "\n".join([*first[:lost], *gap, *last])
        advice = next((advice for mark, advice in _HINTS if mark in text), _HINT)
        raise BuildError(f"{name} failed with exit code {code}:\n{text}\n{advice}")


def _start(command: Sequence[str], name: str, *, own_session: bool) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=own_session,
            # Keep descriptors for torchship/release/run/processes.py: by closing them, a child
            # would give up the release tool's lock before its exec.
            close_fds=False,
        )
    except OSError as error:
        raise BuildError(f"{name}: {command[0]} does not start: {error}; install it") from error


def _end(process: subprocess.Popen[str], *, own_session: bool) -> None:
    """Ends a command and, if it has a session of its own, what it has started; ninja ends its own
    commands."""

    def send(number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            if own_session:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)

    send(signal.SIGTERM)
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        send(signal.SIGKILL)
        process.wait()
