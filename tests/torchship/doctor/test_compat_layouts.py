"""The table of layouts against the headers of the torch that is installed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from shared_objects import shared_object

from torchship.builder.sources import INCLUDE
from torchship.doctor import find_torch, layouts, read_binary


def test_every_row_has_every_field() -> None:
    assert all(tuple(row) == layouts.FIELDS for row in layouts.LAYOUTS.values())
    assert set(layouts.FIELDS) > layouts.HARMLESS
    assert layouts.FIELDS[-2:] == layouts.SLOTS


def test_the_installed_torch_has_the_layout_of_the_table(tmp_path: Path) -> None:
    """The engine's torch_aten/layout.cpp compiled with its headers, read back from the sections."""
    torch = find_torch()
    expected = layouts.LAYOUTS.get(torch.version_tuple)
    if expected is None or not torch.is_release:
        pytest.skip(f"torch {torch.version} is not in the table")
    path = tmp_path / "layout.so"
    command = ["g++", "-shared", "-fPIC", f"-std=c++{20 if torch.version_tuple >= (2, 14) else 17}"]
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={torch.cxx11_abi}", f"-I{torch.include_dir}"]
    command += [f"-I{torch.include_dir / 'torch' / 'csrc' / 'api' / 'include'}"]
    command += [str(INCLUDE / "torchship" / "torch_aten" / "layout.cpp"), "-o", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    binary = read_binary(path)
    assert binary.problems == ()
    assert binary.layout == expected


def test_a_difference_names_the_field_and_both_values() -> None:
    built = layouts.LAYOUTS[2, 9]
    installed = layouts.LAYOUTS[2, 10]
    assert layouts.difference(built, installed) == (
        ("slot_tensor_impl_storage", 20, 23),
        ("slot_tensor_impl_shallow_copy_from", 28, 31),
    )
    assert layouts.difference(built, built) == ()
    assert layouts.difference({}, installed)[0] == ("dispatch_key_cpu", -1, 50)
    assert layouts.difference({**installed, "extra": 1}, installed) == (("extra", 1, -1),)


def test_a_slot_section_of_another_length_is_a_problem(tmp_path: Path) -> None:
    source = tmp_path / "slots.c"
    source.write_text(
        '__attribute__((section(".torch_extension.vtable"), used)) static const long x[3];'
    )
    path = shared_object(tmp_path / "x.so", layout=layouts.LAYOUTS[(2, 9)], flags=[str(source)])
    assert ".torch_extension.vtable has 24 bytes" in read_binary(path).problems[0]
