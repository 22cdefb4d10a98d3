"""Every way that a step may go on a GPU, whatever its sizes choose: LLTM_CUDA_CELL forces it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from op_cases import (
    NAMES,
    TOLERANCE,
    assert_agree,
    every_dtype,
    launches,
    like,
    make_inputs,
    saved_for_backward,
    through_function,
)

import lltm_conda

pytestmark = pytest.mark.cuda

OP_TESTS = Path(__file__).resolve().parents[1] / "op"
PATHS = ("gemm", "cublas", "rows4", "rows16", "rows64", "tensor", "planes")
# (batch, features, state): either side of a tile's rows and columns, with vectors and without.
SHAPES = [
    (1, 8, 16),
    (4, 0, 8),
    (5, 16, 24),
    (17, 3, 33),
    (30, 130, 202),  # rows of whole words of 4 bytes, and several slices
    (33, 32, 128),
    (65, 8, 72),
    (130, 24, 40),
    (21, 61, 40),  # from here on, rows that are no vectors, while S is
    (37, 70, 72),
    (9, 68, 64),
    (11, 62, 70),  # the other way round
]


@pytest.fixture(params=PATHS)
def path(request, monkeypatch) -> str:
    monkeypatch.setenv("LLTM_CUDA_CELL", request.param)
    return request.param


@pytest.fixture
def tf32() -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


@every_dtype
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_path_agrees_with_the_reference(gpu, path, dtype, shape) -> None:
    inputs = make_inputs(*shape, dtype=dtype, device=gpu, requires_grad=True)
    exact = [t.detach().double().requires_grad_() for t in inputs]
    outputs = through_function(*inputs)
    expected = lltm_conda.reference(*exact)
    incoming = like(outputs)
    assert_agree(outputs, expected, TOLERANCE[dtype], ("new_h", "new_cell"))
    actual = torch.autograd.grad(outputs, inputs, incoming)
    want = torch.autograd.grad(expected, exact, [g.double() for g in incoming])
    assert_agree(actual, want, TOLERANCE[dtype], NAMES)


@pytest.mark.parametrize("shape", [(21, 61, 40), (37, 70, 72), (100, 131, 256)], ids=str)
def test_planes_in_tf32_agree_with_the_reference(gpu, monkeypatch, tf32, shape) -> None:
    monkeypatch.setenv("LLTM_CUDA_CELL", "planes")
    inputs = make_inputs(*shape, dtype=torch.float32, device=gpu, requires_grad=True)
    exact = [t.detach().double().requires_grad_() for t in inputs]
    outputs = through_function(*inputs)
    expected = lltm_conda.reference(*exact)
    incoming = like(outputs)
    tolerance = TOLERANCE[torch.float16]  # tf32 has its mantissa
    assert_agree(outputs, expected, tolerance, ("new_h", "new_cell"))
    names = launches(lambda: through_function(*inputs))
    assert any("finish" in name for name in names), names
    actual = torch.autograd.grad(outputs, inputs, incoming)
    want = torch.autograd.grad(expected, exact, [g.double() for g in incoming])
    assert_agree(actual, want, tolerance, NAMES)


@every_dtype
@pytest.mark.parametrize("features", [16, 49])
def test_path_takes_views_that_begin_anywhere(gpu, path, dtype, features) -> None:
    aligned = make_inputs(19, features, 32, dtype=dtype, device=gpu)
    odd = []
    for tensor in aligned:
        memory = torch.empty(tensor.numel() + 1, dtype=dtype, device=gpu)
        odd.append(memory[1:].view(tensor.shape).copy_(tensor))
    want = lltm_conda.reference(*(t.double() for t in aligned))
    results = torch.ops.lltm.forward(*odd)
    assert_agree(results[:2], want, TOLERANCE[dtype], ("new_h", "new_cell"))
    incoming = like(results)
    actual = torch.ops.lltm.backward(*incoming, *saved_for_backward(odd, results), 31)
    want = torch.ops.lltm.backward(*incoming, *saved_for_backward(aligned, results), 31)
    assert_agree(actual, want, TOLERANCE[dtype], NAMES)


@every_dtype
def test_path_reads_gradients_wherever_they_lie(gpu, path, dtype) -> None:
    inputs = make_inputs(18, 8, 40, dtype=dtype, device=gpu)
    results = torch.ops.lltm.forward(*inputs)
    saved = saved_for_backward(inputs, results)
    plane = like(results)[0]
    layouts = {
        "one number": plane[:1, :1].expand_as(plane),
        "one row": plane[:1].expand_as(plane),
        "one column": plane[:, :1].expand_as(plane),
        "transposed": plane.t().contiguous().t(),
        "part of rows": torch.cat([plane, plane], dim=1)[:, 40:],
        "part of odd rows": torch.cat([plane, plane[:, :3]], dim=1)[:, :40],
        "every other column": torch.stack([plane, plane], dim=2)[:, :, 1],
    }
    for name, grad in layouts.items():
        assert not grad.is_contiguous()
        for incoming in ((grad, plane), (plane, grad), (None, grad), (grad, None)):
            actual = torch.ops.lltm.backward(*incoming, None, *saved, 31)
            packed = [None if g is None else g.contiguous() for g in incoming]
            want = torch.ops.lltm.backward(*packed, None, *saved, 31)
            assert_agree(actual, want, TOLERANCE[dtype], [f"{name}: {n}" for n in NAMES])


@every_dtype
@pytest.mark.parametrize("features", [8, 21])
@pytest.mark.parametrize("needs", [1, 2, 4, 8, 16, 6, 9, 31])
def test_path_makes_what_is_wanted_and_no_more(gpu, path, dtype, needs, features) -> None:
    inputs = make_inputs(20, features, 48, dtype=dtype, device=gpu)
    results = torch.ops.lltm.forward(*inputs)
    incoming = like(results)
    saved = saved_for_backward(inputs, results)
    everything = torch.ops.lltm.backward(*incoming, *saved, 31)
    selected = torch.ops.lltm.backward(*incoming, *saved, needs)
    for bit, actual, want in zip((1, 2, 4, 8, 16), selected, everything, strict=True):
        if needs & bit:
            assert torch.equal(actual, want)
        else:
            assert actual.numel() == 0


@every_dtype
@pytest.mark.parametrize("shape", [(16, 32, 128), (5, 3, 7), (70, 8, 16)], ids=str)
def test_path_makes_missing_gates_again(gpu, path, dtype, shape) -> None:
    inputs = make_inputs(*shape, dtype=dtype, device=gpu)
    results = torch.ops.lltm.forward(*inputs)
    incoming = like(results)
    *saved, gates = saved_for_backward(inputs, results)
    actual = torch.ops.lltm.backward(*incoming, *saved, None, 31)
    want = torch.ops.lltm.backward(*incoming, *saved, gates, 31)
    assert_agree(actual, want, TOLERANCE[dtype], NAMES)


@pytest.mark.parametrize("features", [64, 61])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_path_gives_the_same_bits_every_time(gpu, path, dtype, features) -> None:
    inputs = make_inputs(150, features, 256, dtype=dtype, device=gpu)

    def run() -> tuple[torch.Tensor, ...]:
        results = torch.ops.lltm.forward(*inputs)
        incoming = like(results)
        saved = saved_for_backward(inputs, results)
        return (*results, *torch.ops.lltm.backward(*incoming, *saved, 31))

    first = run()
    for _ in range(5):
        assert all(torch.equal(a, b) for a, b in zip(first, run(), strict=True))


def test_unknown_path_is_refused_by_name(gpu, monkeypatch) -> None:
    monkeypatch.setenv("LLTM_CUDA_CELL", "cutlass")
    with pytest.raises(RuntimeError, match=r"LLTM_CUDA_CELL.*'cutlass'.*rows16"):
        through_function(*make_inputs(device=gpu))


@every_dtype
@pytest.mark.parametrize("shape", [(16, 32, 128), (1, 512, 2048), (64, 32, 128)], ids=str)
def test_small_step_is_one_launch_forward_and_two_backward(gpu, dtype, shape) -> None:
    inputs = make_inputs(*shape, dtype=dtype, device=gpu)
    results = torch.ops.lltm.forward(*inputs)
    incoming = like(results)
    saved = saved_for_backward(inputs, results)
    forward = launches(lambda: torch.ops.lltm.forward(*inputs))
    assert len(forward) == 1, forward
    if shape[2] > 1024:  # a GEMM's work, backward
        return
    backward = launches(lambda: torch.ops.lltm.backward(*incoming, *saved, 31))
    assert len(backward) == 2, backward
    of_parameters = launches(lambda: torch.ops.lltm.backward(*incoming, *saved, 6))
    assert len(of_parameters) == 1, of_parameters


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (200, ["backward_strips"]),
        (2048, ["backward_strips", "sum_columns"]),
        (4096, ["backward_strips", "sum_columns"]),
    ],
    ids=["one part", "16 parts", "32 parts"],
)
def test_nothing_is_filled_and_the_bias_gradient_rides_along(
    gpu, monkeypatch, batch, expected
) -> None:
    monkeypatch.setenv("LLTM_CUDA_CELL", "cublas")
    inputs = make_inputs(batch, 64, 512, dtype=torch.float32, device=gpu)
    results = torch.ops.lltm.forward(*inputs)
    incoming = like(results)
    saved = saved_for_backward(inputs, results)
    names = launches(lambda: torch.ops.lltm.backward(*incoming, *saved, 4 + 16))
    assert len(names) == len(expected), names
    assert all(part in name for part, name in zip(expected, names, strict=True)), names


OF_A_PRODUCT = re.compile(r"reduce|memset", re.IGNORECASE)  # what cuBLAS adds to a split product


@pytest.mark.parametrize(
    ("dtype", "shape", "sums"),
    [
        (torch.float32, (64, 512, 1024), 0),
        (torch.bfloat16, (64, 512, 1024), 0),
        (torch.float16, (64, 512, 1024), 0),
        (torch.bfloat16, (2048, 64, 512), 1),  # parts of rows, whose sums take a launch
        (torch.float16, (2048, 64, 512), 1),
    ],
    ids=str,
)
def test_large_step_is_four_launches_backward_and_five_in_parts(gpu, dtype, shape, sums) -> None:
    """Of two products, where cuBLAS itself takes one kernel for each, as it does in 16 bits."""
    inputs = make_inputs(*shape, dtype=dtype, device=gpu)
    results = torch.ops.lltm.forward(*inputs)
    incoming = like(results)
    saved = saved_for_backward(inputs, results)
    names = launches(lambda: torch.ops.lltm.backward(*incoming, *saved, 31))
    names = [n for n in names if not OF_A_PRODUCT.search(n)]
    ours = {"backward_strips": 1, "sum_columns": sums, "copy_all": 1}
    assert {part: sum(part in name for name in names) for part in ours} == ours, names
    products = len(names) - sum(ours.values())
    assert products == 2 or (products == 3 and dtype == torch.float32), names


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_large_weights_of_unaligned_rows_are_not_copied(gpu, dtype) -> None:
    inputs = make_inputs(16, 1001, 2000, dtype=dtype, device=gpu)
    results = torch.ops.lltm.forward(*inputs)
    incoming = like(results)
    saved = saved_for_backward(inputs, results)
    forward = launches(lambda: torch.ops.lltm.forward(*inputs))
    assert "join" in forward[0], forward
    assert "finish" in forward[-1], forward
    of_data = launches(lambda: torch.ops.lltm.backward(*incoming, *saved, 1 + 8))
    assert not any("copy" in name for name in of_data), of_data


@every_dtype
@pytest.mark.parametrize("shape", [(300, 16, 64), (1000, 24, 40), (300, 12, 52)], ids=str)
def test_joined_operand_gives_the_weights_gradient(gpu, monkeypatch, dtype, shape) -> None:
    monkeypatch.setenv("LLTM_CUDA_CELL", "cublas")
    inputs = make_inputs(*shape, dtype=dtype, device=gpu)
    x = inputs.input
    odd = inputs._replace(input=torch.cat([x.flatten()[:1], x.flatten()])[1:].view(x.shape))
    assert odd.input.data_ptr() % 16, "x must begin where no vector may"
    exact = [t.double().requires_grad_() for t in inputs]
    for step_inputs in (inputs, odd):
        results = torch.ops.lltm.forward(*step_inputs)
        incoming = like(results)
        saved = saved_for_backward(step_inputs, results)
        for needs in (2, 2 + 4, 31):
            actual = torch.ops.lltm.backward(*incoming[:2], None, *saved, needs)[1]
            want = torch.autograd.grad(
                lltm_conda.reference(*exact), exact[1], [g.double() for g in incoming[:2]]
            )
            assert_agree([actual], want, TOLERANCE[dtype], [f"weights, {needs}"])


DATA_SHAPES = [
    (300, 16, 64),
    (300, 12, 52),  # rows that are no vectors
    (40, 400, 64),  # an input too wide for one product
    (1500, 400, 800),  # large in float32
    (3000, 60, 800),  # larger, with an input too narrow
]


@every_dtype
@pytest.mark.parametrize("needs", [1, 8, 9], ids=["input", "old_h", "both"])
@pytest.mark.parametrize("shape", DATA_SHAPES, ids=str)
def test_one_product_gives_the_gradients_of_data(gpu, monkeypatch, dtype, shape, needs) -> None:
    """Of both, and of one, on either side of each limit by which two products are joined."""
    monkeypatch.setenv("LLTM_CUDA_CELL", "cublas")
    inputs = make_inputs(*shape, dtype=dtype, device=gpu)
    exact = [t.double().requires_grad_() for t in inputs]
    results = torch.ops.lltm.forward(*inputs)
    incoming = like(results)
    saved = saved_for_backward(inputs, results)
    actual = torch.ops.lltm.backward(*incoming[:2], None, *saved, needs)
    expected = lltm_conda.reference(*exact)
    want = torch.autograd.grad(expected, exact, [g.double() for g in incoming[:2]])
    which = [place for place in range(5) if needs >> place & 1]
    names = [NAMES[place] for place in which]
    assert_agree([actual[p] for p in which], [want[p] for p in which], TOLERANCE[dtype], names)


def test_a_gradient_alone_needs_no_room_for_joined_ones(gpu) -> None:
    inputs = make_inputs(1500, 400, 800, dtype=torch.float16, device=gpu)
    results = torch.ops.lltm.forward(*inputs)
    incoming = like(results)
    saved = saved_for_backward(inputs, results)

    def peak(needs: int) -> int:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_stats()["requested_bytes.all.current"]
        torch.ops.lltm.backward(*incoming[:2], None, *saved, needs)
        return torch.cuda.memory_stats()["requested_bytes.all.peak"] - before

    joined = 1500 * (400 + 800) * 2  # bytes
    d_input = 1500 * 400 * 2
    assert peak(8 + 1) - peak(8) >= joined + d_input


@pytest.mark.slow
@pytest.mark.parametrize("forced", ["gemm", "cublas", "rows16"])
def test_path_is_accurate(forced, tmp_path) -> None:
    """The bounds in ulps, through the pointwise kernels and through the whole-step ones."""
    files = [str(OP_TESTS / name) for name in ("test_op_accuracy.py", "test_op_numerics.py")]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "cuda", "-p", "no:cacheprovider", *files],
        cwd=tmp_path,  # where no source can shadow the installed package
        env=os.environ | {"LLTM_CUDA_CELL": forced},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr
