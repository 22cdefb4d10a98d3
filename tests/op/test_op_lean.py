"""What eager mode keeps on the CPU: two gates of three, and the third from new_h / tanh(new_cell).

Errors of the recovered gate o are absolute: 1 - o has lost what o itself is rounded by, as in
PyTorch's own derivative of a sigmoid.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from op_cases import (
    NAMES,
    TOLERANCE,
    Inputs,
    assert_agree,
    every_dtype,
    gradients,
    in_float64,
    like,
    make_inputs,
    quick,
    saved_for_backward,
    seeds,
    shapes,
    since,
    through_apply,
    through_function,
    through_module,
)
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.library import opcheck
from torch.utils.checkpoint import checkpoint

import lltm_conda

HERE = Path(__file__).parent
WIDE = (torch.float32, torch.float64)
every_wide_dtype = pytest.mark.parametrize(
    "dtype", WIDE, ids=lambda d: str(d).removeprefix("torch.")
)
every_eager_entry = pytest.mark.parametrize(
    "entry", [through_function, through_apply, through_module], ids=lambda e: e.__name__
)


# ---- values ----

# At every level, and round every size at which the kernels take another way.
AGREES = """
import torch
from op_cases import *

sizes = [(b, i, s) for b in (1, 7, 16, 33) for i, s in ((0, 5), (3, 17), (33, 40))]
sizes += [(131, 9, 33), (261, 5, 18), (3, 70, 500)]
planes = PLANES
for dtype in (torch.float32, torch.float64):
    for case, (b, i, s) in enumerate(sizes):
        inputs = make_inputs(b, i, s, dtype=dtype, requires_grad=True)
        if case % 2:  # some cells that tell nothing of the gate
            with torch.no_grad():
                inputs.weights[2 * s :: 2] = 0
                inputs.bias[2 * s :: 2] = 0
                inputs.old_cell[:, ::2] = 0
        whole = torch.ops.lltm.forward(*inputs)
        new_h, new_cell, gates = torch.ops.lltm.forward_lean(*(t.detach() for t in inputs))
        assert torch.equal(new_h, whole[0]) and torch.equal(new_cell, whole[1])
        assert torch.equal(gates, whole[2][:, planes]), (dtype, b, i, s)
        exact = in_float64(inputs)
        incoming = like((new_h, new_cell))
        want = gradients(lltm_conda.reference(*exact), exact, [g.double() for g in incoming])
        saved = [t.detach() for t in inputs[:4]]
        for needs in (31, (6, 1, 8, 2, 4, 16, 0)[case % 7]):
            got = torch.ops.lltm.backward_lean(*incoming, *saved, new_cell, gates, new_h, needs)
            for bit, name, g, w in zip((1, 2, 4, 8, 16), NAMES, got, want):
                if needs & bit:
                    assert_agree([g], [w], TOLERANCE[dtype], [f"{name} {dtype} {b, i, s} {needs}"])
                else:
                    assert g.numel() == 0, name
"""


def run(program: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, where no source shadows the installed package."""
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(HERE))))
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=os.environ | variables | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize("level", ["default", "avx2", "avx512"])
def test_lean_pair_agrees_with_float64_at_every_level(tmp_path, level) -> None:
    variables = {"LLTM_CPU_PRODUCTS": "own", "LLTM_CPU_CAPABILITY": level}
    done = run(AGREES.replace("PLANES", "[0, 2]"), tmp_path, **variables)
    assert done.returncode == 0, done.stderr


def test_lean_pair_keeps_three_gates_where_torch_makes_the_products(tmp_path) -> None:
    done = run(AGREES.replace("PLANES", "[0, 1, 2]"), tmp_path, LLTM_CPU_PRODUCTS="torch")
    assert done.returncode == 0, done.stderr


def compare_with_reference(inputs: Inputs, tolerance: float) -> None:
    exact = in_float64(inputs)
    outputs = lltm_conda.lltm(*inputs)
    incoming = like(outputs)
    got = gradients(outputs, inputs, incoming)
    want = gradients(lltm_conda.reference(*exact), exact, in_float64(incoming))
    assert_agree(got, want, tolerance, [f"gradient of {name}" for name in NAMES])


# new_h is zero, or not a normal number, whatever the output gate is.
CELLS = {
    torch.float32: [0.0, -0.0, 1e-44, 1e-38, -1e-31, 1e-29, 0.5],
    torch.float64: [0.0, -0.0, 5e-324, 1e-307, -1e-280, 1e-270, 0.5],
}


