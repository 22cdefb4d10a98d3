"""`python -m PACKAGE build`: one build at a time, in a trusted cache, and what it leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
from processes import clean_environment
from small_clients import project_of

from torchship.builder import BuildError
from torchship.builder.signals import exit_on_signals
from torchship.judge import cache, find_torch
from torchship.judge.cache import source_hash
from torchship.judge.project import Project
from torchship.runtime import local_build


@pytest.fixture
def env(tmp_path: Path, tiny_package: Path) -> dict[str, str]:
    """Steers the command line to a compiler that tells its version and compiles nothing."""
    script = tmp_path / "a-c++"
    script.write_text('#!/bin/sh\ncase $1 in -*v*) exec c++ "$@" ;; esac\nexit 1\n')
    script.chmod(0o755)
    return clean_environment(
        TINY_CACHE=str(tmp_path / "cache"),
        FORCE_CUDA="0",
        PYTHONPATH=str(tiny_package.parent),
        CXX=str(script),
    )


@pytest.fixture
def slow(env: dict[str, str], tmp_path: Path) -> Iterator[dict[str, str]]:
    """The same with a compilation that does not end; the compilers are killed after the test."""
    pids = tmp_path / "pids"
    script = Path(env["CXX"])
    script.write_text(
        '#!/bin/sh\ncase $1 in -*v*) exec c++ "$@" ;; esac\n'
        f"echo $$ >> '{pids}'\nexec sleep 300\n"
    )
    yield env
    # ninja gives each command a process group of its own, so they outlive a killed build.
    for pid in pids.read_text().split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "tiny_client", "build", *arguments]


class Ran(NamedTuple):
    code: int
    output: str  # standard output and standard error


def build(*arguments: str, cwd: Path, env: dict[str, str]) -> Ran:
    """What a command about builds says, to its end."""
    process = subprocess.run(
        command(*arguments),
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )
    return Ran(process.returncode, process.stdout)


def test_a_killed_build_is_listed_and_removed(slow: dict[str, str], tmp_path: Path) -> None:
    env = slow
    base = tmp_path / "cache"
    killed = subprocess.Popen(
        command(), cwd=tmp_path, env=env, stdout=subprocess.DEVNULL, start_new_session=True
    )
    end = time.monotonic() + 120
    while not (tmp_path / "pids").is_file() and time.monotonic() < end:
        time.sleep(0.1)
    running = build("--remove", "all", cwd=tmp_path, env=env)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert (running.code, "another process builds here" in running.output) == (1, True)
    listed = build("--list", cwd=tmp_path, env=env)
    assert (listed.code, "killed or running" in listed.output) == (0, True)
    removed = build("--remove", "all", cwd=tmp_path, env=env)
    assert (removed.code, "removed building-" in removed.output) == (0, True)
    assert [path.name for path in base.iterdir()] == ["lock"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("flags", ["", "-DX='|'"], ids=["ninja", "no ninja"])
def test_a_build_that_a_signal_ends_leaves_no_compiler(
    slow: dict[str, str], tmp_path: Path, flags: str, number: signal.Signals
) -> None:
    """A compiler may have started others, as g++ starts cc1plus. ninja cannot read the flag."""
    pids = tmp_path / "pids"
    Path(slow["CXX"]).write_text(
        '#!/bin/sh\ncase $1 in -*v* | -dumpmachine) exec c++ "$@" ;; esac\n'
        f"echo $$ >> '{pids}'\nsleep 300 &\necho $! >> '{pids}'\nwait\n"
    )
    ended = subprocess.Popen(
        command(),
        cwd=tmp_path,
        env=slow | {"CXXFLAGS": flags},
        stdout=subprocess.DEVNULL,
        # Whoever started the tests may ignore the signal, as nohup does.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    end = time.monotonic() + 120
    while not (pids.is_file() and len(pids.read_text().split()) > 1) and time.monotonic() < end:
        time.sleep(0.1)
    ended.send_signal(number)
    code = ended.wait(timeout=60)
    # A killed process takes a moment to end, more so beside others.
    end = time.monotonic() + 5
    while any(map(is_running, pids.read_text().split())) and time.monotonic() < end:
        time.sleep(0.05)
    assert [pid for pid in pids.read_text().split() if is_running(pid)] == []
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["lock"]
    assert code == 128 + number or number == signal.SIGINT


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_second_signal_does_not_stop_the_ending_of_a_build(
    first: signal.Signals, second: signal.Signals
) -> None:
    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    for number in numbers:
        is_interrupt = number == signal.SIGINT
        signal.signal(number, signal.default_int_handler if is_interrupt else signal.SIG_DFL)
    steps = []
    try:
        with (
            pytest.raises(KeyboardInterrupt if first == signal.SIGINT else SystemExit),
            exit_on_signals(),
        ):
            try:
                os.kill(os.getpid(), first)
                steps.append("went on")
            finally:
                os.kill(os.getpid(), second)
                os.kill(os.getpid(), first)
                steps.append("compilers ended")
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
    assert steps == ["compilers ended"]


def is_running(pid: str) -> bool:
    status = Path("/proc", pid, "stat")
    # The state follows the name in parentheses; Z is a process that nobody has waited for.
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_failed_build_leaves_nothing(env: dict[str, str], tmp_path: Path) -> None:
    result = build(cwd=tmp_path, env=env)
    assert (result.code, "tiny-client was not built" in result.output) == (1, True)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["lock"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can write into the home of another user")
def test_root_builds_nothing_in_the_home_of_a_user(env: dict[str, str], tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, 65534, 65534)
    result = build(cwd=tmp_path, env=env | {"TINY_CACHE": "", "HOME": str(home)})
    (line,) = result.output.splitlines()
    assert (result.code, "set TINY_CACHE" in line) == (1, True)
    assert list(home.iterdir()) == []


@dataclass
class Compiled:
    """A cached build; instead of compiling, a build notes its folder in `compilations`."""

    project: Project
    folder: Path
    compilations: list[Path]


@pytest.fixture
def compiled(tmp_path: Path, tiny_package: Path, monkeypatch: pytest.MonkeyPatch) -> Compiled:
    """A cache with a build made under FORCE_CUDA=0."""
    torch = find_torch()
    sources = source_hash(tiny_package)
    assert sources is not None
    project = project_of("tiny", tiny_package)._replace(cache=tmp_path / "cache")
    folder = cache.entry_folder(project, torch, sources)
    cache.make(project, folder)
    for name in ("glue-stable210.so", "kernels-cpu.so"):
        (folder / name).touch(0o700)
    cache.write_manifest(folder, cache.Manifest(settings={"FORCE_CUDA": "0"}, files={}))
    compilations: list[Path] = []

    def compile_into(folder: Path, *_: object, **__: object) -> str:
        compilations.append(folder)
        return "stable210-cpu"

    monkeypatch.setattr(local_build, "_compile_into", compile_into)
    return Compiled(project, folder, compilations)


@pytest.mark.parametrize(
    ("env", "builds"),
    [
        ({"FORCE_CUDA": "0"}, 0),
        ({"FORCE_CUDA": "0", "DEBUG": ""}, 0),
        ({}, 1),
        ({"FORCE_CUDA": "1"}, 1),
        *(({"FORCE_CUDA": "0", name: "x"}, 1) for name in local_build.SETTINGS[:-1]),
    ],
)
def test_other_settings_build_again(compiled: Compiled, env: dict[str, str], builds: int) -> None:
    """A setting that is not set any more is another one, too."""
    local_build.build(compiled.project, find_torch(), env)
    assert len(compiled.compilations) == builds


def truncate(folder: Path) -> None:
    (folder / "kernels-cpu.so").write_bytes(b"\x7fELF")


def remove_glue(folder: Path) -> None:
    (folder / "glue-stable210.so").unlink()


def remove_manifest(folder: Path) -> None:
    (folder / cache.MANIFEST).unlink()


@pytest.mark.parametrize("damage", [truncate, remove_glue, remove_manifest])
def test_a_damaged_build_is_built_again(compiled: Compiled, damage: Callable[[Path], None]) -> None:
    """A full disk or a crash left it; it would be refused by every import."""
    damage(compiled.folder)
    lines: list[str] = []
    local_build.build(compiled.project, find_torch(), {"FORCE_CUDA": "0"}, log=lines.append)
    assert compiled.compilations == [compiled.folder]
    assert "missing or damaged" in lines[0]


def test_an_installation_without_sources_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cache, "source_hash", lambda package: None)
    project = project_of("tiny", tmp_path / "tiny_client")._replace(cache=tmp_path / "cache")
    with pytest.raises(BuildError, match="--no-build-isolation FOLDER"):
        local_build.build(project, find_torch())


BY_THREADS = """
import threading
from tiny_client._project import PROJECT
from tiny_client.engine.judge import find_torch
from tiny_client.engine.runtime import local_build

start = threading.Barrier(4)

def build():
    start.wait()
    local_build.build(PROJECT, find_torch())

threads = [threading.Thread(target=build) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.slow
def test_threads_and_processes_on_a_cold_cache_compile_once(
    env: dict[str, str], tmp_path: Path
) -> None:
    env = {**env, "DEBUG": "1", "CXX": "c++", "TINY_LOAD": "0"}
    by_threads = [sys.executable, "-P", "-c", BY_THREADS]
    builds = [
        subprocess.Popen(words, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True)
        for words in [command()] * 4 + [by_threads] * 2
    ]
    outputs = [build.communicate(timeout=900)[0] for build in builds]
    assert [build.returncode for build in builds] == [0] * len(builds)
    lines = [line for output in outputs for line in output.splitlines()]
    assert sum(line.startswith("built already") for line in lines) == 4 + 2 * 4 - 1
    assert sum(line.startswith(("built stable", "built aten")) for line in lines) == 1
