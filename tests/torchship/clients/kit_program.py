"""Calls the operators of `kit` through one glue; prints by name whether each property holds.

python kit_program.py GLUE_FILE
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import torch

torch.ops.load_library(sys.argv[1])
kit = torch.ops.kit
PROPERTIES: dict[str, Callable[[], object]] = {}
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
NARROW = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float16, torch.bfloat16)


def holds(function: Callable[[], object]) -> Callable[[], object]:
    PROPERTIES[function.__name__] = function
    return function


def same(ours: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether the bits are equal; a NaN may have other bits."""
    if (ours.dtype, ours.shape) != (right.dtype, right.shape):
        return False
    return torch.equal(ours.double().nan_to_num(7e77), right.double().nan_to_num(7e77))


def narrowed_as_torch_does(values: torch.Tensor, dtype: torch.dtype) -> bool:
    """Older torches make NaN of what is too large for float8_e4m3fn, newer ones the largest."""
    values = values.float()
    if values.new_tensor(1e3).to(torch.float8_e4m3fn).isnan():
        values = values[~(values.abs() > 448)] if dtype == torch.float8_e4m3fn else values
    return same(kit.convert(values, dtype), values.to(dtype))


def error_of(call: Callable[[], object]) -> str:
    try:
        call()
    except (RuntimeError, NotImplementedError) as error:
        return str(error)
    return ""


@holds
def every_float8_is_widened_as_torch_does() -> bool:
    codes = torch.arange(256, dtype=torch.uint8)
    return all(
        same(kit.convert(codes.view(dtype), torch.float32), codes.view(dtype).float())
        for dtype in (torch.float8_e4m3fn, torch.float8_e5m2)
    )


@holds
def every_16_bit_float_is_narrowed_as_torch_does() -> bool:
    codes = torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(torch.float16)
    exact = same(kit.convert(codes, torch.float32), codes.float())
    return exact and all(narrowed_as_torch_does(codes, dtype) for dtype in NARROW)


@holds
def any_bits_and_ends_of_float32_are_narrowed_as_torch_does() -> bool:
    torch.manual_seed(0)
    bits = torch.randint(-(2**31), 2**31, (200_000,)).to(torch.int32)
    ends = torch.tensor(
        [0.0, 447.9, 448, 463.9, 464, 464.1, 479.9, 480, 57344, 61439, 61440, 65536]
    )
    values = torch.cat([bits.view(torch.float32), ends, -ends, torch.tensor([torch.inf])])
    return all(narrowed_as_torch_does(values, dtype) for dtype in NARROW)


@holds
def a_dtype_that_is_not_dispatched_is_refused_with_the_accepted() -> str:
    return error_of(lambda: kit.convert(torch.ones(2, dtype=torch.int64), torch.float32))


@holds
def integers_bool_and_complex_are_dispatched() -> bool:
    whole = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
    values = torch.arange(4)
    dtypes = (*whole, torch.bool, torch.complex64, torch.complex128)
    unsigned = (torch.uint16, torch.uint32, torch.uint64)
    exact = [torch.equal(kit.squares(v), v * v) for v in (values.to(d) for d in dtypes)]
    exact += [torch.equal(kit.squares(values.to(d)), (values**2).to(d)) for d in unsigned]
    turned = torch.tensor([1 + 2j, 3 - 1j])
    return all(exact) and torch.equal(kit.squares(turned), turned * turned)


@holds
def copies_are_made_only_where_they_are_needed() -> bool:
    x = torch.randn(3, 4, dtype=torch.float64)
    whole, wide, moved, here, *_ = kit.copies(x, x)
    strided = kit.copies(x.t(), x)[0]
    pointers = {tensor.data_ptr() for tensor in (whole, wide, moved, here)}
    return (
        pointers == {x.data_ptr()}
        and strided.data_ptr() != x.data_ptr()
        and strided.is_contiguous()
        and torch.equal(strided, x.t())
    )


@holds
def another_dtype_is_rounded_as_torch_does() -> bool:
    return all(
        torch.equal(kit.copies(x, x)[1], x.double())
        for x in (torch.randn(5).to(dtype) for dtype in FLOATS)
    )


@holds
def zeros_and_empty_take_a_vector_of_sizes_and_a_dtype() -> bool:
    x = torch.randn(3)
    *_, zeros, bools, bytes_ = kit.copies(x, x)
    return (
        torch.equal(zeros, torch.zeros(2, 3))
        and torch.equal(bools, torch.zeros(4, dtype=torch.bool))
        and torch.equal(bytes_, torch.zeros(2, 3, dtype=torch.uint8))
    )


@holds
def no_copy_records_a_gradient() -> bool:
    x = torch.randn(3, 4, requires_grad=True)
    with torch._C._IncludeDispatchKeyGuard(torch._C.DispatchKey.AutogradCPU):
        copies = kit.copies(x.t(), x)
    return not any(
        t.requires_grad and t.grad_fn is not None and "Copy" in str(t.grad_fn) for t in copies
    )