@every_wide_dtype
@pytest.mark.parametrize("state", [7, 16, 37])
def test_cells_that_tell_nothing_of_the_output_gate(dtype, state) -> None:
    inputs = make_inputs(5, 4, state, dtype=dtype)
    inputs.weights[2 * state :] = 0  # elu(0) is 0: new_cell is old_cell
    inputs.bias[2 * state :] = 0
    cells = torch.tensor(CELLS[dtype], dtype=dtype)
    inputs.old_cell.copy_(cells.repeat(5 * state)[: 5 * state].reshape(5, state))
    inputs = Inputs(*(t.requires_grad_() for t in inputs))
    compare_with_reference(inputs, TOLERANCE[dtype])


@every_dtype
def test_gradients_of_nothing_but_zeros(dtype) -> None:
    inputs = make_inputs(3, 4, 37, dtype=dtype)
    compare_with_reference(
        Inputs(*(torch.zeros_like(t).requires_grad_() for t in inputs)),
        TOLERANCE[dtype],
    )


@every_wide_dtype
def test_error_of_a_saturated_output_gate_is_that_of_one(dtype) -> None:
    z_o = torch.cat([torch.linspace(-60, 60, 241), torch.tensor([-750.0, 750.0])]).to(dtype)
    state, epsilon = z_o.numel(), torch.finfo(dtype).eps
    inputs = make_inputs(3, 4, state, dtype=dtype)
    inputs.weights.zero_()
    inputs.bias[state : 2 * state] = z_o
    inputs.bias.requires_grad_()
    exact = in_float64(inputs)
    new_h, new_cell = lltm_conda.lltm(*inputs)
    want_h, _ = lltm_conda.reference(*exact)
    (got,) = torch.autograd.grad(new_h.sum(), inputs.bias)
    (want,) = torch.autograd.grad(want_h.sum(), exact[2])
    error = (got.double() - want)[state : 2 * state].abs()
    bound = 8 * epsilon * new_cell.detach().double().tanh().abs().sum(0)
    assert (error <= bound).all(), (error / bound).max()


# ---- what is kept ----


@every_dtype
@every_eager_entry
def test_elements_kept_beyond_inputs_and_outputs(dtype, entry) -> None:
    batch, state = 16, 40
    inputs = make_inputs(batch, 8, state, dtype=dtype, requires_grad=True)
    kept: dict[int, int] = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes() // tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        outputs = entry(*inputs)
    known = {t.untyped_storage().data_ptr() for t in (*inputs, *outputs)}
    beyond = sum(elements for pointer, elements in kept.items() if pointer not in known)
    assert beyond == (2 if dtype in WIDE else 3) * batch * state


# ---- new_h may be changed in place between forward and backward ----


def without_grad(new_h):
    with torch.no_grad():
        new_h.mul_(0.5)


def part_of_it(new_h):
    with torch.no_grad():
        new_h[:, 1] = 7.0


def through_an_alias(new_h):
    new_h.detach().zero_()


CHANGES = [without_grad, part_of_it, through_an_alias]
every_change = pytest.mark.parametrize("change", CHANGES, ids=lambda c: c.__name__)


def wanted(inputs: Inputs, incoming) -> tuple[torch.Tensor, ...]:
    exact = in_float64(inputs)
    return gradients(lltm_conda.reference(*exact), exact, in_float64(incoming))


@every_dtype
@every_change
@every_eager_entry
def test_new_h_changed_in_place(dtype, change, entry) -> None:
    inputs = make_inputs(dtype=dtype, requires_grad=True)
    outputs = entry(*inputs)
    incoming = like(outputs)
    change(outputs[0])
    for _ in range(2):  # the first time must not spoil the second
        got = torch.autograd.grad(outputs, inputs, incoming, retain_graph=True)
        assert_agree(got, wanted(inputs, incoming), TOLERANCE[dtype], NAMES)


def test_new_h_changed_in_place_as_part_of_the_graph() -> None:
    inputs = make_inputs(requires_grad=True)
    new_h, new_cell = lltm_conda.lltm(*inputs)
    incoming = like((new_h, new_cell))
    torch.nn.functional.dropout(new_h, 0.5, inplace=True)
    new_h.mul_(0.0).add_(new_cell)
    got = torch.autograd.grad((new_h, new_cell), inputs, incoming)
    incoming = (torch.zeros_like(incoming[0]), incoming[0] + incoming[1])
    assert_agree(got, wanted(inputs, incoming), 1e-12, NAMES)


