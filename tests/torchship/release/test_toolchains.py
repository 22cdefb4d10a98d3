"""Which compiler makes CUDA kernels on a machine, and the adapter that clang needs."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from torchship.builder import CudaToolkit
from torchship.release.plan.machine import Compilers
from torchship.release.steps.compile.toolchains import ADAPTER, Toolchain, choose

DEBIAN = frozenset({"clang-19"})


@dataclass(frozen=True)
class Nvcc(CudaToolkit):
    """A toolkit that is not there; it compiles for what it says."""

    numbers: tuple[str, ...] = ()

    def architectures(self) -> frozenset[str]:
        return frozenset(self.numbers)


EVERY = ("70", "75", "80", "86", "90", "100", "120")
NVCC13 = Nvcc("/cuda-13.0/bin/nvcc", (13, 0), (), EVERY[1:])
NVCC132 = Nvcc("/cuda-13.2/bin/nvcc", (13, 2), (), EVERY[1:])
NVCC12 = Nvcc("/cuda-12.8/bin/nvcc", (12, 8), (), EVERY)
NVCC129 = Nvcc("/cuda-12.9/bin/nvcc", (12, 9), (), EVERY)
NVCC124 = Nvcc("/cuda-12.4/bin/nvcc", (12, 4), (), EVERY[:5])


def chosen(matrix, kernels: str, **compilers: object) -> Toolchain | str:
    return choose(matrix.kernels[kernels], matrix, Compilers(**compilers))


@pytest.mark.parametrize(
    ("kernels", "nvccs", "version"),
    [
        ("cuda12", (NVCC12, NVCC13), "12.8"),
        ("cuda12", (NVCC13, NVCC129), "12.9"),
        ("cuda12", (NVCC129, NVCC12), "12.8"),
        ("cuda12", (NVCC124, NVCC129), "12.9"),
        ("cuda13", (NVCC12, NVCC132), "13.2"),
        ("cuda13", (NVCC132, NVCC13), "13.0"),
    ],
)
def test_an_nvcc_of_the_major_comes_first(matrix, kernels, nvccs, version) -> None:
    toolchain = chosen(matrix, kernels, nvccs=nvccs, debian=DEBIAN)
    assert (
        isinstance(toolchain, Toolchain)
        and toolchain.nvcc
        and toolchain.nvcc.version_text == version
    )


def test_an_nvcc_that_lacks_architectures_is_passed_over(matrix) -> None:
    toolchain = chosen(matrix, "cuda12", nvccs=(NVCC124, NVCC13), debian=DEBIAN)
    assert isinstance(toolchain, Toolchain) and toolchain.nvcc is None and toolchain.clang == ""


def test_an_installed_clang_comes_before_the_package(matrix) -> None:
    clangs = ((14, "/usr/bin/clang++"), (20, "/usr/bin/clang++-20"))
    toolchain = chosen(matrix, "cuda12", clangs=clangs, debian=DEBIAN)
    assert isinstance(toolchain, Toolchain) and toolchain.clang == "/usr/bin/clang++-20"


def test_without_nvcc_13_the_wheels_make_one(matrix) -> None:
    toolchain = chosen(matrix, "cuda13")
    assert toolchain == Toolchain("13.0") and toolchain.name == "cuda-13.0"


def test_a_clang_that_is_too_old_does_not_count(matrix) -> None:
    reason = chosen(matrix, "cuda12", clangs=((18, "/usr/bin/clang++-18"),))
    assert isinstance(reason, str) and "no clang++ 19 or newer" in reason


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    """The adapter beside programs that write down what they are called with."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "fatbinary").write_text(ADAPTER.read_text(encoding="utf-8"), encoding="utf-8")
    for name in ("fatbinary.nvidia", "ptxas"):
        script = '#!/bin/sh\nfor word in "$@"; do echo "$word"; done >"$0.said"\n'
        (folder / name).write_text(script, encoding="utf-8")
    for path in folder.iterdir():
        path.chmod(0o755)
    return folder


def adapt(folder: Path, *arguments: str) -> list[str]:
    subprocess.run([str(folder / "fatbinary"), *arguments], check=True)
    return (folder / "fatbinary.nvidia.said").read_text(encoding="utf-8").splitlines()


def test_the_adapter_translates_images(bin_folder: Path) -> None:
    arguments = adapt(
        bin_folder,
        *("-64", "--create", "/tmp/a b.fatbin"),
        "--image=profile=sm_90,file=/tmp/a b.o",
        "-image=profile=compute_90,file=/tmp/x.s",
    )
    assert arguments == [
        "--compress-mode=none",
        *("-64", "--create", "/tmp/a b.fatbin"),
        "--image3=kind=elf,sm=90,file=/tmp/a b.o",
        "--image3=kind=ptx,sm=90,file=/tmp/x.s",
    ]


def test_the_adapter_assembles_what_clang_does_not_know(bin_folder: Path) -> None:
    image = "--image=profile=compute_90,file=/tmp/x.s"
    arguments = adapt(bin_folder, image, "--assemble=sm_120", "--drop=compute_90")
    assert [word.partition(",file=")[0] for word in arguments[1:]] == ["--image3=kind=elf,sm=120"]
    ptxas = (bin_folder / "ptxas.said").read_text(encoding="utf-8").split()
    assert ptxas[:3] == ["-O3", "-arch=sm_120", "/tmp/x.s"]


def test_the_adapter_needs_ptx_to_assemble(bin_folder: Path) -> None:
    command = [str(bin_folder / "fatbinary"), "--assemble=sm_120"]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 1 and "needs PTX, got none" in process.stderr
