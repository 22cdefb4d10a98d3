"""What a wheel requires of torch follows from the glue in it."""

import pytest
from packaging.requirements import Requirement

from torchship.builder.torch_range import torch_requirement, with_torch

MINORS = [f"2.{minor}" for minor in range(3, 17)]


@pytest.mark.parametrize(
    ("glues", "served"),
    [
        (["stable210"], range(10, 17)),
        (["glue-aten213-abi1-cu13.so"], [13]),
        (["aten24-abi0", "aten24-abi1", "aten25-abi0"], [4, 5]),
        (["aten24-abi0", "aten27-abi1"], [4, 7]),
        (["aten28-abi1", "stable210"], [8, *range(10, 17)]),
        ([f"aten2{minor}-abi1" for minor in range(4, 10)] + ["stable210"], range(4, 17)),
    ],
)
def test_exactly_the_torches_that_a_glue_serves_are_allowed(
    glues: list[str], served: list[int]
) -> None:
    specifier = Requirement(torch_requirement(glues)).specifier
    allowed = [minor for minor in MINORS if f"{minor}.1" in specifier]
    assert allowed == [f"2.{minor}" for minor in served]


def test_files_without_glue_say_nothing() -> None:
    with pytest.raises(ValueError, match="no glue"):
        torch_requirement(["kernels-cpu.so"])


def test_the_requirement_of_torch_alone_is_replaced() -> None:
    words = ["torch>=2.4", "torch-scatter", "torchvision>=0.2", "numpy"]
    assert with_torch(words, "torch>=2.10") == ["torch>=2.10", *words[1:]]
