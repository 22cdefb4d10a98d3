"""What the engine gives to authors of other extensions: the header, its two lines, the audit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hostile_files import overlapping_needs
from processes import Forks
from shared_objects import GLUE_RECORD, shared_object
from small_client import PROJECT

from torchship.doctor import judge_file
from torchship.doctor.command import main as doctor
from torchship.doctor.wheels import audit
from torchship.extension import FOLDER
from torchship.judge import find_torch, probe_runtime
from torchship.judge.reading import layouts
from torchship.judge.reading.binary import read_binary
from torchship.judge.records import REJECTED, UNKNOWN, Runtime, Verdict
from torchship.judge.rules.cuda import binary_cuda

REPO = Path(__file__).resolve().parents[3]

SETUP = """
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension
from torchship.extension import recorded
setup(
    name="their-package", version="1.2", packages=["theirs"], install_requires=["torch>=2.13"],
    ext_modules=[recorded(CppExtension("theirs._C", ["theirs.cpp"]), "their-package", "1.2")],
    cmdclass={"build_ext": BuildExtension.with_options(use_ninja=False)},
)
"""
ATEN = """
#include <torch_extension.h>
#include <torch/library.h>
at::Tensor same(const at::Tensor& x) { return x; }
TORCH_LIBRARY(theirs_aten, library) { library.def("same(Tensor x) -> Tensor", &same); }
"""
CMAKE = """
cmake_minimum_required(VERSION 3.23)
project(theirs LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(TorchExtension REQUIRED)
add_library(theirs SHARED theirs.cpp)
target_include_directories(theirs PRIVATE ${TORCH}/include)
target_compile_definitions(theirs PRIVATE TORCH_TARGET_VERSION=0x020a000000000000)
target_link_libraries(theirs PRIVATE -Wl,--no-as-needed ${TORCH}/lib/libtorch_cpu.so)
torch_extension(theirs their-package 1.2)
"""
STABLE = """
#include <torch_extension.h>
#include <torch/csrc/stable/library.h>
STABLE_TORCH_LIBRARY(theirs_stable, library) { library.def("same(Tensor x) -> Tensor"); }
"""


def run(*command: str | Path, cwd: Path, **variables: str) -> None:
    env = {**os.environ, "PYTHONPATH": str(REPO), **variables}
    process = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=env, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-4000:]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel that is not ours, built with setuptools and torch's CppExtension: ATen's headers take
    most of the time of these tests."""
    folder = tmp_path_factory.mktemp("setuptools")
    (folder / "theirs").mkdir()
    (folder / "theirs" / "__init__.py").touch()
    (folder / "theirs.cpp").write_text(ATEN)
    (folder / "setup.py").write_text(SETUP)
    command = (sys.executable, "setup.py", "-q", "bdist_wheel")
    run(*command, cwd=folder, CFLAGS="-O0 -g0")  # behind Python's own flags
    return next((folder / "dist").glob("*.whl"))


@pytest.fixture(scope="module")
def aten(wheel: Path) -> Path:
    with zipfile.ZipFile(wheel) as file:
        file.extractall(wheel.parent / "unpacked")
    return next((wheel.parent / "unpacked").rglob("_C*.so"))


@pytest.fixture(scope="module")
def stable(tmp_path_factory: pytest.TempPathFactory, torch_root: Path) -> Path:
    """A library that is not ours, on the stable ABI, built with CMake."""
    cmake = shutil.which("cmake")
    if cmake is None or find_torch().version_tuple < (2, 10):
        pytest.skip("needs cmake and torch >= 2.10")
    folder = tmp_path_factory.mktemp("cmake")
    (folder / "CMakeLists.txt").write_text(CMAKE)
    (folder / "theirs.cpp").write_text(STABLE)
    run(cmake, "-B", "b", f"-DTORCH={torch_root}", f"-DTorchExtension_DIR={FOLDER}", cwd=folder)
    run(cmake, "--build", "b", cwd=folder)
    return folder / "b" / "libtheirs.so"


def other(version: str, minor: tuple[int, int]) -> Runtime:
    host = probe_runtime(gpu=False)
    assert host.torch is not None
    return host._replace(torch=host.torch._replace(version=version, version_tuple=minor))


def status(verdict: Verdict, dimension: str) -> str | None:
    return next((f.status for f in verdict.findings if f.dimension == dimension), None)


@pytest.mark.slow
def test_the_line_for_setuptools_records_package_torch_and_layout(aten: Path) -> None:
    binary = read_binary(aten)
    torch = find_torch()
    assert binary.problems == ()
    record = binary.record
    assert record is not None
    assert (record.package, record.version, record.lane) == ("their-package", "1.2", "aten")
    assert (record.kind, record.torch_target) == ("extension", torch.version_tuple)
    assert record.cxx11_abi == torch.cxx11_abi
    assert binary.layout == layouts.LAYOUTS[torch.version_tuple]


@pytest.mark.slow
def test_the_line_for_cmake_records_the_target_of_the_stable_abi(stable: Path) -> None:
    record = read_binary(stable).record
    assert record is not None
    assert (record.package, record.lane, record.torch_target) == (
        "their-package",
        "stable",
        (2, 10),
    )
    assert read_binary(stable).layout is None


@pytest.mark.parametrize("name", [pytest.param("aten", marks=pytest.mark.slow), "stable"])
def test_a_recorded_extension_is_accepted_and_works(
    name: str, request: pytest.FixtureRequest, forked: Forks
) -> None:
    path: Path = request.getfixturevalue(name)
    verdict = judge_file(path, probe_runtime(gpu=False))
    assert verdict.accepted, verdict.cause
    code = f"import torch; torch.ops.load_library({str(path)!r}); torch.ops.theirs_{name}.same"
    process = forked.run(code, cwd=path.parent)
    assert process.returncode == 0, process.stderr


@pytest.mark.slow
def test_a_recorded_extension_is_judged_by_its_record_as_ours_is(aten: Path, stable: Path) -> None:
    assert status(judge_file(aten, other("2.8.0", (2, 8))), "torch version") == REJECTED
    assert status(judge_file(aten, other("2.99.0", (2, 99))), "torch version") == UNKNOWN
    assert status(judge_file(stable, other("2.9.0", (2, 9))), "torch version") == REJECTED


@pytest.mark.slow
def test_the_doctor_of_a_project_judges_a_recorded_extension_too(
    aten: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert doctor(PROJECT, ["--json", str(aten)]) == 0
    assert json.loads(capsys.readouterr().out)["extensions"][0]["state"] == "nothing found"


@pytest.mark.slow
def test_the_glue_of_another_client_of_the_engine_is_no_part_of_ours(
    tmp_path: Path, torch_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = shared_object(
        tmp_path / "glue-stable210.so",
        record={**GLUE_RECORD, "package": "other-op", "version": "7.0"},
        undefined=["aoti_torch_get_dim"],
        libraries=[torch_root / "lib" / "libtorch_cpu.so"],
    )
    assert doctor(PROJECT, ["--json", str(path)]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("name", ["torch_extension.h", "TorchExtensionConfig.cmake"])
def test_what_goes_into_their_build_is_neutral_in_name(name: str) -> None:
    content = (FOLDER / name).read_text().lower()
    assert PROJECT.distribution not in content
    assert "project_" not in content


@pytest.mark.slow
def test_the_audit_of_a_real_wheel_says_whom_it_serves(
    wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert doctor(PROJECT, ["--json", "--audit", str(wheel)]) == 0
    (row,) = json.loads(capsys.readouterr().out)["serves"]
    minor = ".".join(map(str, find_torch().version_tuple))
    assert minor in row["torch"]
    assert "2.8" in row["refused"]
    assert f"cpython-3{sys.version_info[1]}" in row["python"][0] or row["python"] == ["any"]
    assert row["cuda"] == row["gpus"] == ["none"]
    assert row["glibc"][0].startswith("CXXABI") or row["glibc"][0].startswith("GLIBC")


def made_wheel(folder: Path, requires: str, tag: str = "py3-none-manylinux_2_28_x86_64") -> Path:
    """A wheel of an object on the stable ABI of 2.10."""
    path = shared_object(
        folder / "_C.so",
        record={**GLUE_RECORD, "kind": "extension", "package": "theirs", "name": ""},
        undefined=["aoti_torch_get_dim"],
    )
    wheel = folder / f"theirs-1.0-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.write(path, "theirs/_C.so")
        info = "theirs-1.0.dist-info"
        file.writestr(f"{info}/METADATA", f"Name: theirs\nVersion: 1.0\n{requires}\n\n")
        file.writestr(f"{info}/RECORD", "theirs/_C.so,sha256=x,1\n")
    return wheel


@pytest.mark.parametrize(
    ("requires", "refused"),
    [
        ("", "2.4, 2.5, 2.6, 2.7, 2.8, 2.9"),
        ("Requires-Dist: torch>=2.8", "2.8, 2.9"),
        ("Requires-Dist: torch (<2.10.1,>=2.9)", "2.9"),
        ("Requires-Dist: torch==2.9.1", "2.9"),
        ("Requires-Dist: torch~=2.9.0", "2.9"),
        ("Requires-Dist: torch~=2.8", "2.8, 2.9"),
        ("Requires-Dist: torch~=2.10", None),
        ("Requires-Dist: torch>=2.10", None),
        ("Requires-Dist: torch<2.12,>=2.10", None),
    ],
)
def test_a_requirement_that_admits_more_than_the_objects_is_a_problem(
    requires: str, refused: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = doctor(PROJECT, ["--audit", str(made_wheel(tmp_path, requires))])
    out = " ".join(capsys.readouterr().out.split())
    assert code == (0 if refused is None else 1)
    assert refused is None or f"does not work with torch {refused}, which" in out
    assert ("keeps what the wheel's name" in out) == (refused is None)


def test_a_thin_wheel_that_admits_torches_of_other_variants_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The thin wheels have the requirement of the wheel that joins them."""
    record = {**GLUE_RECORD, "name": "stable210", "torch_target": "2.10"}
    glue = shared_object(tmp_path / "glue-stable210.so", record=record)
    wheel = tmp_path / "tiny_client-0.1.0+stable.cpu-py3-none-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.write(glue, f"tiny_client/lib/{glue.name}")
        info = "tiny_client-0.1.0.dist-info"
        file.writestr(
            f"{info}/METADATA", "Name: tiny-client\nVersion: 0.1.0\nRequires-Dist: torch>=2.4\n\n"
        )
        file.writestr(f"{info}/RECORD", f"tiny_client/lib/{glue.name},sha256=x,1\n")
    assert doctor(PROJECT, ["--audit", str(wheel)]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "does not work with torch 2.4, 2.5, 2.6, 2.7, 2.8, 2.9, which" in out


def wheel_with(folder: Path, *objects: str) -> Path:
    """A wheel of `theirs` that bundles a small object under each of these names."""
    path = shared_object(folder / "small.so")
    wheel = folder / "theirs-1.0-py3-none-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        for name in objects:
            file.write(path, name)
        file.writestr("theirs-1.0.dist-info/METADATA", "Name: theirs\nVersion: 1.0\n\n")
    return wheel


@pytest.mark.parametrize(
    ("library", "says"),
    [
        ("theirs.libs/libcuda-0a1b2c3d.so.1", "is a part of the NVIDIA driver"),
        ("theirs/libcuda.so.1", "--exclude libcuda.so.1)"),
        ("theirs.libs/libnvidia-ml-0a1b2c3d.so.1", "is a part of the NVIDIA driver"),
        ("theirs.libs/libc10-0a1b2c3d.so", "is a copy of torch's libc10.so"),
        ("theirs/libtorch_cpu.so", "is a copy of torch's libtorch_cpu.so"),
        ("theirs.libs/libgomp-0a1b2c3d.so.1.0.0", None),
        ("theirs/libtorch_theirs.so", None),
    ],
)
def test_a_library_that_must_not_be_bundled_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], library: str, says: str | None
) -> None:
    code = doctor(PROJECT, ["--audit", str(wheel_with(tmp_path, library))])
    out = " ".join(capsys.readouterr().out.split())
    assert code == (0 if says is None else 1)
    assert says is None or says in out


def test_a_library_that_auditwheel_renamed_tells_its_cuda(tmp_path: Path) -> None:
    library = "libcudart-0a1b2c3d.so.12.8.90"
    stub = shared_object(tmp_path / library, soname=library)
    binary = read_binary(shared_object(tmp_path / "_C.so", libraries=[stub]))
    assert binary_cuda(binary) == (12, 8, 90)


def test_of_glues_for_several_torches_one_that_works_is_enough() -> None:
    stable = service(object="theirs/lib/glue-stable210.so", refused=("2.8", "2.9"))
    older = service(object="theirs/lib/glue-aten29-abi1.so", refused=("2.8", "2.10"))
    (problem,) = audit._broken_requirement([stable, older], [">=2.8,<2.11"])
    assert "do not work with torch 2.8, which" in problem


def service(**facts: object) -> audit.Service:
    plain = audit.Service(
        object="_C.so",
        torch=("2.13",),
        python="any",
        cuda="none",
        gpus=("none",),
        floors={"GLIBC": (2, 28)},
        platform="linux-x86_64",
    )
    return plain._replace(**facts)


@pytest.mark.parametrize(
    ("facts", "tag", "says"),
    [
        ({}, "py3-none-manylinux_2_28_x86_64", None),
        ({}, "py3-none-manylinux_2_27_x86_64", "needs glibc 2.28"),
        ({}, "py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64", "needs glibc 2.28"),
        ({}, "py3-none-manylinux_2_28_aarch64", "is built for linux-x86_64"),
        ({"python": "(cpython-311)"}, "cp311-cp311-manylinux_2_28_x86_64", None),
        ({"python": "(cpython-311)"}, "py3-none-manylinux_2_28_x86_64", "is for cp311 alone"),
        ({"python": "(cpython-313t)"}, "cp313-cp313-manylinux_2_28_x86_64", "for cp313t alone"),
        ({"problems": ("cut",)}, "py3-none-manylinux_2_28_x86_64", "cut"),
        ({}, "py3-none-musllinux_1_2_x86_64", "promises musl"),
        ({"is_for_musl": True, "floors": {}}, "py3-none-musllinux_1_2_x86_64", None),
        ({"is_for_musl": True}, "py3-none-manylinux_2_28_x86_64", "promises glibc"),
    ],
)
def test_what_a_wheels_name_promises_is_held_against_its_objects(
    facts: dict[str, object], tag: str, says: str | None
) -> None:
    problems = list(audit._broken(service(**facts), f"theirs-1.0-{tag}.whl"))
    assert len(problems) == (0 if says is None else len(problems) or 1)
    assert says is None or says in problems[0]


def test_an_object_that_the_audit_does_not_read_is_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = wheel_with(tmp_path)
    path = overlapping_needs(1000, 16_000).write(tmp_path / "large.so")
    with zipfile.ZipFile(wheel, "a") as file:
        file.write(path, "theirs/_C.so")
    assert doctor(PROJECT, ["--audit", str(wheel)]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert (
        "theirs/_C.so: the audit did not read it: names of libraries and versions that lie" in out
    )


def test_what_is_no_wheel_is_bad_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.whl").write_text("no")
    assert doctor(PROJECT, ["--audit", str(tmp_path / "x.whl")]) == 2
    assert doctor(PROJECT, ["--audit", str(tmp_path / "gone.whl")]) == 2
    assert "is not a wheel" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("machine", "platform"),
    [("__x86_64__", "linux-x86_64"), ("__aarch64__", "linux-aarch64"), ("__riscv", None)],
)
def test_the_header_says_no_platform_but_its_own(tmp_path: Path, machine, platform) -> None:
    for name in ("array", "cstddef", "torch/headeronly/version.h"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    header = REPO / "torchship" / "include" / "torch_extension.h"
    macros = ["-U__x86_64__", "-U__aarch64__", f"-D{machine}", "-DTORCH_TARGET_VERSION=1"]
    macros += ["-DTORCH_EXTENSION_PACKAGE=x", "-DTORCH_EXTENSION_VERSION=1"]
    command = ["g++", "-E", "-P", "-nostdinc", f"-I{tmp_path}", *macros, "-xc++", str(header)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert '"lane' in result.stdout.replace("\\", ""), result.stderr
    found = [name for name in ("linux-x86_64", "linux-aarch64") if name in result.stdout]
    assert found == ([platform] if platform else [])
