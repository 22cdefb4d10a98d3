"""The table of a kernels object, called without torch through the C header alone."""

from __future__ import annotations

import re

import kernel_table
import numpy as np
import torch

import lltm_conda
from lltm_conda._project import PROJECT

CPU = PROJECT.folder / "lib" / "kernels-cpu.so"


def test_the_built_table_has_the_abi_and_the_size_of_the_header() -> None:
    head = kernel_table.table(CPU).head
    abi = re.findall(r"#define LLTM_KERNEL_ABI (\d+)", kernel_table.HEADER.read_text())
    assert [str(head.abi)] == abi
    assert head.byte_size == kernel_table.interface().sizeof("lltm_kernel_functions")
    assert kernel_table.interface().string(head.device) == b"cpu"


def test_a_cpu_kernel_computes_what_the_header_says() -> None:
    ffi = kernel_table.interface()

    @ffi.callback("lltm_parallel_for")
    def run(begin: int, end: int, grain: int, function: object, context: object) -> None:
        function(begin, end, context)  # type: ignore[operator]

    torch.manual_seed(0)
    old_cell = torch.randn(5, 7)
    z = torch.randn(5, 3, 7)
    new_h = torch.zeros(5, 7)
    new_cell = torch.zeros(5, 7)
    tensors = {"gates": z, "old_cell": old_cell, "new_h": new_h, "new_cell": new_cell}
    arguments = ffi.new("lltm_step_forward_arguments*")
    arguments.sizes = {"batch_size": 5, "state_size": 7}
    for name, tensor in tensors.items():
        setattr(arguments, name, ffi.cast("void*", tensor.data_ptr()))
    execution = ffi.new("lltm_execution*", {"parallel_for": run})
    float32 = ffi.cast("lltm_dtype", 6)
    error = kernel_table.table(CPU).pointwise_forward(float32, arguments, execution)
    assert error == ffi.NULL
    # A product with the identity leaves z as the pre-activations.
    weights = torch.eye(21, 28).roll(7, 1)
    bias = torch.zeros(21)
    old_h = torch.zeros(5, 7)
    want = lltm_conda.reference(z.flatten(1), weights, bias, old_h, old_cell)
    for actual, expected in zip((new_h, new_cell), want, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
