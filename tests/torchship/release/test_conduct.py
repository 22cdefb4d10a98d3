"""Killed, full or stopped: what is finished stays, what is not is made again, nothing is torn."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from small_checkout import ENVIRONMENT
from steps import Silent, Step

from torchship.release.paths import publish, write_atomically
from torchship.release.run.store import read_stamp
from torchship.release.run.tasks import Status, run_tasks

PROGRAM = Path(__file__).with_name("conduct_program.py")
NAMES = [f"{kind}{number}" for kind in "ab" for number in range(4)]


def start(folder: Path, pause: float = 0.05) -> subprocess.Popen[bytes]:
    env = ENVIRONMENT
    return subprocess.Popen([sys.executable, str(PROGRAM), str(folder), str(pause)], env=env)


def kill(process: subprocess.Popen[bytes]) -> None:
    """As the kernel does when memory is short: no chance to clean up."""
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() in (-signal.SIGKILL, 0)  # 0: it ended just before


def wait_until(true: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.005)


def lines(folder: Path) -> list[str]:
    path = folder / "runs.txt"
    return path.read_text().splitlines() if path.exists() else []


def stamped(folder: Path) -> set[str]:
    return {name for name in NAMES if read_stamp(folder, name)}


def all_is_well(folder: Path) -> bool:
    expected = {name: (name.encode() * 300_000)[:300_000] for name in NAMES}
    contents = {path.name: path.read_bytes() for path in (folder / "out").iterdir()}
    return contents == expected


@pytest.mark.parametrize(
    "moment",
    [
        "begin a0",
        *(pytest.param(m, marks=pytest.mark.slow) for m in ("end a1", "begin b0", "begin b3")),
    ],
)
def test_a_killed_run_is_taken_up_where_it_was(moment, tmp_path) -> None:
    process = start(tmp_path)
    wait_until(lambda: moment in lines(tmp_path))
    kill(process)
    finished = stamped(tmp_path)
    before = lines(tmp_path)
    assert start(tmp_path).wait() == 0
    after = lines(tmp_path)[len(before) :]
    assert {line.split()[1] for line in after if line.startswith("unchanged")} == finished
    assert not {f"begin {name}" for name in finished} & set(after)
    assert all_is_well(tmp_path)
    # What the killed run had started was ended: it would write now.
    assert "which a killed run left behind" in " ".join((tmp_path / "said.txt").read_text().split())
    (tmp_path / "go").touch()
    time.sleep(0.5)
    assert not list(tmp_path.glob("tmp/*/late"))


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 2))])
@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_ends_well(seed, tmp_path) -> None:
    moments = random.Random(seed)
    for attempt in range(60):
        finished = stamped(tmp_path)
        before = len(lines(tmp_path))
        process = start(tmp_path, pause=0.03)
        wait_until(lambda n=before, p=process: len(lines(tmp_path)) > n or p.poll() is not None)
        try:
            process.wait(timeout=moments.uniform(0.05, 0.4 + attempt / 10))
        except subprocess.TimeoutExpired:
            kill(process)
        assert finished <= stamped(tmp_path), "what was finished was lost"
        if process.returncode == 0:
            break
    assert process.returncode == 0
    assert attempt > 0, "it was never killed"
    assert all_is_well(tmp_path)


# The begin of a program: settings whose build folder is the first argument.
IN_FOLDER = """
import os, pathlib, subprocess, sys, time
from dataclasses import replace
from rich.console import Console
from torchship.release.run import release as run
from torchship.release.matrix.load import load_settings
from torchship.release.run.shell import Log

