"""The table of counterparts agrees with torch: its headers, its operators and its dispatcher."""

import ctypes
import re
import struct
from functools import cache
from pathlib import Path

import pytest
import torch

from torchship.judge.reading.layouts import symbol_range
from torchship.porting.counterparts import (
    METHODS,
    OPERATORS,
    SHIMS,
    Counterpart,
    Status,
    all_rows,
    find_macro,
    find_method,
    find_name,
    minor,
    operators,
)
from torchship.porting.tokens import Kind, tokenize

INCLUDE = Path(torch.__file__).parent / "include"
STABLE = INCLUDE / "torch/csrc/stable"
INSTALLED = minor(torch.__version__.partition("+")[0])[:2]
#: The oldest torch of the stable ABI, which no header guards anything for.
FIRST = (2, 9)
GUARD = re.compile(r"#\s*if\s+TORCH_FEATURE_VERSION >= TORCH_VERSION_(\d+)_(\d+)_\d+")


@cache
def guards() -> dict[str, tuple[int, ...]]:
    """The oldest torch for which the installed headers show each name of the stable ABI."""
    oldest: dict[str, tuple[int, ...]] = {}
    folders = [STABLE, INCLUDE / "torch/headeronly", INCLUDE / "torch/csrc/inductor/aoti_torch/c"]
    for folder in folders:
        for header in sorted(folder.rglob("*.h")):
            for name, version in guarded(header.read_text(encoding="utf-8")):
                oldest[name] = min(oldest.get(name, version), version)
    return oldest


def guarded(header: str):
    """Each name in a header with the version that the conditions around it ask for."""
    conditions = [FIRST]
    for line in header.splitlines():
        directive = line.strip()
        if directive.startswith("#if"):
            guard = GUARD.match(directive)
            conditions.append((int(guard[1]), int(guard[2])) if guard else FIRST)
        elif directive.startswith("#endif"):
            conditions.pop()
        elif not directive.startswith(("//", "*", "/*", "///")):
            for token in tokenize(line):
                if token.kind in (Kind.NAME, Kind.DEFINE):
                    yield token.text, max(conditions)


def last_name(row: Counterpart) -> str:
    return re.findall(r"\w+", row.stable.partition("<")[0])[-1]


OF_TORCH = [
    row
    for row in all_rows()
    if row.stable.startswith(("torch", "aoti", "ST", "THO")) and not row.name.endswith("*")
]


def is_as_the_table_says(row: Counterpart) -> bool:
    name = last_name(row)
    if minor(row.built_with) > INSTALLED:
        return name not in wrappers()  # only younger headers have it
    # The enumerators and containers of C++ are as old as the stable ABI.
    return name in guards() and guards()[name] <= minor(row.torch)


def test_the_headers_have_a_counterpart_since_the_torch_that_the_table_says() -> None:
    assert len(OF_TORCH) > 100
    assert [row for row in OF_TORCH if not is_as_the_table_says(row)] == []


def test_a_wrapper_needs_no_newer_torch_than_its_guard() -> None:
    guarded_rows = {
        row.name: (minor(row.torch), wrappers()[name])
        for row in OPERATORS
        if row.stable.startswith("torch::stable::")
        and (name := row.stable.removeprefix("torch::stable::")) in wrappers()
    }
    assert guarded_rows
    assert {name: pair for name, pair in guarded_rows.items() if pair[0] != pair[1]} == {}


@cache
def wrappers() -> dict[str, tuple[int, ...]]:
    """The functions of `ops.h`, with the oldest torch of any of their overloads."""
    declared: dict[str, tuple[int, ...]] = {}
    conditions = [FIRST]
    for line in (STABLE / "ops.h").read_text(encoding="utf-8").splitlines():
        if line.startswith("#if"):
            guard = GUARD.match(line)
            conditions.append((int(guard[1]), int(guard[2])) if guard else FIRST)
        elif line.startswith("#endif"):
            conditions.pop()
        elif function := re.match(r"inline [\w:<>, &]+? (\w+)\(", line):
            version = max(conditions)
            declared[function[1]] = min(declared.get(function[1], version), version)
    return declared


def test_every_wrapper_of_torch_is_in_the_table() -> None:
    listed = {last_name(row) for row in OPERATORS if row.stable}
    assert set(wrappers()) <= listed


