"""The table of layouts against the headers of the torch that is installed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from made_facts import make_runtime
from shared_objects import shared_object

from torchship.builder.sources import INCLUDE
from torchship.doctor import judge_file
from torchship.judge import find_torch, read_binary
from torchship.judge.machine.torch_probe import release
from torchship.judge.reading import layouts
from torchship.judge.records import UNKNOWN

SINCE_213 = "_ZN5torch8autograd4Node17release_resourcesEv"
UNTIL_26 = "_ZN3c106DeviceC1ERKSs"


def test_every_row_has_every_field() -> None:
    assert all(tuple(row) == layouts.FIELDS for row in layouts.LAYOUTS.values())
    assert set(layouts.FIELDS) > layouts.HARMLESS
    assert layouts.FIELDS[-2:] == layouts.SLOTS


@pytest.mark.parametrize("minor", [*layouts.LAYOUTS, *layouts.OLDER_LAYOUTS], ids=str)
def test_a_row_holds_what_c_plus_plus_lays_out(minor: tuple[int, int]) -> None:
    """A slip of a digit in a row whose torch is not installed: classes with pointers have sizes in
    whole pointers, and of the two virtual functions no release has moved one alone."""
    row = layouts.layout_of(minor)
    assert row is not None
    assert [name for name in row if name.startswith("sizeof_") and row[name] % 8] == []
    storage, copy = (row[name] for name in layouts.SLOTS)
    assert copy - storage == 8


@pytest.mark.rehearsal  # only a new torch changes it
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


@pytest.mark.parametrize(
    ("minor", "name", "lacks"),
    [
        ((2, 3), SINCE_213, True),  # it came later than the oldest measured minor
        ((2, 3), UNTIL_26, False),  # nobody looked whether 2.3 has it
        ((2, 3), "_ZN2at6Tensor3addEv", False),
        ((2, 8), UNTIL_26, True),
        ((2, 8), SINCE_213, True),
        ((2, 13), SINCE_213, False),
        ((2, 99), SINCE_213, False),
        ((2, 99), UNTIL_26, True),  # it went before the newest measured minor
        ((2, 99), "_ZN2at6Tensor3addEv", False),
    ],
)
def test_of_a_torch_that_was_not_measured_only_the_table_tells_what_it_lacks(
    minor: tuple[int, int], name: str, lacks: bool
) -> None:
    assert layouts.surely_lacks(minor, name) is lacks


@pytest.mark.parametrize("minor", [(2, 3), (2, 8), (2, 99)])
def test_a_torch_that_is_not_here_is_not_refused_for_unknown_symbols(
    minor: tuple[int, int], tmp_path: Path
) -> None:
    stub = shared_object(tmp_path / "stub" / "libtorch_cpu.so", soname="libtorch_cpu.so")
    path = shared_object(tmp_path / "_C.so", undefined=["_ZN2at6Tensor3addEv"], libraries=[stub])
    torch = release(f"{minor[0]}.{minor[1]}.0", minor)
    cause = judge_file(path, make_runtime(torch)).cause
    assert cause is not None
    assert cause.status == UNKNOWN
