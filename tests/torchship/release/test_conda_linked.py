"""A torch that lies unpacked already, as a conda package: chosen, installed, imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from machines import machine
from shared_objects import fake_torch

from torchship.release import ReleaseError
from torchship.release.steps.conda import commands as conda_commands
from torchship.release.steps.conda.stubs import Stub, link_torch, write_channel

pytest.importorskip("rattler")
pytest.importorskip("rattler_build")

from torchship.release.steps.conda.worker import solve

PYTHON = "3.11"


class Channels:
    """A linked channel, and one with a Python that has no files."""

    def __init__(self, folder: Path, version: str, cuda: str | None) -> None:
        site = folder / "env" / "lib" / f"python{PYTHON}" / "site-packages"
        package = fake_torch(site, version, cuda=cuda)
        (package / "__init__.py").write_text("from .version import __version__\n")
        linked = link_torch(folder / "linked", folder / "env", PYTHON)
        python = [Stub("python", f"{PYTHON}.9", "h0_0")]
        self.urls = [c.as_uri() for c in (linked, write_channel(folder / "base", python))]
        self.folder = folder

    def chosen(self, spec: str, driver: str | None) -> dict[str, str]:
        solution = solve(
            self.urls,
            [spec],
            machine(driver),
            subdir="linux-64",
            cache=self.folder / "repodata",
        )
        return {name: record.file_name for name, record in solution.items()}


@pytest.fixture
def cuda_build(tmp_path) -> Channels:
    return Channels(tmp_path, "2.9.1+cu128", "12.8")


def test_a_cuda_build_brings_its_cuda_version_and_needs_a_driver(cuda_build) -> None:
    solution = cuda_build.chosen("pytorch 2.9.* cuda*", "12.0")
    assert solution["pytorch"] == "pytorch-2.9.1-cuda128_linked_py311_0.tar.bz2"
    assert solution["cuda-version"].startswith("cuda-version-12.8-")
    for driver in (None, "11.8"):
        with pytest.raises(ReleaseError, match="cuda"):
            cuda_build.chosen("pytorch 2.9.* cuda*", driver)


def test_a_cuda_build_that_stands_in_for_a_cpu_one_says_so(cuda_build) -> None:
    solution = cuda_build.chosen("pytorch * cpu*", None)
    assert solution["pytorch"] == "pytorch-2.9.1-cpu_linked_cu128_py311_0.tar.bz2"
    assert "cuda-version" not in solution


def test_a_cpu_build_is_none_with_cuda(tmp_path) -> None:
    channels = Channels(tmp_path, "2.13.0+cpu", None)
    solution = channels.chosen("pytorch", "13.0")
    assert solution["pytorch"] == "pytorch-2.13.0-cpu_linked_py311_0.tar.bz2"
    with pytest.raises(ReleaseError, match="No candidates"):
        channels.chosen("pytorch * cuda*", "13.0")


def test_it_serves_the_python_of_its_environment_alone(cuda_build) -> None:
    other = write_channel(cuda_build.folder / "other", [Stub("python", "3.12.9", "h0_0")])
    with pytest.raises(ReleaseError, match="python"):
        solve(
            [cuda_build.urls[0], other.as_uri()],
            ["pytorch * cpu*"],
            machine(),
            subdir="linux-64",
            cache=cuda_build.folder / "repodata",
        )


def test_installed_it_is_the_torch_of_the_environment(cuda_build, conda_worker) -> None:
    prefix = cuda_build.folder / "prefix"
    command = conda_commands.install(prefix, ["pytorch * cuda*"], channels=cuda_build.urls)
    conda_worker(command, {"CONDA_OVERRIDE_CUDA": "12.0"})
    site = prefix / "lib" / f"python{PYTHON}" / "site-packages"
    code = f"import site; site.addsitedir({str(site)!r}); import torch; print(torch.__file__)"
    # Without the Python's own site-packages, where another torch may lie.
    process = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True)
    env = cuda_build.folder / "env"
    assert process.stdout.strip() == str(env / site.relative_to(prefix) / "torch" / "__init__.py")
