"""CMake: the library, the C++ program without Python, and a project that finds the library."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from build_places import Ran, environment, quick_nvcc, run

from lltm_conda._version import __version__
from lltm_conda.engine.builder import (
    BuildError,
    CudaToolkit,
    find_cuda_toolkit,
    linked_sources,
    source_root,
)
from lltm_conda.engine.builder.request import FIRST_STABLE
from lltm_conda.engine.builder.sources import INCLUDE
from lltm_conda.engine.judge import find_torch

PREFIX = torch.utils.cmake_prefix_path
QUICK = ("-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O0", "-DCMAKE_CUDA_FLAGS_DEBUG=-O0")
CONSUMER = {
    "CMakeLists.txt": """
cmake_minimum_required(VERSION 3.23)
project(consumer LANGUAGES CXX)
find_package(lltm 0.1 REQUIRED)
add_executable(consumer main.cpp)
target_link_libraries(consumer PRIVATE lltm::lltm)
""",
    "main.cpp": """
#include <cstdio>
#if !__has_include(<lltm/lltm.h>) || !__has_include(<ATen/core/Tensor.h>)
#error "lltm::lltm does not bring its header and torch's"
#endif
extern "C" const char* lltm_version(void);
int main() { std::puts(lltm_version()); }
""",
}


def require_cmake() -> str:
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("no cmake on PATH: pip install cmake, or pip install -r requirements/dev.txt")
    return cmake


def toolkit() -> CudaToolkit | None:
    try:
        return find_cuda_toolkit(os.environ)
    except BuildError:
        return None


def cuda_options() -> list[str]:
    cuda = toolkit()
    assert cuda is not None
    return ["-DLLTM_CUDA=ON", f"-DCMAKE_CUDA_COMPILER={cuda.nvcc}"]


def has_gpu() -> bool:
    return toolkit() is not None and torch.cuda.is_available()


@pytest.fixture(scope="module")
def build(source_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything built: C++ alone, or C++ and CUDA in one build where both can run."""
    return built(source_tree, tmp_path_factory.mktemp("cmake") / "build", cuda=has_gpu())


def configure(source: Path, folder: Path, *options: str, env: dict[str, str] | None = None) -> Ran:
    command = (require_cmake(), "-S", source, "-B", folder, *options)
    return run(*command, env=env)


def compile_in(folder: Path, env: dict[str, str] | None = None) -> Ran:
    command = (require_cmake(), "--build", folder, "-j", os.environ.get("MAX_JOBS", "2"))
    return run(*command, env=env)


def configured(source_tree: Path, folder: Path, *, cuda: bool, **variables: str) -> dict[str, str]:
    """Configures a build; returns the environment of it."""
    options = cuda_options() if cuda else ["-DLLTM_CUDA=OFF"]
    env = environment(TORCH_CUDA_ARCH_LIST="9.0", **variables)
    options += ["-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", f"-DCMAKE_PREFIX_PATH={PREFIX}", *QUICK]
    options += [f"-DCMAKE_INSTALL_PREFIX={folder.parent / 'installed'}"]
    configure(source_tree, folder, *options, env=env).good()
    return env


def built(source_tree: Path, folder: Path, *, cuda: bool, **variables: str) -> Path:
    env = configured(source_tree, folder, cuda=cuda, **variables)
    compile_in(folder, env=env).good()
    return folder


@pytest.mark.rehearsal
def test_program_without_python_agrees_with_aten(build: Path) -> None:
    command = ("ctest", "--test-dir", build, "--output-on-failure", "--no-tests=error")
    assert "100% tests passed" in run(*command, "--verbose").good()


@pytest.mark.cuda
def test_program_without_python_agrees_with_aten_on_the_gpu(build: Path) -> None:
    assert "all checks passed" in run(build / "examples" / "cpp" / "lltm_example", "cuda").good()


@pytest.mark.rehearsal
def test_program_agrees_through_the_aten_door(source_tree: Path, tmp_path: Path) -> None:
    # There the dispatcher compares the C++ API's signatures with the kernels'.
    options = ("-DLLTM_DOOR=aten", "-DLLTM_CUDA=OFF", *QUICK, f"-DCMAKE_PREFIX_PATH={PREFIX}")
    configure(source_tree, tmp_path, *options).good()
    compile_in(tmp_path).good()
    run("ctest", "--test-dir", tmp_path, "--output-on-failure", "--no-tests=error").good()


