"""torch.compile, torch.export and ahead-of-time Inductor over every entry point."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from op_cases import (
    NAMES,
    TOLERANCE,
    assert_agree,
    every_dtype,
    gradients,
    in_float64,
    like,
    make_inputs,
    prepared,
    reference_with_gates,
    since,
    through_apply,
    through_function,
    through_module,
    through_raw_op,
)
from torch.export import Dim

import lltm_conda

RESULTS = ("new_h", "new_cell")
needs_compiler = pytest.mark.skipif(
    shutil.which(os.environ.get("CXX", "g++")) is None, reason="Inductor needs a C++ compiler"
)
# The module's entry hands parameters in through functional_call, which dynamo traces from 2.5 on.
module_entry_compiles = since("2.5", "torch.compile of torch.func.functional_call")
every_entry = pytest.mark.parametrize(
    "entry",
    [
        through_function,
        through_apply,
        through_raw_op,
        pytest.param(through_module, marks=module_entry_compiles),
    ],
    ids=lambda e: e.__name__,
)


@pytest.fixture(autouse=True)
def forget_compiled_code():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled_agrees(compiled, oracle, inputs, tolerance, names=RESULTS) -> None:
    outputs = compiled(*inputs)
    exact = in_float64(inputs)
    expected = oracle(*exact)
    incoming = like(outputs)
    assert_agree(outputs, expected, tolerance, names)
    actual = gradients(outputs, inputs, incoming)
    assert_agree(actual, gradients(expected, exact, in_float64(incoming)), tolerance, NAMES)


@every_entry
def test_every_entry_compiles_without_a_graph_break(device, entry) -> None:
    compiles_without_a_graph_break(device, entry, torch.float64)


@every_dtype
def test_every_dtype_compiles_without_a_graph_break(device, dtype) -> None:
    compiles_without_a_graph_break(device, through_function, dtype)


def compiles_without_a_graph_break(device, entry, dtype) -> None:
    inputs = make_inputs(33, 17, 29, dtype=dtype, device=device, requires_grad=True)
    entry = prepared(entry, 17, 29)
    compiled = torch.compile(entry, backend="aot_eager", fullgraph=True)
    compiled_agrees(compiled, lltm_conda.reference, inputs, TOLERANCE[dtype])


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_compiles_a_module_with_its_own_parameters(device, dynamic) -> None:
    module = lltm_conda.LLTM(17, 29, device=device, dtype=torch.float64)
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    inputs = make_inputs(33, 17, 29, device=device, requires_grad=True)._replace(
        weights=module.weights, bias=module.bias
    )
    compiled_agrees(
        lambda x, _w, _b, h, c: compiled(x, (h, c)), lltm_conda.reference, inputs, 1e-12
    )


def test_compiles_all_three_results(device) -> None:
    inputs = make_inputs(33, 17, 29, device=device, requires_grad=True)
    compiled = torch.compile(
        lambda *t: torch.ops.lltm.forward(*t), backend="aot_eager", fullgraph=True
    )
    compiled_agrees(compiled, reference_with_gates, inputs, 1e-12, (*RESULTS, "gates"))


@every_entry
def test_every_entry_compiles_for_the_gradient_of_the_input(device, entry) -> None:
    compiles_for_some_gradients(device, entry, (0,))


@pytest.mark.parametrize("expected", [(1, 2), (3, 4), (2,)], ids=str)
def test_compiles_for_some_gradients(device, expected) -> None:
    compiles_for_some_gradients(device, through_function, expected)


def compiles_for_some_gradients(device, entry, expected) -> None:
    inputs = make_inputs(device=device)
    leaves = [inputs[i].requires_grad_() for i in expected]
    exact = in_float64(inputs)
    outputs = torch.compile(prepared(entry), backend="aot_eager", fullgraph=True)(*inputs)
    incoming = like(outputs)
    actual = gradients(outputs, leaves, incoming)
    want = gradients(
        lltm_conda.reference(*exact), [exact[i] for i in expected], in_float64(incoming)
    )
    assert_agree(actual, want, 1e-12, [NAMES[i] for i in expected])


@every_entry
def test_compiles_for_inference(device, entry) -> None:
    inputs = make_inputs(device=device)
    compiled = torch.compile(prepared(entry), backend="aot_eager", fullgraph=True)
    with torch.inference_mode():
        assert_agree(compiled(*inputs), lltm_conda.reference(*inputs), 1e-12, RESULTS)


def test_compiles_an_unrolled_loop_over_a_sequence(device) -> None:
    def unrolled(step):
        def run(sequence, w, b, h, c):
            for t in range(sequence.shape[1]):  # a strided slice each
                h, c = step(sequence[:, t], w, b, h, c)
            return h, c

        return run

    inputs = make_inputs(device=device)
    inputs = inputs._replace(input=torch.stack([inputs.input, -inputs.input, inputs.input], 1))
    want = unrolled(lltm_conda.reference)(*inputs)
    actual = torch.compile(unrolled(lltm_conda.lltm), backend="aot_eager", fullgraph=True)(*inputs)
    assert_agree(actual, want, 1e-12, RESULTS)


def counting_backend():
    """The backend aot_eager, which counts what it compiles."""
    from torch._dynamo.testing import CompileCounterWithBackend  # its import takes a second

    return CompileCounterWithBackend("aot_eager")


@pytest.mark.parametrize(
    "entry",
    [
        through_function,
        *(pytest.param(e, marks=pytest.mark.slow) for e in (through_apply, through_raw_op)),
        pytest.param(through_module, marks=[module_entry_compiles, pytest.mark.slow]),
    ],
    ids=lambda e: e.__name__,
)
def test_one_dynamic_graph_serves_every_batch(device, entry) -> None:
    counter = counting_backend()
    compiled = torch.compile(prepared(entry), backend=counter, fullgraph=True, dynamic=True)
    for batch in (3, 7, 16, 33):
        inputs = make_inputs(batch, device=device, requires_grad=True)
        compiled_agrees(compiled, lltm_conda.reference, inputs, 1e-12)
    assert counter.frame_count == 1


def test_one_dynamic_graph_serves_every_size(device) -> None:
    counter = counting_backend()
    compiled = torch.compile(through_function, backend=counter, fullgraph=True, dynamic=True)
    for shape in ((3, 4, 5), (7, 2, 9), (16, 8, 32)):
        inputs = make_inputs(*shape, device=device, requires_grad=True)
        compiled_agrees(compiled, lltm_conda.reference, inputs, 1e-12)
    assert counter.frame_count == 1


@pytest.mark.parametrize("batch", [0, 1])
def test_compiles_empty_and_single_batches(device, batch) -> None:
    inputs = make_inputs(batch, device=device, requires_grad=True)
    compiled = torch.compile(through_function, backend="aot_eager", fullgraph=True, dynamic=True)
    compiled_agrees(compiled, lltm_conda.reference, inputs, 1e-12)


def test_compiled_vmap(device) -> None:
    many = [torch.stack([t, 2 * t]) for t in make_inputs(device=device)]
    compiled = torch.compile(torch.vmap(through_function), backend="aot_eager", fullgraph=True)
    want = [
        torch.stack(c)
        for c in zip(*(lltm_conda.reference(*t) for t in zip(*many, strict=True)), strict=True)
    ]
    assert_agree(compiled(*many), want, 1e-12, RESULTS)


@needs_compiler
@pytest.mark.parametrize(
    ("entry", "dynamic"),
    [
        (through_function, False),
        pytest.param(through_module, True, marks=[module_entry_compiles, pytest.mark.slow]),
    ],
    ids=["static function", "dynamic module"],
)
def test_compiles_with_inductor(device, entry, dynamic) -> None:
    compiled = torch.compile(prepared(entry, 17, 29), fullgraph=True, dynamic=dynamic)
    for batch in (16, 33):
        inputs = make_inputs(batch, 17, 29, dtype=torch.float32, device=device, requires_grad=True)
        compiled_agrees(compiled, lltm_conda.reference, inputs, 1e-5)


class Step(torch.nn.Module):
    def __init__(self, device) -> None:
        super().__init__()
        self.cell = lltm_conda.LLTM(4, 5, device=device, dtype=torch.float64)

    def forward(self, input, h, c):
        return self.cell(input, (h, c))


def exported(device, strict, **options):
    inputs = make_inputs(device=device)
    batch = Dim("batch", min=2)
    step = Step(device)
    program = torch.export.export(
        step,
        (inputs.input, inputs.old_h, inputs.old_cell),
        dynamic_shapes=({0: batch}, {0: batch}, {0: batch}),
        strict=strict,
        **options,
    )
    return step, program


def exported_agrees(step, run, device) -> None:
    for count in (2, 3, 17):
        x, _, _, h, c = make_inputs(count, device=device, seed=count)
        with torch.no_grad():
            want = lltm_conda.reference(x, step.cell.weights, step.cell.bias, h, c)
            assert_agree(run(x, h, c), want, 1e-12, RESULTS)


@pytest.mark.parametrize("strict", [False, True], ids=["non-strict", "strict"])
def test_exports_with_a_dynamic_batch(device, strict) -> None:
    step, program = exported(device, strict)
    exported_agrees(step, program.module(), device)


def test_exported_program_holds_the_op(device) -> None:
    _, program = exported(device, strict=False)
    targets = [str(node.target) for node in program.graph.nodes]
    assert "lltm.forward.default" in targets, targets


def test_exported_program_survives_saving(device) -> None:
    step, program = exported(device, strict=False)
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    buffer.seek(0)
    exported_agrees(step, torch.export.load(buffer).module(), device)


def test_exported_program_decomposes(device) -> None:
    step, program = exported(device, strict=False)
    exported_agrees(step, program.run_decompositions().module(), device)


@needs_compiler
@since("2.10", "compiled autograd over a Function in Python")
@pytest.mark.parametrize("entry", [through_function, through_apply], ids=lambda e: e.__name__)
def test_backward_under_compiled_autograd(device, entry) -> None:
    from torch._dynamo import compiled_autograd

    inputs = make_inputs(device=device, requires_grad=True)
    exact = in_float64(inputs)
    outputs = entry(*inputs)
    incoming = like(outputs)
    with compiled_autograd._enable(torch.compile(backend="eager")):
        torch.autograd.backward(outputs, incoming)
    want = gradients(lltm_conda.reference(*exact), exact, in_float64(incoming))
    assert_agree([t.grad for t in inputs], want, 1e-12, NAMES)


PACKAGE_OF_TORCH_ALONE = """
import sys, torch
from torch._inductor import aoti_compile_and_package, aoti_load_package
x = torch.ones(2, 3, device=sys.argv[1])
program = torch.export.export(torch.nn.Tanh(), (x,))
path = aoti_compile_and_package(program, package_path=sys.argv[2])
torch.testing.assert_close(aoti_load_package(path)(x), x.tanh())
"""


def compiler_for_packages(device, folder: Path) -> str:
    """A C++ compiler whose package of a torch operator loads on this device; skips without one.

    With some compilers and CUDA builds of torch such a package crashes the process, whatever is in
    it, so each is tried in a process of its own.
    """
    usual = os.environ.get("CXX", "g++")
    if device.type == "cpu":
        return usual
    failures = []
    for compiler in (usual, "clang++", *(f"g++-{major}" for major in range(15, 9, -1))):
        if shutil.which(compiler) is None:
            continue
        package = folder / f"{Path(compiler).name}.pt2"
        run = subprocess.run(
            [sys.executable, "-c", PACKAGE_OF_TORCH_ALONE, str(device), str(package)],
            env={**os.environ, "CXX": compiler},
            capture_output=True,
            text=True,
        )
        if run.returncode == 0:
            return compiler
        failures.append(f"{compiler}: exit code {run.returncode}: {run.stderr.strip()[-200:]}")
    pytest.skip("torch's own package does not load here: " + "; ".join(failures))


@pytest.mark.slow
@since("2.6", "aoti_compile_and_package")
def test_aot_inductor_package_with_a_dynamic_batch(device, tmp_path) -> None:
    from torch._inductor import aoti_compile_and_package, aoti_load_package, config

    compiler = compiler_for_packages(device, tmp_path)
    step, program = exported(device, strict=False)
    # Headers compiled before would serve this package alone, and its speed shows nothing.
    quick = {
        "aot_inductor.precompile_headers": False,
        "aot_inductor.compile_wrapper_opt_level": "O0",
    }
    with config.patch({"cpp.cxx": (None, compiler), **quick}):
        path = aoti_compile_and_package(program, package_path=str(tmp_path / "step.pt2"))
    exported_agrees(step, aoti_load_package(path), device)