@holds
def views_are_those_of_torch() -> bool:
    x = torch.arange(24).reshape(2, 3, 4).transpose(0, 2)
    return all(
        torch.equal(one, x.select(dim, 1)) and torch.equal(two, x.narrow(dim, 1, 1))
        for dim in range(3)
        for one, two in [kit.views(x, dim, 1, 1)]
    )


@holds
def views_outside_the_tensor_are_refused() -> list[str]:
    x = torch.zeros(2, 3)
    return [error_of(lambda a=a: kit.views(x, *a)) for a in ((0, 2, 0), (1, 1, 3), (2, 0, 0))]


@holds
def elements_are_read() -> bool:
    x = torch.tensor([[0.0, 2.5], [-3, 7]])
    elements = [kit.element(x.to(d), 1, 0) for d in (*FLOATS, torch.int32)]
    return elements == [(-3.0, -3, True)] * 5 and kit.element(x, 0, 0)[2] is False


@holds
def rows_are_picked_by_a_tensor() -> bool:
    x = torch.randn(5, 3)
    return all(
        torch.equal(kit.pick(x, rows), x[rows.long()])
        for rows in (torch.tensor([4, 0, 4]), torch.tensor([1], dtype=torch.int32))
    )


@holds
def random_numbers_follow_torchs_seed() -> bool:
    def draw() -> list[torch.Tensor]:
        torch.manual_seed(3)
        cpu = torch.device("cpu")
        kinds = [(normal, dtype) for normal in (False, True) for dtype in FLOATS]
        return [kit.noise(4000, n, dtype=d, device=cpu) for n, d in kinds]

    first = draw()
    uniform = first[2]
    normal = first[6]
    return (
        all(map(torch.equal, first, draw()))
        and [tensor.dtype for tensor in first] == [*FLOATS, *FLOATS]
        and bool(2 <= uniform.min() < uniform.max() <= 3)
        and abs(float(normal.mean()) - 5) < 0.1
        and abs(float(normal.std()) - 0.5) < 0.1
    )


@holds
def a_seed_is_drawn_without_any_argument() -> bool:
    torch.manual_seed(5)
    first = kit.seed()
    second = kit.seed()
    torch.manual_seed(5)
    return first == kit.seed() != second and first >= 0


@holds
def a_factory_without_a_named_device_takes_its_first() -> bool:
    return torch.equal(kit.ramp(4), torch.arange(4)) and torch.equal(
        kit.ramp(2, device=torch.device("cpu")), torch.arange(2)
    )


@holds
def a_factory_refuses_a_device_that_it_does_not_serve() -> str:
    return error_of(lambda: kit.ramp(4, device=torch.device("cuda")))


@holds
def meta_tensors_get_results_without_computation() -> bool:
    y = kit.twice(torch.empty(3, 4, device="meta"))
    return (y.device.type, y.shape, y.dtype) == ("meta", (3, 4), torch.float32) and torch.equal(
        kit.twice(torch.arange(3.0)), torch.arange(3.0) * 2
    )


@holds
def a_wrong_dtype_is_refused_with_those_that_are_right() -> str:
    return error_of(lambda: kit.twice(torch.ones(2, dtype=torch.float64)))


if torch.cuda.is_available():

    @holds
    def copies_move_between_devices() -> bool:
        cpu = torch.randn(3, 4)
        gpu = cpu.cuda()
        there = kit.copies(cpu.t(), gpu)[2]
        back = kit.copies(gpu.t(), cpu)
        return (
            there.device == gpu.device
            and there.is_contiguous()
            and torch.equal(there, gpu.t())
            and all(t.device == cpu.device and torch.equal(t, cpu.t()) for t in back[2:4])
            and back[4].device == gpu.device
        )

    @holds
    def factories_make_tensors_on_a_gpu() -> bool:
        def draw() -> torch.Tensor:
            torch.manual_seed(3)
            noise: torch.Tensor = kit.noise(
                4000, normal=False, dtype=torch.float16, device=torch.device("cuda")
            )
            return noise

        first = draw()
        in_range = bool(2 <= first.min() < first.max() <= 3)
        return first.is_cuda and in_range and torch.equal(first, draw())

    @holds
    def elements_of_a_gpu_are_read() -> bool:
        x = torch.tensor([[0.0, 2.5], [-3, 7]]).cuda()
        return kit.element(x, 1, 0) == (-3.0, -3, True)


def evaluate(function: Callable[[], object]) -> object:
    try:
        return function()
    except Exception as error:  # the test that asks for this property shows it
        return f"{type(error).__name__}: {error}"


print(json.dumps({name: evaluate(function) for name, function in PROPERTIES.items()}))
