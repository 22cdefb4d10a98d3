"""The op behind its two doors: the same source, so the same bits."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch
from processes import Forks

from lltm_conda.engine.builder import include_dirs, source_root
from lltm_conda.engine.builder.request import FIRST_STABLE
from lltm_conda.engine.judge.machine.torch_probe import find_torch

# ATen's headers take most of the time that its door takes.
each_door = pytest.mark.parametrize(
    "door", ["stable", pytest.param("aten", marks=pytest.mark.slow)]
)

COMPUTE = """
import sys, torch, lltm_conda
torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
results = {}
for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
    for batch, features, state in ((1, 3, 5), (16, 32, 128), (33, 17, 65), (300, 8, 64)):
        torch.manual_seed(batch)
        shapes = ((batch, features), (3 * state, state + features), (3 * state,))
        inputs = [torch.randn(s) for s in (*shapes, (batch, state), (batch, state))]
        inputs = [t.to(dtype).requires_grad_() for t in inputs]
        outputs = lltm_conda.lltm(*inputs)
        upstream = [torch.randn(t.shape).to(dtype) for t in outputs]
        gradients = torch.autograd.grad(outputs, inputs, upstream)
        key = f"{dtype} {batch} {features} {state}"
        results[key] = [t.detach() for t in (*outputs, *gradients)]
        if batch < 300:
            layer = lltm_conda.LLTMLayer(features, state, bidirectional=True).to(dtype)
            output, final = layer(inputs[0].detach().expand(5, batch, features))
            found = (output, *final)
            found += torch.autograd.grad(found, list(layer.parameters()), found)
            results[key + " layer"] = [t.detach() for t in found]
torch.save(results, PATH)
"""

LOADED = """
import json, lltm_conda
from lltm_conda import loader
print(json.dumps(loader.load().glue.name))
"""

# Stands in for the kernels, and asks the door for two threads as kernels do.
THREADS = """
import ctypes, json, threading, torch, lltm_conda
from lltm_conda import loader
from lltm_conda.engine.builder.sources import kernel_abi

class Execution(ctypes.Structure):
    Range = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    ParallelFor = ctypes.CFUNCTYPE(
        None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, Range, ctypes.c_void_p)
    _fields_ = [("device_index", ctypes.c_int32), ("stream", ctypes.c_void_p),
                ("parallel_for", ParallelFor)]

Kernel = ctypes.CFUNCTYPE(
    ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Execution))

Plan = ctypes.CFUNCTYPE(
    ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p,
    ctypes.c_void_p)

class Table(ctypes.Structure):
    _fields_ = [("abi", ctypes.c_uint32), ("byte_size", ctypes.c_uint32),
                ("device", ctypes.c_char_p), ("pointwise_forward", Kernel),
                ("pointwise_backward", Kernel), ("column_sum", Kernel),
                ("layer", ctypes.c_void_p * 4), ("step_plan", Plan),
                ("step_forward", ctypes.c_void_p), ("step_backward", ctypes.c_void_p),
                ("product", ctypes.c_void_p), ("copy", ctypes.c_void_p)]

threads, ranges = set(), []

@Execution.Range
def note(begin, end, context):
    threads.add(threading.get_native_id())
    ranges.append((begin, end))

@Kernel
def kernel(dtype, arguments, execution):
    execution.contents.parallel_for(0, 64, 1, note, None)

@Plan
def plan(dtype, direction, needs, sizes, execution, plan):
    pass  # the plan stays zero, which is gemm

table = Table(kernel_abi(), ctypes.sizeof(Table), b"cpu", kernel, kernel, kernel)
table.step_plan = plan
attach = ctypes.CDLL(str(loader.load().paths[0])).lltm_attach_kernels
attach.argtypes, attach.restype = [ctypes.c_void_p], ctypes.c_char_p
assert attach(ctypes.addressof(table)) is None
torch.set_num_threads(COUNT)
torch.ops.lltm.forward(*(torch.ones(s) for s in ((2, 3), (12, 7), (12,), (2, 4), (2, 4))))
covered = sorted(k for begin, end in ranges for k in range(begin, end))
print(json.dumps([len(threads), covered == list(range(64))]))
"""


def saved(door, path, *, threads: str = "1"):
    door.run(f"import sys; sys.argv = ['', {threads!r}]; PATH = {str(path)!r}\n" + COMPUTE)
    return torch.load(path, weights_only=True)


@each_door
def test_each_package_loads_its_own_door(open_door, door) -> None:
    assert json.loads(open_door(door).run(LOADED)) == open_door(door).name


@pytest.mark.slow
def test_both_doors_give_the_same_bits(open_door, tmp_path) -> None:
    stable = saved(open_door("stable"), tmp_path / "stable.pt")
    aten = saved(open_door("aten"), tmp_path / "aten.pt")
    assert stable.keys() == aten.keys()
    for key in stable:
        for one, other in zip(stable[key], aten[key], strict=True):
            assert torch.equal(one, other), key


@pytest.mark.parametrize("count", [1, 2])
@each_door
def test_kernels_get_the_threads_that_torch_has(open_door, door, count) -> None:
    threads, all_covered = json.loads(open_door(door).run(f"COUNT = {count}\n" + THREADS))
    assert threads == count
    assert all_covered


@pytest.mark.slow
@pytest.mark.parametrize("door", ["stable", "aten"])
def test_two_threads_agree_with_one(open_door, door, tmp_path) -> None:
    one = saved(open_door(door), tmp_path / "one.pt")
    two = saved(open_door(door), tmp_path / "two.pt", threads="2")
    for key in one:
        for index, (left, right) in enumerate(zip(one[key], two[key], strict=True)):
            # The GEMMs are torch's, which promise no bits across thread counts.
            torch.testing.assert_close(left, right, msg=f"result {index} of {key}")


CALLS = """
#include "torchship/torch_stable/torch.h"

