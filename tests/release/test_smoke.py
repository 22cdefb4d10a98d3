"""The smoke test fails where it should: two OpenMP runtimes, another glue, the source tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from release_places import REPO

import lltm_conda
from torchship.release.paths import tool

pytest.importorskip("torch")

SMOKE = REPO / "scripts" / "engine_smoke.py"  # the program, for the package of this project
PROGRAM = REPO / "torchship" / "release" / "launch" / "engine_smoke.py"
MAPS = """\
7f00-7f01 r-xp 00000000 08:01 1  /usr/lib/libgomp.so.1.0.0
7f01-7f02 r--p 00001000 08:01 1  /usr/lib/libgomp.so.1.0.0
7f02-7f03 r-xp 00000000 08:01 2  /site/numpy.libs/libopenblas.so.0
7f03-7f04 rw-p 00000000 00:00 0  [heap]
7f04-7f05 rw-p 00000000 00:00 0
"""


def smoke(tmp_path: Path, *arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
    site = Path(lltm_conda.__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": str(site), **more}
    command = [sys.executable, str(SMOKE), *map(str, arguments)]
    return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)


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
    ["/site/lltm.libs/libgomp-a34b3233.so.1.0.0", "/opt/lib/libiomp5.so", "/usr/lib/libomp.so.5"],
)
def test_every_kind_of_second_runtime_is_seen(other) -> None:
    assert other in openmp_runtimes(MAPS + f"7f08-7f09 r-xp 00000000 08:01 9  {other}\n")


def test_a_second_openmp_runtime_in_the_process_fails(tmp_path) -> None:
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
    process = smoke(tmp_path, LD_PRELOAD=str(second))
    assert process.returncode == 1
    assert "FAILED OpenMP runtimes" in process.stdout and second.name in process.stdout


def test_another_glue_than_the_one_meant_fails(tmp_path) -> None:
    process = smoke(tmp_path, "--glue", "aten23-abi0")
    assert process.returncode == 1 and "needed aten23-abi0" in process.stdout


def test_the_source_tree_is_not_what_is_meant(tmp_path) -> None:
    process = smoke(tmp_path, "--outside", Path(lltm_conda.__file__).parent)
    assert process.returncode == 1 and "not the installed one" in process.stdout


def test_what_is_installed_passes(tmp_path) -> None:
    process = smoke(tmp_path, "--json", tmp_path / "facts.json")
    assert process.returncode == 0, process.stdout
    assert (tmp_path / "facts.json").exists()


@pytest.mark.parametrize(
    ("allowed", "code"), [("TOLERANCES", 0), ("dict.fromkeys(TOLERANCES, 0)", 1)]
)
def test_under_an_emulator_the_live_run_is_its_own(tmp_path, allowed, code) -> None:
    """One import of torch does for both; a live run that differs fails."""
    start = (
        "import runpy, sys; from lltm_conda.engine.runtime import live_run;"
        f"TOLERANCES = live_run.TOLERANCES; live_run.TOLERANCES = {allowed};"
        "runpy.run_path(sys.argv.pop(), run_name='__main__')"
    )
    site = Path(lltm_conda.__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": str(site), "EMULATED": "1"}
    command = [sys.executable, "-c", start, SMOKE]
    process = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert process.returncode == code, process.stdout + process.stderr
    assert f"{'FAILED' if code else 'ok    '} live run on cpu: " in process.stdout
