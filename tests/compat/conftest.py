"""What the tests of the installed package share: copies of it, Pythons to run them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import lltm_conda

# The helpers of torchship's own tests.
TORCHSHIP = Path(__file__).resolve().parents[1] / "torchship"
sys.path[1:1] = [str(TORCHSHIP / "doctor"), str(TORCHSHIP)]

PACKAGE = Path(lltm_conda.__file__).parent


@pytest.fixture
def package_copy(tmp_path: Path) -> Callable[..., Path]:
    """Copies the Python files (and binaries) of the package under test into a folder of its own."""

    def copy(*, binaries: bool = True, sources: bool = True) -> Path:
        target = tmp_path / "site" / "lltm_conda"
        left_out = [*(() if binaries else ("lib",)), *(() if sources else ("csrc",))]
        # With what Python has compiled, which counts for files that stay as they are.
        shutil.copytree(PACKAGE, target, ignore=shutil.ignore_patterns(*left_out))
        return target

    return copy


@pytest.fixture
def run_python(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a Python with a copied package first on its path and an empty build cache."""

    def run(
        package: Path, *arguments: str, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("LLTM_", "PYTHON"))}
        clean |= {
            "PYTHONPATH": str(package.parent),
            "LLTM_CONDA_CACHE": str(tmp_path / "cache"),
            **(env or {}),
        }
        return subprocess.run(
            [sys.executable, *arguments],
            env=clean,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )

    return run
