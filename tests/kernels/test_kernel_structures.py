"""scripts/kernel_structures.py reads lltm_kernels.h as a C compiler does, and its structures serve
to call the CPU kernels."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lltm_conda
from lltm_conda._project import PROJECT

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "scripts"))

from kernel_structures import HEADER, KernelInterface, header_text, read_header  # noqa: E402

STRUCTURES = {
    name: c_type
    for name, c_type in read_header().types.items()
    if isinstance(c_type, type) and issubclass(c_type, ctypes.Structure)
}


def cpu_kernels() -> Any:
    return read_header().table(ctypes.CDLL(str((PROJECT.folder / "lib") / "kernels-cpu.so")))


def test_every_structure_of_the_header_is_read() -> None:
    assert len(STRUCTURES) == header_text().count("typedef struct {")


def test_members_lie_where_the_compiler_puts_them(tmp_path: Path) -> None:
    wanted = [
        f"{name}.{field[0]} {getattr(c_type, field[0]).offset} {getattr(c_type, field[0]).size}"
        for name, c_type in STRUCTURES.items()
        for field in c_type._fields_
    ]
    prints = "\n".join(
        f'printf("{name}.{field[0]} %zu %zu\\n", offsetof({name}, {field[0]}), '
        f"sizeof((({name}*)0)->{field[0]}));"
        for name, c_type in STRUCTURES.items()
        for field in c_type._fields_
    )
    source = tmp_path / "layout.c"
    includes = f'#include <stddef.h>\n#include <stdio.h>\n#include "{HEADER}"\n'
    source.write_text(f"{includes}int main(void) {{\n{prints}\n}}\n")
    subprocess.run(["cc", "-o", tmp_path / "layout", source], check=True)
    done = subprocess.run([tmp_path / "layout"], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == wanted


def test_the_built_table_has_the_abi_and_the_size_that_are_read() -> None:
    table = cpu_kernels()
    assert table.head.abi == read_header().constants["LLTM_KERNEL_ABI"]
    assert table.head.byte_size == ctypes.sizeof(table)
    assert table.head.device == b"cpu"


def test_a_cpu_kernel_computes_what_the_structures_say() -> None:
    types = read_header().types

    def run(begin: int, end: int, grain: int, function: Any, context: Any) -> None:
        function(begin, end, context)

    execution = types["lltm_execution"](parallel_for=types["lltm_parallel_for"](run))
    torch.manual_seed(0)
    old_cell, z = torch.randn(5, 7), torch.randn(5, 3, 7)
    new_h, new_cell = torch.zeros(5, 7), torch.zeros(5, 7)
    arguments = types["lltm_cell_forward_arguments"](
        batch_size=5,
        state_size=7,
        gates=z.data_ptr(),
        old_cell=old_cell.data_ptr(),
        new_h=new_h.data_ptr(),
        new_cell=new_cell.data_ptr(),
    )
    assert cpu_kernels().cell_forward(0, arguments, execution) is None
    # A product with the identity leaves z as the pre-activations.
    weights = torch.eye(21, 28).roll(7, 1)
    want = lltm_conda.reference(z.flatten(1), weights, torch.zeros(21), torch.zeros(5, 7), old_cell)
    for got, expected in zip((new_h, new_cell), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_a_declaration_that_is_not_understood_is_an_error() -> None:
    with pytest.raises(ValueError, match="some_type"):
        KernelInterface("typedef struct { some_type value; } name;")