@every_change
def test_second_derivatives_with_new_h_changed_in_place(change) -> None:
    def second(step, tensors, spoil):
        new_h, new_cell = step(*tensors)
        spoil(new_h)
        incoming = [g.to(new_h) for g in like((new_h, new_cell))]
        first = torch.autograd.grad((new_h, new_cell), tensors, incoming, create_graph=True)
        return gradients([sum(g.square().sum() for g in first)], tensors, None)

    inputs = make_inputs(requires_grad=True)
    got = second(lltm_conda.lltm, inputs, change)
    want = second(lltm_conda.reference, in_float64(inputs), lambda _: None)
    assert_agree(got, want, 1e-12, NAMES)


@every_change
def test_new_h_changed_in_place_behind_hooks(change) -> None:
    # Torch does not watch tensors that hooks hold.
    inputs = make_inputs(requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        outputs = lltm_conda.lltm(*inputs)
    incoming = like(outputs)
    change(outputs[0])
    got = torch.autograd.grad(outputs, inputs, incoming)
    assert_agree(got, wanted(inputs, incoming), 1e-12, NAMES)


@every_change
def test_new_h_changed_in_place_in_a_checkpoint(change) -> None:
    def two_steps(x, weights, bias, h, cell):
        new_h, new_cell = lltm_conda.lltm(x, weights, bias, h, cell)
        kept = new_h.clone()
        change(new_h)
        return lltm_conda.lltm(x, weights, bias, kept, new_cell)

    def same(x, weights, bias, h, cell):
        for _ in range(2):
            h, cell = lltm_conda.reference(x, weights, bias, h, cell)
        return h, cell

    inputs = make_inputs(requires_grad=True)
    outputs = checkpoint(two_steps, *inputs, use_reentrant=False)
    incoming = like(outputs)
    got = torch.autograd.grad(outputs, inputs, incoming)
    exact = in_float64(inputs)
    want = torch.autograd.grad(same(*exact), exact, in_float64(incoming))
    assert_agree(got, want, 1e-12, NAMES)


def test_new_h_changed_in_place_without_data() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        inputs = make_inputs(requires_grad=True)
        outputs = lltm_conda.lltm(*inputs)
        change = CHANGES[0]
        change(outputs[0])
        got = torch.autograd.grad(outputs, inputs, [torch.ones_like(o) for o in outputs])
    assert [g.shape for g in got] == [t.shape for t in inputs]


UNDER_A_DEFAULT_DEVICE = """
import torch
torch.set_default_device("meta")
import lltm_conda
torch.set_default_device("cpu")
torch.manual_seed(0)
shapes = ((2, 3), (12, 7), (12,), (2, 4), (2, 4))
inputs = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes]
new_h, new_cell = lltm_conda.lltm(*inputs)
incoming = [torch.ones_like(new_h)] * 2
with torch.no_grad():
    new_h.mul_(2)
got = torch.autograd.grad((new_h, new_cell), inputs, incoming)
want = torch.autograd.grad(lltm_conda.reference(*inputs), inputs, incoming)
torch.testing.assert_close(got, want)
"""


def test_new_h_changed_in_place_whatever_device_was_the_default_at_import(tmp_path) -> None:
    code = [sys.executable, "-c", UNDER_A_DEFAULT_DEVICE]
    run = subprocess.run(code, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@every_dtype
def test_new_h_is_kept_only_where_backward_reads_it(dtype) -> None:
    new_h, _ = lltm_conda.lltm(*make_inputs(dtype=dtype, requires_grad=True))
    kept = {t.untyped_storage().data_ptr() for t in new_h.grad_fn.saved_tensors}
    is_kept = new_h.untyped_storage().data_ptr() in kept
    assert is_kept == (dtype in (torch.float32, torch.float64))


@since("2.10", "compiled autograd over a Function in Python")
def test_backward_under_compiled_autograd() -> None:
    from torch._dynamo import compiled_autograd

    inputs = make_inputs(requires_grad=True)
    outputs = lltm_conda.lltm(*inputs)
    incoming = like(outputs)
    with compiled_autograd._enable(torch.compile(backend="eager")):
        torch.autograd.backward(outputs, incoming)
    assert_agree([t.grad for t in inputs], wanted(inputs, incoming), 1e-12, NAMES)


@pytest.mark.parametrize("changed", ["weights", "old_h", "new_cell"])
@pytest.mark.parametrize("change_new_h", [False, True], ids=["", "and new_h"])
def test_changing_what_else_is_saved_is_an_error_each_time(changed, change_new_h) -> None:
    inputs = make_inputs(requires_grad=True)
    new_h, new_cell = lltm_conda.lltm(*inputs)
    with torch.no_grad():
        (new_cell if changed == "new_cell" else getattr(inputs, changed)).add_(1)
        if change_new_h:
            new_h.add_(1)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad((new_h, new_cell), inputs, like((new_h, new_cell)))


# ---- the raw pair ----


def lean_arguments(inputs: Inputs, given_bits: int = 3, needs: int = 31):
    results = torch.ops.lltm.forward_lean(*inputs)
    incoming = [g if given_bits & (1 << bit) else None for bit, g in enumerate(like(results[:2]))]
    saved = saved_for_backward(inputs, results)
    return (*incoming, *saved, results[0], needs)


@every_dtype
def test_lost_new_h_is_done_without(dtype) -> None:
    arguments = lean_arguments(make_inputs(dtype=dtype))
    lost = (*arguments[:-2], torch.empty(0), arguments[-1])
    got, want = (torch.ops.lltm.backward_lean(*a) for a in (lost, arguments))
    assert_agree(got, want, TOLERANCE[dtype] / 10, NAMES)


@every_dtype
def test_opcheck_forward_lean(dtype) -> None:
    opcheck(torch.ops.lltm.forward_lean.default, tuple(make_inputs(dtype=dtype)))


@every_dtype
@pytest.mark.parametrize(("given_bits", "needs"), [(3, 31), (1, 6), (2, 25), (0, 31), (3, 0)])
def test_opcheck_backward_lean(dtype, given_bits, needs) -> None:
    arguments = lean_arguments(make_inputs(dtype=dtype), given_bits, needs)
    opcheck(torch.ops.lltm.backward_lean.default, arguments)


def assert_fake_layout(inputs: Inputs) -> torch.Size:
    real = torch.ops.lltm.forward_lean(*inputs)
    with FakeTensorMode() as mode:
        fake = torch.ops.lltm.forward_lean(*(mode.from_tensor(t) for t in inputs))
    for got, want in zip(fake, real, strict=True):
        assert (got.shape, got.stride(), got.dtype) == (
            want.shape,
            want.stride(),
            want.dtype,
        )
    return real[2].shape


@every_dtype
@quick
@given(shape=shapes(), seed=seeds)
def test_fake_forward_lean_has_the_real_layout(dtype, shape, seed) -> None:
    assert_fake_layout(make_inputs(*shape, dtype=dtype, seed=seed))


# 64 million multiplications, and 32768 batch entries, are the limits.
@pytest.mark.parametrize(
    ("shape", "planes"),
    [((32, 185, 729), 2), ((32, 186, 729), 3), ((32768, 1, 1), 2), ((32769, 1, 1), 3)],
    ids=str,
)
def test_large_steps_keep_three_gates(shape, planes) -> None:
    inputs = make_inputs(*shape, dtype=torch.float32)
    assert assert_fake_layout(inputs) == (shape[0], planes, shape[2])


def refused(op, arguments, match: str) -> None:
    with pytest.raises(RuntimeError, match=match):
        op(*arguments)
    with FakeTensorMode() as mode, pytest.raises(RuntimeError, match=match):
        op(*(mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in arguments))


def test_two_gates_are_refused_where_three_are_needed() -> None:
    *_, gates, _, needs = arguments = lean_arguments(make_inputs())
    assert gates.shape[1] == 2
    whole = (*arguments[:2], None, *arguments[2:8], needs)
    refused(torch.ops.lltm.backward, whole, r"gates must have shape \(B, 3, S\)")


def test_two_gates_of_sixteen_bits_are_refused() -> None:
    arguments = list(lean_arguments(make_inputs(dtype=torch.bfloat16)))
    arguments[7] = arguments[7][:, :2].contiguous()
    refused(torch.ops.lltm.backward_lean, arguments, r"gates must have shape \(B, 3, S\)")


def test_new_h_of_another_shape_is_refused_by_name() -> None:
    arguments = list(lean_arguments(make_inputs()))
    arguments[8] = arguments[8][:, 1:].contiguous()
    refused(torch.ops.lltm.backward_lean, arguments, r"new_h must have shape \(B, S\)")
