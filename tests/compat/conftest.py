"""Facts for the judge's tests: a runtime and records to vary one field at a time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from shared_objects import GLUE_RECORD, KERNELS_RECORD, shared_object

import lltm_conda
from lltm_conda._version import __version__
from lltm_conda.compat import BinaryRecord, BuildRecord, Runtime, TorchInstall, layouts, torch_probe

PACKAGE = Path(lltm_conda.__file__).parent


def make_torch(version: str = "2.13.0+cpu", **facts: Any) -> TorchInstall:
    minor = tuple(int(part) for part in version.split(".")[:2])
    defaults: dict[str, Any] = {
        "version": version,
        "version_tuple": minor,
        "cuda": None,
        "hip": None,
        "cxx11_abi": 1 if minor >= (2, 7) else 0,
        "root": Path("/nowhere/torch"),
        "lib_dir": Path("/nowhere/torch/lib"),
        "include_dir": Path("/nowhere/torch/include"),
    }
    return TorchInstall(**{**defaults, **facts})


def make_runtime(torch: TorchInstall | None = None, **facts: Any) -> Runtime:
    defaults: dict[str, Any] = {
        "system": "linux",
        "machine": "x86_64",
        "python": (3, 11, 7),
        "libc": ("glibc", (2, 36)),
        "libstdcxx": {"GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13)},
        "torch": torch if torch is not None else make_torch(),
        "package_version": __version__,
        "missing": {str(make_glue().path): (), str(make_aten().path): ()},
    }
    return Runtime(**{**defaults, **facts})


def make_binary(record: dict[str, Any], **facts: Any) -> BinaryRecord:
    import json

    built = BuildRecord.parse(json.dumps(record))
    kind, name = record["kind"], record["name"]
    defaults: dict[str, Any] = {
        "path": Path(f"/nowhere/lib/{kind}-{name}.so"),
        "kind": kind,
        "name": name,
        "record": built,
        "platform": "linux-x86_64",
        "needed": ("libtorch_cpu.so",),
        "floors": {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 21)},
        "cuda_archs": built.cuda_archs,
        "size": 100_000,
    }
    return BinaryRecord(**{**defaults, **facts})


def make_glue(**facts: Any) -> BinaryRecord:
    return make_binary(GLUE_RECORD, **{"torch_symbols": ("aoti_torch_get_dim",), **facts})


def make_aten(
    minor: tuple[int, int] = (2, 8), abi: int = 1, built: str | None = None, **facts: Any
) -> BinaryRecord:
    record = {
        **GLUE_RECORD,
        "name": f"aten{minor[0]}{minor[1]}-abi{abi}",
        "lane": "aten",
        "torch_target": f"{minor[0]}.{minor[1]}",
        "torch_built": built or f"{minor[0]}.{minor[1]}.0",
        "cxx11_abi": abi,
    }
    defaults = {"layout": layouts.layout_of(minor), "cxx11_abi": abi}
    return make_binary(record, **{**defaults, **facts})


def make_cuda(
    cuda: str = "13.0", archs: tuple[str, ...] = ("sm_90", "compute_90"), **facts: Any
) -> BinaryRecord:
    record = {
        **KERNELS_RECORD,
        "name": f"cuda{cuda.partition('.')[0]}",
        "device": "cuda",
        "cuda": cuda,
        "cuda_archs": list(archs),
    }
    return make_binary(record, **{"needed": ("libc.so.6",), **facts})


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
        layout=layouts.layout_of((2, 9)),
        undefined=["aoti_torch_get_dim", "_ZN2at6Tensor3addEv", "PyObject_Call", "strlen"],
        weak=["aoti_torch_get_current_cuda_stream"],
        defined=["lltm_build_record", "PyInit_sample"],
    )


@pytest.fixture
def package_copy(tmp_path: Path) -> Callable[..., Path]:
    """Copies the Python files (and binaries) of the package under test into a folder of its own."""

    def copy(*, binaries: bool = True, sources: bool = True) -> Path:
        target = tmp_path / "site" / "lltm_conda"
        left_out = [*(() if binaries else ("lib",)), *(() if sources else ("csrc",))]
        ignore = shutil.ignore_patterns("__pycache__", *left_out)
        shutil.copytree(PACKAGE, target, ignore=ignore)
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