folder = pathlib.Path(sys.argv[1])
settings = replace(load_settings(), build=folder)
"""


@pytest.mark.slow
def test_a_second_run_beside_the_first_is_refused(tmp_path, settings) -> None:
    from rich.console import Console

    from torchship.release.run import release as run

    own_settings = replace(settings, build=tmp_path)
    with run.only_run(own_settings, Console()):
        code = f"{IN_FOLDER}\nwith run.only_run(settings, Console()): pass"
        env = ENVIRONMENT
        process = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], env=env, capture_output=True, text=True
        )
        assert process.returncode and "another run is going on" in process.stderr
    with run.only_run(own_settings, Console()):
        pass


def test_a_run_ends_what_an_earlier_one_left_and_nothing_else(tmp_path, settings) -> None:
    from rich.console import Console

    from torchship.release.run import release as run
    from torchship.release.run.processes import MARK

    own_settings = replace(settings, build=tmp_path / "build")
    (tmp_path / "build").mkdir()
    sleep = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"]
    envs = [{MARK: str(tmp_path / name)} for name in ("build", "another")]
    left, other = (
        subprocess.Popen(sleep, env={**os.environ, **env}, stdout=subprocess.PIPE) for env in envs
    )
    for process in (left, other):
        process.stdout.readline()  # it runs, under the environment that it was given
    with run.only_run(own_settings, Console(quiet=True)):
        assert left.poll() is not None
        assert other.poll() is None
        assert os.environ[MARK] == str(tmp_path / "build")
    assert MARK not in os.environ
    other.kill()
    other.wait()


def test_what_is_started_while_one_looks_is_ended_too(tmp_path, monkeypatch) -> None:
    from torchship.release.run import processes

    sleep = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"]
    started: list[subprocess.Popen[bytes]] = []

    def start_one() -> None:
        env = {**os.environ, processes.MARK: str(tmp_path)}
        started.append(subprocess.Popen(sleep, env=env, stdout=subprocess.PIPE))
        started[-1].stdout.readline()

    look = psutil.process_iter

    def look_late(attributes):
        children = list(look(attributes))
        if len(started) == 1:
            start_one()
        return children

    start_one()
    monkeypatch.setattr(processes.psutil, "process_iter", look_late)
    log: list[str] = []
    processes.end_leftovers(tmp_path, log.append)
    assert len(log) == 2
    assert all(process.poll() is not None for process in started)


COMPILING = f"""{IN_FOLDER}
with run.only_run(settings, Console()), Log(folder / "x.log", settings) as log:
    os.mkfifo(folder / "fifo")
    forever = os.open(folder / "fifo", os.O_RDWR)
    daemon = subprocess.Popen([sys.argv[2]], stdin=forever)
    (folder / "daemon").write_text(str(daemon.pid))
    log.run([sys.argv[2], folder / "x.o", folder / "fifo"])
"""


@pytest.mark.slow
def test_the_daemon_of_a_compiler_cache_lives_on(tmp_path, settings) -> None:
    """As sccache's it has no arguments, unlike the programs that wait for it."""
    from rich.console import Console

    from torchship.release.run import release as run

    build = tmp_path / "build"
    cache = tmp_path / "sccache"
    build.mkdir()
    (build / "x.o").touch()
    shutil.copy(shutil.which("cat"), cache)
    env = ENVIRONMENT
    process = subprocess.Popen([sys.executable, "-c", COMPILING, str(build), str(cache)], env=env)
    wait_until(lambda: len(psutil.Process(process.pid).children()) == 2)
    wait_until(lambda: (build / "daemon").read_text() != "")
    daemon = psutil.Process(int((build / "daemon").read_text()))
    (compiles,) = (p for p in psutil.Process(process.pid).children() if p != daemon)
    wait_until(lambda: compiles.name() == daemon.name() == "sccache")
    kill(process)
    with run.only_run(replace(settings, build=build), Console(quiet=True)):
        assert not compiles.is_running()
        assert daemon.is_running()
    daemon.kill()


FORKING = f"""{IN_FOLDER}
with run.only_run(settings, Console()):
    if os.fork():
        (folder / "forked").touch()
        time.sleep(60)
    time.sleep(0.5)  # not yet the command, and without its environment
    os.execvp("sleep", ["sleep", "60"])
"""


@pytest.mark.slow
def test_what_was_just_being_started_is_ended_too(tmp_path, settings) -> None:
    from rich.console import Console

    from torchship.release.run import release as run

    env = ENVIRONMENT
    process = subprocess.Popen([sys.executable, "-c", FORKING, str(tmp_path)], env=env)
    wait_until(lambda: (tmp_path / "forked").exists())
    (child,) = psutil.Process(process.pid).children()
    kill(process)
    assert child.is_running(), "there is something to end"
    with run.only_run(replace(settings, build=tmp_path), Console(quiet=True)):
        assert not child.is_running()