@pytest.mark.rehearsal
def test_program_needs_no_python(build: Path) -> None:
    listed = run("ldd", build / "examples" / "cpp" / "lltm_example").good()
    assert "liblltm.so" in listed
    assert "python" not in listed.replace(str(Path(torch.__file__).parent), "")


@pytest.mark.slow
def test_cmake_compiles_what_the_builder_names(source_tree: Path, tmp_path: Path) -> None:
    """One source of each folder is read as CMake has it compiled, as all of a folder have the same
    flags; before a release, the objects of all are made."""
    configured(source_tree, tmp_path / "build", cuda=False)
    check_sources(tmp_path / "build", source_tree, cuda=False)
    entries = json.loads((tmp_path / "build" / "compile_commands.json").read_text())
    for entry in {Path(entry["file"]).parent: entry for entry in entries}.values():
        command = (*shlex.split(entry["command"]), "-fsyntax-only")
        run(*command, cwd=Path(entry["directory"])).good()


@pytest.mark.rehearsal
@pytest.mark.skipif(toolkit() is None, reason="no nvcc: install a CUDA toolkit, or set CUDA_HOME")
def test_cmake_compiles_the_cuda_kernels_without_a_gpu(source_tree: Path, tmp_path: Path) -> None:
    cuda = toolkit()
    assert cuda is not None
    build = built(source_tree, tmp_path / "build", cuda=True, **quick_nvcc(cuda.version))
    check_sources(build, source_tree, cuda=True)


def check_sources(build: Path, source_tree: Path, *, cuda: bool) -> None:
    commands = json.loads((build / "compile_commands.json").read_text())
    homes = (source_tree / "csrc", source_tree / "torchship" / "include")
    compiled = {Path(entry["file"]) for entry in commands}
    lane = "stable" if find_torch().version_tuple >= FIRST_STABLE else "aten"
    sources = linked_sources(lane, cuda=cuda)
    assert relative_paths(compiled, homes) == relative_paths(sources, (source_root(), INCLUDE))


def relative_paths(files: Iterable[Path], homes: tuple[Path, Path]) -> set[Path]:
    """The path of each file below the one of these folders that holds it, if one does."""
    return {file.relative_to(home) for file in files for home in homes if file.is_relative_to(home)}


def consume(folder: Path, *prefixes: str | Path) -> str:
    """What a project prints that finds lltm, and torch through it, below `prefixes`."""
    for name, content in CONSUMER.items():
        (folder / name).write_text(content)
    paths = f"-DCMAKE_PREFIX_PATH={';'.join(map(str, prefixes))}"
    configure(folder, folder / "b", paths).good()
    compile_in(folder / "b").good()
    return run(folder / "b" / "consumer").good()


@pytest.mark.rehearsal
@pytest.mark.parametrize("torch_prefix", [[PREFIX], []], ids=["torch named", "torch of the build"])
def test_another_project_finds_the_installed_library(
    build: Path, tmp_path: Path, torch_prefix: list[str]
) -> None:
    run(require_cmake(), "--install", build).good()
    assert consume(tmp_path, build.parent / "installed", *torch_prefix) == f"{__version__}\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "torch.utils.cmake_prefix_path"),
        (
            [f"-DCMAKE_PREFIX_PATH={PREFIX}", "-DLLTM_DOOR=back"],
            "must be AUTO, stable or aten, got back",
        ),
    ],
    ids=["no torch", "no such door"],
)
def test_cmake_says_what_is_wrong(
    source_tree: Path, tmp_path: Path, options: list[str], message: str
) -> None:
    ran = configure(source_tree, tmp_path, "-DLLTM_CUDA=OFF", *options)
    assert ran.code != 0
    assert message in " ".join(ran.output.split())


@pytest.mark.skipif(toolkit() is None, reason="needs nvcc")
def test_cmake_names_a_bad_architecture(source_tree: Path, tmp_path: Path) -> None:
    options = (f"-DCMAKE_PREFIX_PATH={PREFIX}", *cuda_options())
    env = environment(TORCH_CUDA_ARCH_LIST="9.0;Pentium")
    ran = configure(source_tree, tmp_path, *options, env=env)
    assert ran.code != 0
    assert "'Pentium' is not a CUDA architecture" in " ".join(ran.output.split())
