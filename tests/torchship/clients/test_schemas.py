"""What LibTorch's stable ABI cannot pass is refused at compile time, with the way round."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from small_clients import FOLDER

from torchship.builder.sources import INCLUDE

TORCH = Path(torch.__file__).parent / "include"
OPERATOR = """
template <typename Torch, Device device>
struct %(struct)s {
  using Tensor = typename Torch::Tensor;
  static constexpr const char* kSchema = "%(struct)s(Tensor x%(schema)s) -> Tensor";
  static Tensor run(const Tensor& x%(arguments)s) { return x; }
};
"""
FACTORY = """
template <typename Torch, Device device>
struct %(struct)s {
  static constexpr const char* kSchema = "%(struct)s() -> int";
  static int64_t run() { return 1; }
};
"""


class Operator(NamedTuple):
    """What follows the tensor x in the schema and in C++."""

    schema: str = ""
    arguments: str = ""
    devices: str = "kOnCPU"
    template: str = OPERATOR


def compile_operators(folder: Path, *operators: Operator, target: int = 10) -> list[str]:
    """The messages of the compiler's errors for operators of a glue for torch 2.`target`."""
    structs = "".join(
        one.template % {"struct": f"Op{k}", "schema": one.schema, "arguments": one.arguments}
        for k, one in enumerate(operators)
    )
    entries = " ".join(f"OPERATOR(op{k}, Op{k}, {one.devices})" for k, one in enumerate(operators))
    source = folder / "register.cpp"
    source.write_text(
        '#include "torchship/register.h"\n'
        f"namespace PROJECT_NAMESPACE {{ {structs} }}\n"
        f"#define OPERATORS(OPERATOR) {entries}\n"
        "PROJECT_OPERATORS(OPERATORS)\n"
    )
    command = [*os.environ.get("CXX", "c++").split(), "-std=c++17", "-fsyntax-only"]
    command += [f"-DTORCH_TARGET_VERSION={(2 << 56) | (target << 48)}ULL", f"-I{INCLUDE}"]
    command += [f"-I{FOLDER / 'kit' / 'csrc'}", "-isystem", str(TORCH), str(source)]
    process = subprocess.run(command, capture_output=True, text=True)
    messages = [line for line in process.stderr.splitlines() if "error:" in line]
    assert (process.returncode == 0) == (messages == []), process.stderr
    return messages


WAYS_ROUND = {
    "write `float` (or `int`) in kSchema": [
        Operator(", Scalar alpha", ", double"),
        Operator(", Scalar? alpha=None", ", std::optional<double>"),
    ],
    "draw with Torch::fill_uniform, Torch::fill_normal or Torch::draw_seed": [
        Operator(", *, Generator? generator=None", ", std::optional<int64_t>"),
    ],
    "pass its parts as Tensor, float, int or str": [
        Operator(", complex factor", ", double"),
        Operator(", Dict(str, Tensor) more", ", double"),
    ],
}


def test_what_cannot_be_said_is_refused_with_the_way_round(tmp_path: Path) -> None:
    refused = [operator for operators in WAYS_ROUND.values() for operator in operators]
    messages = compile_operators(tmp_path, *refused)
    ways = Counter(way for message in messages for way in WAYS_ROUND if way in message)
    assert ways == {way: len(operators) for way, operators in WAYS_ROUND.items()}
    assert len(messages) == len(refused)
    assert all("LibTorch's stable ABI" in message for message in messages)


@pytest.mark.slow
def test_autocast_is_refused_where_it_has_nothing_to_do(tmp_path: Path) -> None:
    casts_to_two = Operator(devices="kOnCPU|kAutocast|kAutocastFloat32")
    factory = Operator(devices="kOnCPU|kAutocast", template=FACTORY)
    both, without = compile_operators(tmp_path, casts_to_two, factory)
    assert "autocast casts to one dtype: name kAutocast or kAutocastFloat32" in both
    assert "takes no tensor that autocast could cast: leave kAutocast out" in without


@pytest.mark.slow
def test_what_can_be_said_is_accepted(tmp_path: Path) -> None:
    accepted = [
        Operator(", ScalarType dtype", ", typename Torch::DtypeArgument"),
        Operator(", float scalar", ", double"),
        Operator(", Device? device=None", ", std::optional<typename Torch::DeviceArgument>"),
        Operator(", int[] sizes, str mode", ", std::vector<int64_t>, std::string"),
        Operator(devices="kOnCPU | kOnCUDA | kOnMeta"),
        Operator(devices="kOnCPU | kAutocast"),
        Operator(devices="kOnCPU | kAutocastFloat32"),
    ]
    assert compile_operators(tmp_path, *accepted) == []


@pytest.mark.slow  # for another torch than the others, so it is compiled alone
def test_a_generator_is_accepted_where_the_oldest_torch_has_it(tmp_path: Path) -> None:
    taken = Operator(", *, Generator? generator=None", ", std::optional<torch::stable::Generator>")
    assert compile_operators(tmp_path, taken, target=13) == []
