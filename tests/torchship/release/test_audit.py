"""The audit: each check of them stops the binary that it is there to stop."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from shared_objects import ERROR_NEW, ERROR_OLD, GLUE_RECORD, KERNELS_RECORD, shared_object

from torchship.judge.reading.binary import read_binary
from torchship.release.matrix.cells import all_cells
from torchship.release.steps.compile.audit import object_problems, too_new

STABLE, ATEN = "stable210-cpu", "aten24-abi0-cpu"
ATEN_RECORD = {**GLUE_RECORD, "name": "aten24-abi0", "lane": "aten", "cxx11_abi": 0}
CXX = "_ZN2at4_ops10zeros_like4callERKNS_6TensorE"
RPATH = ["-Wl,-rpath,/builder/lib"]

# (the cell, the file, how it is made, what must be said)
BAD = {
    "no record": (STABLE, "glue-stable210.so", {}, "carries no build record"),
    "another glue": (
        STABLE,
        "glue-stable211.so",
        {"record": {**GLUE_RECORD, "name": "stable211", "torch_target": "2.11"}},
        "its record says stable211",
    ),
    "python": (
        STABLE,
        "glue-stable210.so",
        {"record": GLUE_RECORD, "undefined": ["PyObject_Call"]},
        "references Python (PyObject_Call)",
    ),
    "rpath": (
        STABLE,
        "kernels-cpu.so",
        {"record": KERNELS_RECORD, "flags": RPATH},
        "has the RPATH /builder/lib",
    ),
    "old rpath": (
        STABLE,
        "kernels-cpu.so",
        {"record": KERNELS_RECORD, "flags": [*RPATH, "-Wl,--disable-new-dtags"]},
        "has the RPATH /builder/lib",
    ),
    "undefined symbol": (
        STABLE,
        "kernels-cpu.so",
        {"record": KERNELS_RECORD, "undefined": ["nobody_has_this"]},
        "nobody_has_this",
    ),
    "torch's C++ in the stable lane": (
        STABLE,
        "glue-stable210.so",
        {"record": GLUE_RECORD, "undefined": [CXX]},
        "uses torch's C++ symbols",
    ),
    "another C++ ABI": (
        ATEN,
        "glue-aten24-abi0.so",
        {"record": ATEN_RECORD, "undefined": [ERROR_NEW]},
        "C++ ABI 1, the cell needs 0",
    ),
    "torch in kernels": (
        STABLE,
        "kernels-cpu.so",
        {"record": KERNELS_RECORD, "undefined": [ERROR_OLD]},
        "kernels must not know torch",
    ),
    "architectures that are not there": (
        STABLE,
        "kernels-cuda13.so",
        {"record": {**KERNELS_RECORD, "name": "cuda13", "cuda_archs": ["sm_90"]}},
        "sm_90",
    ),
}


def cell(matrix, name: str):
    return next(c for c in all_cells(matrix) if c.name == name)


@pytest.mark.parametrize("what", BAD)
def test_a_gate_stops(what, matrix, log, tmp_path) -> None:
    name, file, how, message = BAD[what]
    path = shared_object(tmp_path / file, **how)
    problems = object_problems(log, path, cell(matrix, name), folders=[tmp_path])
    assert any(message in problem for problem in problems), problems


def test_a_library_outside_the_allowed_ones_is_stopped(matrix, log, tmp_path) -> None:
    other = shared_object(tmp_path / "libother.so", defined=["other"], soname="libother.so.3")
    path = shared_object(tmp_path / "kernels-cpu.so", record=KERNELS_RECORD, libraries=[other])
    problems = object_problems(log, path, cell(matrix, STABLE), folders=[tmp_path])
    assert any("needs libother.so.3, which is outside" in problem for problem in problems), problems


def test_nothing_is_said_of_a_good_object(matrix, log, tmp_path) -> None:
    path = shared_object(tmp_path / "kernels-cpu.so", record=KERNELS_RECORD)
    assert object_problems(log, path, cell(matrix, STABLE), folders=[tmp_path]) == []


def test_the_binaries_of_a_build_pass(matrix, log, tiny_package) -> None:
    torch = pytest.importorskip("torch")
    lib = tiny_package / "lib"
    (glue,) = lib.glob("glue-*.so")
    cells = [c for c in all_cells(matrix) if c.glue == glue.stem.removeprefix("glue-")]
    for path in (glue, lib / "kernels-cpu.so"):
        assert (
            object_problems(log, path, cells[0], folders=[Path(torch.__file__).parent / "lib"])
            == []
        )


@pytest.mark.skipif(sys.version_info < (3, 11), reason="torch-abi-audit needs Python 3.11")
def test_torch_abi_audit_refuses_an_object_of_the_other_lane(matrix, log, tmp_path) -> None:
    if shutil.which("torch-abi-audit", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("torch-abi-audit is not installed")
    path = shared_object(tmp_path / "glue-stable210.so", record=GLUE_RECORD, undefined=[ERROR_NEW])
    problems = object_problems(log, path, cell(matrix, STABLE), folders=[tmp_path])
    assert any("torch-abi-audit refuses it" in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("floors", "message"),
    [
        ({"GLIBC": (2, 38)}, "needs GLIBC_2.38, manylinux_2_34_x86_64 has at most GLIBC_2.34"),
        ({"GLIBCXX": (3, 4, 30)}, "needs GLIBCXX_3.4.30"),
        ({"CXXABI": (1, 3, 15)}, "needs CXXABI_1.3.15"),
        ({"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13)}, None),
    ],
    ids=str,
)
def test_newer_symbols_than_the_policy_has_are_stopped(floors, message, tmp_path) -> None:
    record = read_binary(shared_object(tmp_path / "kernels-cpu.so", record=KERNELS_RECORD))
    problems = too_new(record._replace(floors=floors), "2.34", "x86_64")
    assert (message is None and problems == []) or message in problems[0]


def test_the_policy_of_the_matrix_is_one_that_auditwheel_knows(matrix, tmp_path) -> None:
    record = read_binary(shared_object(tmp_path / "kernels-cpu.so", record=KERNELS_RECORD))
    assert too_new(record, matrix.package.manylinux, "x86_64") == []
