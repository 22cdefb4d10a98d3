"""What is read out of a mangled name is what c++filt says."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from draws import differences, seeds

from torchship.doctor.reasons.demangle import qualified_name
from torchship.judge.reading.binary import is_torch_symbol, symbol_flavour
from torchship.judge.reading.elf import Elf

TORCH = Path(torch.__file__).parent
LIBRARIES = ("libc10.so", "libtorch_python.so", "libtorch_cpu.so")
#: A namespace of torch's libraries. The names of the others are not torch's own.
SPACES = ("at::", "c10::", "torch::", "caffe2::")
KIND = re.compile(
    r"(?:(?:non-virtual|virtual|covariant return) thunk to |vtable for |typeinfo name for "
    r"|typeinfo for |VTT for |guard variable for |reference temporary #\d+ for )*"
)
OLD_STRING = re.compile(
    r"std::string\b|std::basic_string<char, std::char_traits<char>, std::allocator<char> >"
)

pytestmark = pytest.mark.skipif(shutil.which("c++filt") is None, reason="c++filt is in binutils")


@pytest.fixture(scope="module")
def names() -> list[str]:
    """Mangled names out of torch's libraries, drawn."""
    every = set()
    for library in LIBRARIES:
        with Elf(TORCH / "lib" / library) as elf:
            every |= {name.decode() for name, _, _ in elf.symbols()}
    drawn = seeds(20_000)
    return random.Random(drawn.start).sample(sorted(every), min(len(drawn), len(every)))


def readable(names: list[str], *options: str) -> list[str]:
    command = ["c++filt", *options]
    done = subprocess.run(
        command, input="\n".join(names), text=True, capture_output=True, check=True
    )
    return done.stdout.split("\n")


def without_arguments(name: str) -> str:
    """A readable name without template arguments and tags of the ABI."""
    kept, depth = "", 0
    for at, character in enumerate(name):
        if character == "<" and not kept.endswith(("operator", "operator<")):
            depth += 1
        elif character == ">" and depth and name[at - 1] != "-":
            depth -= 1
        elif not depth:
            kept += character
    return kept.replace("[abi:cxx11]", "")


def is_of_torch(mangled: str, short: str) -> bool:
    """`short` is the readable name without parameters."""
    if mangled == short:
        return mangled.startswith(("aoti_torch_", "torch_", "THP"))
    if re.match(r"_Z(?:T[ISVT]P?[FZ]|(?:GV)?Z)", mangled):
        return False  # the type of a function, or what lies in one: who uses it has it
    body = KIND.sub("", short, count=1)
    return body.startswith(SPACES) or re.fullmatch(r"THP\w+", without_arguments(body)) is not None


def flavour_of(full: str) -> int | None:
    """`full` is the readable name with its parameters."""
    if "__cxx11::" in full or "[abi:cxx11]" in full:
        return 1
    return 0 if OLD_STRING.search(full) else None


def test_symbols_of_torch_are_those_of_its_namespaces(names: list[str]) -> None:
    pairs = zip(names, readable(names, "-p"), strict=True)
    wrong = [
        f"{name}: {short}"
        for name, short in pairs
        if is_torch_symbol(name.encode()) != is_of_torch(name, short)
        and not (name.startswith("_ZT") and short.endswith(("*", "&")))
    ]
    assert not wrong, differences(wrong)


def test_the_flavour_of_a_name_is_that_of_its_strings(names: list[str]) -> None:
    pairs = zip(names, readable(names), strict=True)
    mangled = ((name, full) for name, full in pairs if name != full)
    wrong = [
        f"{name}: {full}" for name, full in mangled if symbol_flavour(name) != flavour_of(full)
    ]
    assert not wrong, differences(wrong)


def test_a_name_of_the_old_flavour_is_told_as_c_filt_tells_it(names: list[str]) -> None:
    """The same names, as libraries of the old C++ ABI have them."""
    new = "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
    old = [name.replace(new, "Ss") for name in names if new in name]
    old = [name for name in old if "cxx11" not in name]
    assert old
    pairs = list(zip(old, readable(old), strict=True))
    wrong = [
        f"{name}: {full}"
        for name, full in pairs
        if name != full and symbol_flavour(name) != flavour_of(full)
    ]
    assert not wrong, differences(wrong)


def test_a_qualified_name_is_the_start_of_the_readable_one(names: list[str]) -> None:
    wrong = []
    for name, short in zip(names, readable(names, "-p"), strict=True):
        qualified = re.sub(r"^(virtual table|table|type name|type) of ", "", qualified_name(name))
        body = without_arguments(KIND.sub("", short, count=1))
        if name == short:
            body = ""
        if not body.startswith(qualified):
            wrong.append(f"{name}: {qualified} for {body}")
    assert not wrong, differences(wrong)
