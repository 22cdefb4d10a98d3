"""Refusals of the raw ops: every message names the argument, what it got and what it needs."""

from __future__ import annotations

import re

import pytest
import torch
from op_cases import (
    NAMES,
    like,
    make_inputs,
    saved_for_backward,
    through_apply,
    through_function,
    through_module,
)
from torch._subclasses.fake_tensor import FakeTensorMode

import lltm_conda

REFUSALS = (RuntimeError, ValueError, TypeError, NotImplementedError)
every_name = pytest.mark.parametrize("name", NAMES)
FLOAT32 = r"(float32|\bfloat\b)"
FLOAT64 = r"(float64|\bdouble\b)"


def size(*numbers: int) -> str:
    """Matches a shape however it is bracketed: (3, 4), [3, 4]."""
    return r"[(\[]\s*" + r",\s*".join(map(str, numbers)) + r",?\s*[)\]]"


def refusal(function, *arguments) -> str:
    with pytest.raises(REFUSALS) as caught:
        function(*arguments)
    return str(caught.value)


def assert_says(message: str, name: str, *patterns: str) -> None:
    for pattern in (rf"\b{name}\b", *patterns):
        assert re.search(pattern, message, re.IGNORECASE), f"no {pattern!r} in: {message}"


SAVED = ("input", "weights", "bias", "old_h", "new_cell", "gates")
BACKWARD_TENSORS = ("grad_h", "grad_cell", "grad_gates", *SAVED)


def backward_arguments(device):
    inputs = make_inputs(device=device)
    results = torch.ops.lltm.forward(*inputs)
    tensors = (*like(results), *saved_for_backward(inputs, results))
    return dict(zip(BACKWARD_TENSORS, tensors, strict=True)) | {"needs": 31}


def call_backward(arguments) -> None:
    torch.ops.lltm.backward(*arguments.values())


every_backward_tensor = pytest.mark.parametrize("name", BACKWARD_TENSORS)

# Good shapes: input (3, 4), weights (15, 9), bias (15), old_h and old_cell (3, 5).


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("input", (4,), r"\(B, I\)"),
        ("input", (1, 3, 4), r"\(B, I\)"),
        ("weights", (135,), r"\(15, 9\)"),
        ("weights", (15, 9, 1), r"\(15, 9\)"),
        ("bias", (1, 1, 15), r"\(15,?\)"),
        ("bias", (), r"\(15,?\)"),
        ("old_h", (5,), r"\(B, S\)"),
        ("old_h", (1, 3, 5), r"\(B, S\)"),
        ("old_cell", (5,), r"\(3, 5\)"),
        ("old_cell", (3, 5, 1), r"\(3, 5\)"),
    ],
)
def test_wrong_number_of_dimensions(device, name, shape, expected) -> None:
    inputs = make_inputs(device=device)._replace(
        **{name: torch.zeros(shape, dtype=torch.float64, device=device)}
    )
    assert_says(refusal(torch.ops.lltm.forward, *inputs), name, size(*shape), expected)


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("weights", (14, 9), (15, 9)),
        ("weights", (15, 8), (15, 9)),
        ("weights", (9, 15), (15, 9)),
        ("bias", (14,), (15,)),
        ("bias", (5,), (15,)),
        ("bias", (2, 15), (1, 15)),
        ("bias", (15, 1), (1, 15)),
        ("old_h", (4, 5), (3, 5)),
        ("old_h", (1, 5), (3, 5)),
        ("old_cell", (3, 6), (3, 5)),
        ("old_cell", (4, 5), (3, 5)),
        ("old_cell", (1, 5), (3, 5)),
        ("old_cell", (0, 5), (3, 5)),
    ],
)
def test_wrong_shape(device, name, shape, expected) -> None:
    inputs = make_inputs(device=device)._replace(
        **{name: torch.zeros(shape, dtype=torch.float64, device=device)}
    )
    message = refusal(torch.ops.lltm.forward, *inputs)
    assert_says(message, name, size(*shape), size(*expected))


def test_input_and_weights_that_disagree_on_the_features(device) -> None:
    inputs = make_inputs(device=device)
    wrong = torch.zeros(3, 6, dtype=torch.float64, device=device)
    message = refusal(torch.ops.lltm.forward, *inputs._replace(input=wrong))
    assert_says(message, "weights", size(15, 9), size(15, 11))


@every_name
def test_mixed_dtypes(device, name) -> None:
    inputs = make_inputs(device=device)
    message = refusal(
        torch.ops.lltm.forward, *inputs._replace(**{name: getattr(inputs, name).float()})
    )
    # Where the first tensor is the odd one out, the next may be blamed.
    assert_says(message, rf"({name}|weights)", FLOAT32, FLOAT64)


