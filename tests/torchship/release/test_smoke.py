"""The smoke test fails where it should: two OpenMP runtimes, another glue, the source tree."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import pytest
from processes import clean_environment
from small_clients import TORCHSHIP

from torchship.release.paths import tool

pytest.importorskip("torch")

PROGRAM = TORCHSHIP / "release" / "launch" / "engine_smoke.py"
MAPS = """\
7f00-7f01 r-xp 00000000 08:01 1  /usr/lib/libgomp.so.1.0.0
7f01-7f02 r--p 00001000 08:01 1  /usr/lib/libgomp.so.1.0.0
7f02-7f03 r-xp 00000000 08:01 2  /site/numpy.libs/libopenblas.so.0
7f03-7f04 rw-p 00000000 00:00 0  [heap]
7f04-7f05 rw-p 00000000 00:00 0
"""


class Smoke(Protocol):
    """Runs the smoke test of the small client with these arguments."""

    def __call__(self, *arguments: object) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def smoke(tiny_package, tmp_path, forked) -> Smoke:
    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        env = clean_environment(PYTHONPATH=str(tiny_package.parent))
        words = (tiny_package.name, *map(str, arguments))
        return forked.program(PROGRAM, *words, cwd=tmp_path, env=env)

    return run


def test_a_package_that_has_no_version_among_its_names_passes(
    tiny_package, tmp_path, forked
) -> None:
    package = tmp_path / "site" / tiny_package.name
    shutil.copytree(tiny_package, package)
    init = package / "__init__.py"
    init.write_text(f"{init.read_text(encoding='utf-8')}\ndel __version__\n", encoding="utf-8")
    env = clean_environment(PYTHONPATH=str(package.parent))
    result = forked.program(PROGRAM, package.name, cwd=tmp_path, env=env)
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith(": 0 failed\n")


def openmp_runtimes(maps: str) -> list[str]:
    folder = str(PROGRAM.parent)
    sys.path.insert(0, folder)
    try:
        import engine_smoke as module
    finally:
        sys.path.remove(folder)
    return module.openmp_runtimes(maps)


def test_one_runtime_in_several_mappings_is_one() -> None:
    assert openmp_runtimes(MAPS) == ["/usr/lib/libgomp.so.1.0.0"]


@pytest.mark.parametrize(
    "other",
    ["/site/tiny.libs/libgomp-a34b3233.so.1.0.0", "/opt/lib/libiomp5.so", "/usr/lib/libomp.so.5"],
)
def test_every_kind_of_second_runtime_is_seen(other) -> None:
    assert other in openmp_runtimes(MAPS + f"7f08-7f09 r-xp 00000000 08:01 9  {other}\n")


@pytest.mark.slow
def test_a_second_openmp_runtime_in_the_process_fails(tiny_package, tmp_path) -> None:
    torch = pytest.importorskip("torch")
    runtimes = [
        Path(match)
        for match in re.findall(r"(/\S*libgomp[^\s/]*)", Path("/proc/self/maps").read_text())
    ]
    if not runtimes:
        pytest.skip(f"torch {torch.__version__} has loaded no libgomp")
    second = tmp_path / "libgomp-second.so.1"
    shutil.copy(runtimes[0], second)
    # Under its old name it would serve torch as well, and be the only one.
    subprocess.run([tool("patchelf"), "--set-soname", second.name, second], check=True)
    env = clean_environment(PYTHONPATH=str(tiny_package.parent), LD_PRELOAD=str(second))
    command = [sys.executable, PROGRAM, tiny_package.name]
    process = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert process.returncode == 1
    assert "FAILED OpenMP runtimes" in process.stdout and second.name in process.stdout


def test_another_glue_than_the_one_meant_fails(smoke) -> None:
    process = smoke("--glue", "aten23-abi0")
    assert process.returncode == 1 and "needed aten23-abi0" in process.stdout


def test_the_source_tree_is_not_what_is_meant(smoke, tiny_package) -> None:
    process = smoke("--outside", tiny_package)
    assert process.returncode == 1 and "not the installed one" in process.stdout


def test_what_is_installed_passes(smoke, tmp_path) -> None:
    process = smoke("--json", tmp_path / "facts.json")
    assert process.returncode == 0, process.stdout
    assert json.loads((tmp_path / "facts.json").read_text())["failed"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("allowed", "code"), [("TOLERANCES", 0), ("dict.fromkeys(TOLERANCES, -1)", 1)]
)
def test_under_an_emulator_the_live_run_is_its_own(
    tiny_package, tmp_path, forked, allowed, code
) -> None:
    """One import of torch does for both; a live run that differs fails."""
    start = (
        f"import runpy, sys; from {tiny_package.name}.engine.runtime import live_run;"
        f"TOLERANCES = live_run.TOLERANCES; live_run.TOLERANCES = {allowed};"
        "sys.argv[:] = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    env = clean_environment(PYTHONPATH=str(tiny_package.parent), EMULATED="1")
    process = forked.run(start, str(PROGRAM), tiny_package.name, cwd=tmp_path, env=env)
    assert process.returncode == code, process.stdout + process.stderr
    assert f"{'FAILED' if code else 'ok    '} live run on cpu: " in process.stdout
