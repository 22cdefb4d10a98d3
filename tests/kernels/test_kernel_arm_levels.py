"""The CPU kernels for aarch64, run by qemu: NEON, and SVE at every length of its vectors."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import lltm_conda
from lltm_conda.engine.builder import include_dirs

REPO = Path(__file__).resolve().parents[2]
DRIVER = Path(__file__).parent / "run_levels.cpp"
KERNELS = sorted((REPO / "csrc" / "kernels" / "cpu").glob("*.cpp"))
INCLUDES = [f"-I{folder}" for folder in include_dirs(REPO / "csrc")]
CROSS, QEMU = "aarch64-linux-gnu-g++", "qemu-aarch64"
SEED = random.randrange(2**32)
# By lltm_dtype: float16, float32, float64, bfloat16, as for tests/op.
TOLERANCES = {5: 5e-3, 6: 1e-5, 7: 1e-12, 15: 3e-2}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which(CROSS) and shutil.which(QEMU)),
        reason="no cross compiler or no qemu: run scripts/test_env.sh --cross",
    ),
]


def compiled(compiler: str, folder: Path, *kernels: str | Path) -> Path:
    program = folder / "run_levels"
    command = [compiler, "-std=c++17", "-O1", "-Wno-psabi", *INCLUDES]
    subprocess.run([*command, DRIVER, *kernels, "-o", program], check=True)
    return program


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the installed kernels compute here; other tests compare them with float64."""
    kernels = Path(lltm_conda.__file__).parent / "lib" / "kernels-cpu.so"
    rpath = f"-Wl,-rpath,{kernels.parent}"
    program = compiled("g++", tmp_path_factory.mktemp("native"), kernels, rpath)
    return results([program], "default")


@pytest.fixture(scope="module")
def cross(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(CROSS, tmp_path_factory.mktemp("cross"), "-static", *KERNELS)


def results(program: list[str | Path], level: str = "") -> list[str]:
    run = subprocess.run(
        [*program, str(SEED), "3"],
        env={"LLTM_CPU_CAPABILITY": level},
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.splitlines()


def differences(actual: list[str], expected_lines: list[str]) -> Iterator[tuple[str, float]]:
    """Of each result its relative difference, in units of what its dtype allows."""
    tolerance = 0.0
    for ours, theirs in zip(actual[1:], expected_lines[1:], strict=True):
        name, *elements = ours.split()
        other, *expected = theirs.split()
        assert name == other
        if name == "dtype":
            assert elements == expected
            problem = ours
            tolerance = TOLERANCES[int(elements[0])]
            continue
        a, b = (
            torch.tensor([*map(float, row)], dtype=torch.float64) for row in (elements, expected)
        )
        yield f"{name} of {problem}", float((a - b).norm() / (b.norm() * tolerance + 1e-300))


@pytest.mark.parametrize(
    ("processor", "level"),
    [
        ("cortex-a72", "default"),
        ("max,sve=off", "bf16"),
        ("max,sve-default-vector-length=16", "bf16"),
        *((f"max,sve-default-vector-length={bits // 8}", "sve") for bits in (256, 384, 512)),
    ],
)
def test_a_processor_takes_its_best_level_and_computes_right(
    processor: str, level: str, cross: Path, native: list[str]
) -> None:
    actual = results([QEMU, "-cpu", processor, cross])
    assert actual[0] == f"level {level}"
    too_far = [(what, far) for what, far in differences(actual, native) if not far <= 1]
    assert too_far == [], SEED


def test_sve_computes_right_with_the_shortest_vectors(cross: Path, native: list[str]) -> None:
    actual = results([QEMU, "-cpu", "max,sve-default-vector-length=16", cross], "sve")
    assert actual[0] == "level sve"
    too_far = [(what, far) for what, far in differences(actual, native) if not far <= 1]
    assert too_far == [], SEED