@pytest.mark.parametrize(
    ("dtype", "spelled"),
    [
        (torch.int64, "int64|long"),
        (torch.int8, "int8|char"),
        (torch.bool, "bool"),
        (torch.complex64, "complex"),
        (torch.complex128, "complex"),
        (torch.float8_e4m3fn, "float8"),
    ],
    ids=str,
)
def test_unsupported_dtypes(device, dtype, spelled) -> None:
    inputs = make_inputs(device=device)
    message = refusal(torch.ops.lltm.forward, *(t.to(dtype) for t in inputs))
    assert_says(message, "input", spelled, "float32|float", "bfloat16")


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
@pytest.mark.parametrize("where", ["tensor", "fake"])
def test_complex_numbers_are_not_sent_to_float(device, dtype, where) -> None:
    target = device if where == "tensor" else "meta"
    inputs = [tensor.to(dtype).to(target) for tensor in make_inputs(device=device)]
    message = refusal(torch.ops.lltm.forward, *inputs)
    assert_says(message, "input", "complex", r"view_as_real\(input\)")
    assert "float()" not in message


def transposed(tensor: torch.Tensor) -> torch.Tensor:
    """The same values and shape in a layout that is not contiguous."""
    if tensor.dim() < 2:
        return torch.stack([tensor, tensor], 1)[:, 0]
    return tensor.t().contiguous().t()


@every_name
def test_not_contiguous(device, name) -> None:
    inputs = make_inputs(device=device)
    bad = transposed(getattr(inputs, name))
    assert not bad.is_contiguous()
    message = refusal(torch.ops.lltm.forward, *inputs._replace(**{name: bad}))
    assert_says(message, name, "contiguous", "stride|non-contiguous|not contiguous")


def flat_csr(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor if tensor.dim() == 2 else tensor.reshape(1, -1)).to_sparse_csr()


# Layouts without a kernel. torch's dispatcher refuses them before the raw op is reached, so it can
# name the layout only; the Python functions name the argument too.
LAYOUTS = {
    "sparse_coo": (lambda t: t.to_sparse(), "sparse"),
    "sparse_csr": (flat_csr, "sparse"),
    "quantised": (lambda t: torch.quantize_per_tensor(t, 0.1, 0, torch.quint8), "quant|quint8"),
    "mkldnn": (lambda t: t.to_mkldnn(), "mkldnn"),
}
every_layout = pytest.mark.parametrize("layout", LAYOUTS)
quiet = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")


def with_layout(layout, name, device):
    if layout in ("quantised", "mkldnn") and device.type != "cpu":
        pytest.skip(f"torch has no {layout} tensors on {device.type}")
    if layout == "mkldnn" and not torch.backends.mkldnn.is_available():
        pytest.skip("torch without oneDNN")
    inputs = make_inputs(dtype=torch.float32, device=device)
    convert, spelled = LAYOUTS[layout]
    return inputs._replace(**{name: convert(getattr(inputs, name))}), spelled


@every_name
@every_layout
@quiet
def test_layout_without_a_kernel(device, name, layout) -> None:
    inputs, spelled = with_layout(layout, name, device)
    message = refusal(torch.ops.lltm.forward, *inputs)
    assert re.search(spelled, message, re.IGNORECASE), message


@every_name
def test_one_argument_on_the_meta_device(device, name) -> None:
    inputs = make_inputs(device=device)
    bad = inputs._replace(**{name: getattr(inputs, name).to("meta")})
    message = refusal(torch.ops.lltm.forward, *bad)
    assert_says(message, rf"({name}|weights)", r"\bmeta\b", rf"\b{device.type}\b")


@every_name
def test_one_argument_on_a_device(device, name) -> None:
    inputs = make_inputs(device="meta")
    good = make_inputs(device=device)
    message = refusal(torch.ops.lltm.forward, *inputs._replace(**{name: getattr(good, name)}))
    assert_says(message, rf"({name}|weights|input)", r"\bmeta\b", rf"\b{device.type}\b")


@every_backward_tensor
def test_backward_wrong_shape(device, name) -> None:
    arguments = backward_arguments(device)
    good = arguments[name]
    arguments[name] = torch.zeros(*good.shape[:-1], 7, dtype=good.dtype, device=device)
    message = refusal(call_backward, arguments)
    # Sizes are read off `input` and `old_h`; where one of them is wrong, `weights` may be blamed.
    assert_says(message, rf"({name}|weights)", r"\b7\b|\b11\b|\b12\b|\b21\b")


@every_backward_tensor
def test_backward_mixed_dtypes(device, name) -> None:
    arguments = backward_arguments(device)
    arguments[name] = arguments[name].float()
    message = refusal(call_backward, arguments)
    assert_says(message, rf"({name}|weights|grad_h)", FLOAT32, FLOAT64)


@every_backward_tensor
def test_backward_on_another_device(device, name) -> None:
    arguments = backward_arguments(device)
    arguments[name] = arguments[name].to("meta")
    message = refusal(call_backward, arguments)
    assert_says(message, rf"({name}|weights)", r"\bmeta\b", rf"\b{device.type}\b")


