"""What the checker's tests share: the installed torch, a sample object, copies of the package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from shared_objects import GLUE_RECORD, shared_object

import lltm_conda
from lltm_conda.engine.doctor import layouts, torch_probe

PACKAGE = Path(lltm_conda.__file__).parent


@pytest.fixture(scope="session")
def torch_root() -> Path:
    """The really installed torch of this environment."""
    return torch_probe.find_torch().root


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small real object with our sections, torch symbols of several kinds and versions."""
    folder = tmp_path_factory.mktemp("sample")
    return shared_object(
        folder / "glue-stable210.so",
        record=GLUE_RECORD,
        layout=layouts.LAYOUTS[(2, 9)],
        undefined=["aoti_torch_get_dim", "_ZN2at6Tensor3addEv", "PyObject_Call", "strlen"],
        weak=["aoti_torch_get_current_cuda_stream"],
        defined=["lltm_build_record", "PyInit_sample"],
    )


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that other users may look into (pytest's own are closed to them)."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


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