STOPPED = """
import pathlib, signal, sys
sys.path.insert(0, sys.argv[2])
from steps import Step
from torchship.release.matrix.load import load_settings
from torchship.release.run.processes import interrupt
from torchship.release.run.tasks import run_tasks

folder = pathlib.Path(sys.argv[1])

class Silent:
    def started(self, task): (folder / task.name).touch()
    def finished(self, task, outcome): ...

def slow(context):
    context.log.run(["sleep", "120"])
    return []

signal.signal(signal.SIGTERM, interrupt)
try:
    first = Step(name="slow", act=slow)
    tasks = [first, Step(name="after", act=slow, after=(first,))]
    run_tasks(tasks, folder, Silent(), settings=load_settings())
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_a_run_that_is_stopped_ends_its_commands_and_counts_nothing_as_done(tmp_path) -> None:
    env = ENVIRONMENT
    program = tmp_path / "stopped.py"
    program.write_text(STOPPED)
    process = subprocess.Popen(
        [sys.executable, str(program), str(tmp_path), str(PROGRAM.parent)], env=env
    )
    wait_until(lambda: psutil.Process(process.pid).children())
    process.terminate()
    assert process.wait(timeout=60) == 130
    assert not list(tmp_path.glob("stamps/*")) and not (tmp_path / "after").exists()


# No space left.


def full(target: Path, ran: list[str], name: str, needs: tuple[Step, ...] = ()) -> Step:
    """A task that writes where there is no space as long as `target` points to /dev/full."""

    def run(_context):
        ran.append(name)
        target.write_bytes(b"x" * 100_000)
        return [target]

    return Step(name=name, act=run, after=needs)


def plain(folder: Path, ran: list[str], name: str, needs: tuple[Step, ...] = ()) -> Step:
    def run(_context):
        ran.append(name)
        (folder / name).write_text(name)
        return [folder / name]

    return Step(name=name, act=run, after=needs)


def test_a_full_disk_stops_the_run_and_the_next_one_resumes(tmp_path, settings) -> None:
    target = tmp_path / "big"
    ran = []
    target.symlink_to("/dev/full")
    before = plain(tmp_path, ran, "before")
    big = full(target, ran, "big", needs=(before,))
    other = plain(tmp_path, ran, "other", needs=(before,))
    tasks = [before, big, other, plain(tmp_path, ran, "after", needs=(big,))]
    outcomes = run_tasks(tasks, tmp_path, Silent(), settings=settings)
    assert outcomes["big"].status is Status.FAILED
    assert "MB are free" in outcomes["big"].reason
    assert "run the same again" in outcomes["big"].reason
    assert outcomes["other"].status is outcomes["after"].status is Status.SKIPPED
    assert "not started: no space left" in outcomes["other"].reason
    target.unlink()
    ran.clear()
    outcomes = run_tasks(tasks, tmp_path, Silent(), settings=settings)
    assert sorted(ran) == ["after", "big", "other"]
    assert outcomes["before"].status is Status.UNCHANGED


def test_a_command_that_finds_the_disk_full_is_understood(tmp_path, settings) -> None:
    def run(context):
        context.log.run(["sh", "-c", "cat /etc/passwd > /dev/full"], remedy="reinstall everything")
        return []

    outcomes = run_tasks([Step(name="cp", act=run)], tmp_path, Silent(), settings=settings)
    assert outcomes["cp"].disk_full and "free some" in outcomes["cp"].reason
    assert "reinstall" not in outcomes["cp"].reason


def test_a_log_that_finds_the_disk_full_is_understood(tmp_path, settings) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "big.log").symlink_to("/dev/full")

    def run(context):
        context.log.write("x" * 100_000)
        return []

    outcomes = run_tasks([Step(name="big", act=run)], tmp_path, Silent(), settings=settings)
    assert outcomes["big"].disk_full


@pytest.mark.parametrize("way", ["publish", "write_atomically"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(way, tmp_path, monkeypatch) -> None:
    target = tmp_path / "artefact"
    target.write_text("old")
    source = tmp_path / "source"
    source.write_text("new")
    if way == "publish":
        monkeypatch.setattr("shutil.copy2", _half_then_full)
        with pytest.raises(OSError, match="No space"):
            publish(source, target)
    else:
        monkeypatch.setattr(Path, "write_text", lambda path, *_a, **_k: _half_then_full("", path))
        with pytest.raises(OSError, match="No space"):
            write_atomically(target, "new")
    monkeypatch.undo()
    assert target.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["artefact", "source"]


def test_what_a_kill_amid_a_write_left_is_gone_after_the_next(tmp_path) -> None:
    code = (
        "import os, pathlib, signal; from torchship.release.paths import replacing\n"
        f"with replacing(pathlib.Path({str(tmp_path / 'artefact')!r})) as part:\n"
        "    part.write_text('torn')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)"
    )
    env = ENVIRONMENT
    process = subprocess.run([sys.executable, "-c", code], env=env)
    assert process.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 1, "nothing was torn"
    write_atomically(tmp_path / "artefact", "whole")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"artefact": "whole"}


def _half_then_full(_source: object, target: Path) -> None:
    target.write_bytes(b"ne")
    raise OSError(28, "No space left on device", str(target))