@every_backward_tensor
def test_backward_not_contiguous(device, name) -> None:
    if device.type == "cuda" and name in ("grad_h", "grad_cell"):
        pytest.skip("taken as they are: test_cuda_paths.py")
    arguments = backward_arguments(device)
    good = arguments[name]
    bad = (
        transposed(good) if good.dim() < 3 else transposed(good[:, 0]).unsqueeze(1).expand(3, 3, 5)
    )
    arguments[name] = bad
    message = refusal(call_backward, arguments)
    assert_says(message, name, "contiguous")


def test_backward_unknown_bits_in_needs(device) -> None:
    arguments = backward_arguments(device) | {"needs": 32}
    assert_says(refusal(call_backward, arguments), "needs", r"\b32\b", r"\b31\b")


# The Python functions make tensors contiguous, and keep the same clear refusals.

PYTHON_ENTRIES = [through_function, through_apply]
python_entry = pytest.mark.parametrize("entry", PYTHON_ENTRIES, ids=lambda e: e.__name__)


@python_entry
@pytest.mark.parametrize(
    ("name", "shape"),
    [("weights", (14, 9)), ("bias", (14,)), ("old_cell", (4, 5)), ("old_h", (5,)), ("input", (4,))],
)
def test_python_functions_refuse_wrong_shapes_by_name(device, entry, name, shape) -> None:
    for requires_grad in (False, True):
        inputs = make_inputs(device=device, requires_grad=requires_grad)
        bad = inputs._replace(**{name: torch.zeros(shape, dtype=torch.float64, device=device)})
        assert_says(refusal(entry, *bad), name)


@python_entry
@every_name
@every_layout
@quiet
def test_python_functions_refuse_layouts_by_name(device, entry, name, layout) -> None:
    inputs, spelled = with_layout(layout, name, device)
    assert_says(refusal(entry, *inputs), name, spelled)


@python_entry
@every_name
def test_python_functions_refuse_mixed_dtypes(device, entry, name) -> None:
    inputs = make_inputs(device=device)
    bad = inputs._replace(**{name: getattr(inputs, name).float()})
    assert_says(refusal(entry, *bad), rf"({name}|weights)", FLOAT32, FLOAT64)


@python_entry
@pytest.mark.parametrize("position", range(5))
def test_python_functions_refuse_what_is_no_tensor(entry, position) -> None:
    inputs = list(make_inputs())
    inputs[position] = [1.0]
    with pytest.raises((TypeError, RuntimeError, AttributeError)):
        entry(*inputs)


def test_the_module_refuses_a_wrong_input_by_name(device) -> None:
    module = lltm_conda.LLTM(4, 5, device=device)
    state = (torch.zeros(3, 5, device=device), torch.zeros(3, 5, device=device))
    message = refusal(module, torch.zeros(3, 6, device=device), state)
    assert_says(message, "(input|weights)", r"\b6\b|\b11\b")


@pytest.mark.parametrize("entry", [*PYTHON_ENTRIES, through_module], ids=lambda e: e.__name__)
def test_a_refusal_leaves_the_op_usable(device, entry) -> None:
    inputs = make_inputs(device=device)
    refusal(entry, *inputs._replace(old_cell=inputs.old_cell[:1]))
    want = lltm_conda.reference(*inputs)
    for actual, exact in zip(entry(*inputs), want, strict=True):
        torch.testing.assert_close(actual, exact)


WRONG_SHAPES = [
    ("input", (4,)),
    ("weights", (14, 9)),
    ("weights", (135,)),
    ("bias", (14,)),
    ("bias", (2, 15)),
    ("bias", (1, 1, 15)),
    ("old_h", (4, 5)),
    ("old_h", (1, 3, 5)),
    ("new_cell", (3, 6)),
    ("gates", (3, 5)),
    ("grad_h", (3, 5, 1)),
    ("grad_cell", (2, 5)),
    ("grad_gates", (3, 3, 4)),
]


def refusal_of_fakes(arguments) -> str:
    with FakeTensorMode() as mode:
        fakes = {
            name: mode.from_tensor(value) if isinstance(value, torch.Tensor) else value
            for name, value in arguments.items()
        }
        return refusal(call_backward, fakes)


@pytest.mark.parametrize(("name", "shape"), WRONG_SHAPES, ids=str)
def test_fakes_refuse_wrong_shapes_in_the_words_of_the_real_op(name, shape) -> None:
    arguments = backward_arguments("cpu")
    arguments[name] = torch.zeros(shape, dtype=torch.float64)
    assert refusal_of_fakes(arguments) == refusal(call_backward, arguments)


@every_backward_tensor
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.complex64], ids=str)
def test_fakes_refuse_dtypes_in_the_words_of_the_real_op(name, dtype) -> None:
    arguments = backward_arguments("cpu")
    arguments[name] = arguments[name].to(dtype)
    assert refusal_of_fakes(arguments) == refusal(call_backward, arguments)