def test_every_method_of_the_stable_tensor_is_in_the_table() -> None:
    header = (STABLE / "tensor_struct.h").read_text(encoding="utf-8")
    methods = set(re.findall(r"^  [\w:*&<> ]+?[ *&](\w+)\([^)]*\) const", header, re.MULTILINE))
    listed = {last_name(row) for row in METHODS if row.stable.startswith("torch::stable::Tensor")}
    # ATen's tensor has neither.
    assert methods - listed == {"get", "get_device_index"}
    assert len(methods) > 15


@pytest.mark.parametrize("version", SHIMS)
def test_the_c_functions_are_as_old_as_the_table_says(version: str) -> None:
    names = SHIMS[version].split()
    if minor(version) > INSTALLED:
        assert not set(names) & set(guards())
    else:
        assert {name: guards().get(name) for name in names} == dict.fromkeys(names, minor(version))


def test_every_c_function_of_torch_is_in_the_table() -> None:
    header = (STABLE / "c/shim.h").read_text(encoding="utf-8")
    functions = set(re.findall(r"\b(torch_\w+)\(", header))
    listed = {name for names in SHIMS.values() for name in names.split()}
    assert {name for name in functions - listed if not name.startswith("torch_tag_")} == set()


def test_no_name_is_in_two_rows_of_one_kind() -> None:
    for find in (find_macro, find_method, find_name):
        for row in all_rows():
            match = find(row.name)
            assert match is None or match.name.rstrip("*") <= row.name


def test_a_row_without_a_counterpart_says_the_way_round() -> None:
    silent = [row.name for row in all_rows() if not row.stable and not row.advice]
    assert silent == []


@pytest.mark.skipif(INSTALLED != (2, 13), reason="the table of operators is that of torch 2.13")
def test_the_operators_are_those_of_torch() -> None:
    from measurements.list_operators import make_table

    table = make_table(oldest=None)
    assert operators().callable == table["callable"]
    assert operators().blocked == table["blocked"]
    assert sorted(operators().partly) == table["partly"]


@cache
def library() -> ctypes.CDLL:
    return ctypes.CDLL(str(Path(torch.__file__).parent / "lib/libtorch_cpu.so"))


def new_handle() -> int:
    """A handle of a new tensor of two zeros."""
    sizes = (ctypes.c_int64 * 1)(2)
    strides = (ctypes.c_int64 * 1)(1)
    handle = ctypes.c_void_p()
    arguments = (ctypes.c_int64(1), sizes, strides, library().aoti_torch_dtype_float32(), 0, 0)
    assert library().aoti_torch_empty_strided(*arguments, ctypes.byref(handle)) == 0
    assert handle.value is not None
    return handle.value


def dispatch(operator: str, overload: str, *values: int) -> bool:
    """Whether the dispatcher takes the call; values are tensors' handles or bits of numbers."""
    stack = (ctypes.c_uint64 * 8)(*values)
    version = ctypes.c_uint64(INSTALLED[0] << 56 | INSTALLED[1] << 48)
    call = library().torch_call_dispatcher
    return call(operator.encode(), overload.encode(), stack, version) == 0


def bits(number: float) -> int:
    return int(struct.unpack("<Q", struct.pack("<d", number))[0])


def test_the_dispatcher_takes_tensors_and_refuses_a_scalar() -> None:
    assert dispatch("aten::mul", "Tensor", new_handle(), new_handle())
    assert not dispatch("aten::mul", "Scalar", new_handle(), bits(2.0))
    assert "mul" in operators().partly
    assert not dispatch("aten::add", "Tensor", new_handle(), new_handle(), bits(1.0))
    assert operators().blocked["add"]["type"] == "Scalar"


def test_an_operator_without_a_wrapper_goes_through_the_dispatcher() -> None:
    row = find_method("cumsum")
    assert row is not None
    assert row.status is Status.DISPATCHER
    assert row.torch == "2.10"


@pytest.mark.parametrize("version", SHIMS)
def test_the_doctor_knows_which_torch_has_each_c_function_of_the_stable_abi(version: str) -> None:
    """So that `torch-doctor --torch 2.13` refuses an extension that calls those of 2.14."""
    of_builds = re.compile("cuda|mps")  # in some builds of a torch alone
    names = [name for name in SHIMS[version].split() if not of_builds.search(name)]
    firsts = {name: (symbol_range(name) or (None,))[0] for name in names}
    assert firsts == dict.fromkeys(names, minor(version))