using Tensor = torch::stable::Tensor;
namespace {
Tensor of_rank_4(Tensor like) { return lltm::StableTorch::empty({2, 3, 4, 5}, like); }
Tensor of_rank_6(Tensor like) { return lltm::StableTorch::empty({2, 3, 4, 5, 6, 7}, like); }
Tensor of_rank_8(Tensor like) { return lltm::StableTorch::empty({2, 3, 4, 5, 6, 7, 8, 9}, like); }
Tensor wrong_cat(Tensor like) {
  return lltm::StableTorch::cat_columns(like, lltm::StableTorch::empty({7, 1}, like));
}
Tensor wrong_narrow(Tensor like) { return torch::stable::narrow(like, 9, 0, 1); }
}  // namespace
STABLE_TORCH_LIBRARY(lltm_calls, library) {
  library.def("rank_4(Tensor like) -> Tensor");
  library.def("rank_6(Tensor like) -> Tensor");
  library.def("rank_8(Tensor like) -> Tensor");
  library.def("wrong_cat(Tensor like) -> Tensor");
  library.def("wrong_narrow(Tensor like) -> Tensor");
}
STABLE_TORCH_LIBRARY_IMPL(lltm_calls, CPU, library) {
  library.impl("rank_4", TORCH_BOX(&of_rank_4));
  library.impl("rank_6", TORCH_BOX(&of_rank_6));
  library.impl("rank_8", TORCH_BOX(&of_rank_8));
  library.impl("wrong_cat", TORCH_BOX(&wrong_cat));
  library.impl("wrong_narrow", TORCH_BOX(&wrong_narrow));
}
"""
TORCH_ROOT = Path(torch.__file__).parent


@pytest.fixture(scope="module")
def stable_calls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that calls torch by the stable door, for torch 2.10 and newer."""
    if find_torch(TORCH_ROOT).version_tuple < FIRST_STABLE:
        pytest.skip("torch 2.10 is the first with a stable door")
    folder = tmp_path_factory.mktemp("stable")
    source = folder / "calls.cpp"
    library = folder / "calls.so"
    source.write_text(CALLS)
    compiler = os.environ.get("CXX", "c++").split()
    flags = ["-std=c++17", "-O0", "-shared", "-fPIC", "-DTORCH_TARGET_VERSION=0x020a000000000000"]
    folders = (*include_dirs(source_root()), TORCH_ROOT / "include")
    flags += ["-D_GLIBCXX_ASSERTIONS", *(f"-I{folder}" for folder in folders)]
    links = [f"-L{TORCH_ROOT / 'lib'}", "-ltorch_cpu", "-ldl"]
    subprocess.run([*compiler, *flags, str(source), "-o", str(library), *links], check=True)
    return library


@pytest.mark.slow
def test_the_stable_door_allocates_tensors_of_any_rank(stable_calls, forked: Forks) -> None:
    code = (
        "import torch, sys; torch.ops.load_library(sys.argv[1])\n"
        "for rank in (4, 6, 8):\n"
        "    made = getattr(torch.ops.lltm_calls, f'rank_{rank}')(torch.ones(1))\n"
        "    assert made.shape == tuple(range(2, 2 + rank)) and made.is_contiguous(), made.shape\n"
    )
    run = forked.run(code, str(stable_calls), cwd=stable_calls.parent)
    assert run.returncode == 0, run.stderr


def failure_of(library: Path, operator: str, forked: Forks) -> str:
    """The text of the exception that an operator of the library throws."""
    code = (
        "import torch, sys; torch.ops.load_library(sys.argv[1])\n"
        "try: getattr(torch.ops.lltm_calls, sys.argv[2])(torch.ones(2, 1))\n"
        "except RuntimeError as error: print(error)\n"
    )
    run = forked.run(code, str(library), operator, cwd=library.parent)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_a_failed_call_of_the_door_has_torchs_own_words_from_2_13_on(
    stable_calls, forked: Forks
) -> None:
    text = failure_of(stable_calls, "wrong_cat", forked)
    assert text.startswith("lltm: torch's cat failed: ")
    is_told = find_torch(TORCH_ROOT).version_tuple >= (2, 13)
    assert ("Sizes of tensors must match" in text) == is_told
    assert ("torch printed the cause" in text) != is_told


def test_a_failed_call_of_torchs_stable_headers_has_its_words_with_those_of_2_15(
    stable_calls, forked: Forks
) -> None:
    headers = (TORCH_ROOT / "include/torch/csrc/stable/macros.h").read_text()
    text = failure_of(stable_calls, "wrong_narrow", forked)
    assert "API call failed" in text
    assert ("Dimension out of range" in text) == ("TORCH_DYNAMIC_VERSION_CALL_2_13_0" in headers)
