"""`python -m lltm_conda build`: one build at a time, in a trusted cache, and what it leaves."""

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

import pytest
from build_places import environment, run

import lltm_conda
from lltm_conda._project import PROJECT
from lltm_conda.engine.builder import BuildError
from lltm_conda.engine.builder.signals import exit_on_signals
from lltm_conda.engine.doctor import cache, find_torch
from lltm_conda.engine.doctor.cache import source_hash
from lltm_conda.engine.doctor.project import Project
from lltm_conda.engine.runtime import local_build

PACKAGE = Path(lltm_conda.__file__).parent
THREADS = Path(__file__).with_name("threads_program.py")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Steers the command line to a compiler that tells its version and compiles nothing."""
    script = tmp_path / "a-c++"
    script.write_text('#!/bin/sh\ncase $1 in -*v*) exec c++ "$@" ;; esac\nexit 1\n')
    script.chmod(0o755)
    return environment(
        LLTM_CONDA_CACHE=str(tmp_path / "cache"), FORCE_CUDA="0", PYTHONPATH=str(PACKAGE.parent)
    ) | {"CXX": str(script)}


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
    return [sys.executable, "-P", "-m", "lltm_conda", "build", *arguments]


def test_a_killed_build_is_listed_and_removed(slow: dict[str, str], tmp_path: Path) -> None:
    env = slow
    base = tmp_path / "cache"
    build = subprocess.Popen(
        command(), cwd=tmp_path, env=env, stdout=subprocess.DEVNULL, start_new_session=True
    )
    end = time.monotonic() + 120
    while not (tmp_path / "pids").is_file() and time.monotonic() < end:
        time.sleep(0.1)
    running = run(*command("--remove", "all"), cwd=tmp_path, env=env)
    os.killpg(build.pid, signal.SIGKILL)
    build.wait()
    assert (running.code, "another process builds here" in running.output) == (1, True)
    assert "killed or running" in run(*command("--list"), cwd=tmp_path, env=env).good()
    assert "removed building-" in run(*command("--remove", "all"), cwd=tmp_path, env=env).good()
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
    build = subprocess.Popen(
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
    build.send_signal(number)
    code = build.wait(timeout=60)
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
    result = run(*command(), cwd=tmp_path, env=env)
    assert (result.code, "lltm was not built" in result.output) == (1, True)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["lock"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can write into the home of another user")
def test_root_builds_nothing_in_the_home_of_a_user(env: dict[str, str], tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, 65534, 65534)
    result = run(*command(), cwd=tmp_path, env=env | {"LLTM_CONDA_CACHE": "", "HOME": str(home)})
    (line,) = result.output.splitlines()
    assert (result.code, "set LLTM_CONDA_CACHE" in line) == (1, True)
    assert list(home.iterdir()) == []


@dataclass
class Compiled:
    """A cached build; instead of compiling, a build notes its folder in `compilations`."""

    project: Project
    folder: Path
    compilations: list[Path]


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiled:
    """A cache with a build made under FORCE_CUDA=0."""
    torch = find_torch()
    sources = source_hash(PACKAGE)
    assert sources is not None
    project = PROJECT._replace(cache=tmp_path / "cache")
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
    with pytest.raises(BuildError, match="--no-build-isolation FOLDER"):
        local_build.build(PROJECT._replace(cache=tmp_path / "cache"), find_torch())


@pytest.mark.slow
def test_sixteen_threads_share_the_op_the_loader_and_one_build(tmp_path: Path) -> None:
    cache_folder = tmp_path / "cache"
    env = environment(
        LLTM_CONDA_CACHE=str(cache_folder),
        PYTHONPATH=str(PACKAGE.parent),
        DEBUG="1",
        FORCE_CUDA="0",
    )
    output = run(sys.executable, "-P", THREADS, cache_folder, cwd=tmp_path, env=env).good()
    assert output.splitlines()[-2:] == ["compiled 1", "failures 0"], output


@pytest.mark.slow
def test_eight_processes_on_a_cold_cache_compile_once(tmp_path: Path) -> None:
    env = environment(
        LLTM_CONDA_CACHE=str(tmp_path / "cache"),
        PYTHONPATH=str(PACKAGE.parent),
        DEBUG="1",
        FORCE_CUDA="0",
    )
    builds = [
        subprocess.Popen(command(), cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    outputs = [build.communicate(timeout=900)[0] for build in builds]
    assert [build.returncode for build in builds] == [0] * 8
    assert sum("\nbuilt " in output for output in outputs) == 1
