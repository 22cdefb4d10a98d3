"""Sequences of few steps on a GPU: what is copied or launched once counts as much as the steps.

The sizes are for 132 multiprocessors with 227 KB of shared memory each.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from layer_cases import TOLERANCE, Case, agrees_with_the_loop
from op_cases import launches

pytestmark = pytest.mark.cuda


@pytest.fixture(autouse=True)
def tf32() -> Iterator[None]:
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("needs a GPU with compute capability 8.0")
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


def kernels(case: Case) -> set[str]:
    """The names of the kernels that a forward pass launches."""
    layer = case.layer(device="cuda")
    input, *state = (tensor.detach() for tensor in case.inputs(layer))
    with torch.no_grad():
        return set(launches(lambda: layer(input, tuple(state))))


@pytest.mark.parametrize(
    ("steps", "state", "copies"),
    [(9, 1100, False), (17, 1100, True), (9, 1101, True)],
    ids=["few steps", "many steps", "no whole vectors"],
)
def test_whole_vectors_are_copied_for_many_steps_alone(steps, state, copies) -> None:
    launched = kernels(Case(steps, 300, 12, state))
    assert any("copy_all" in name for name in launched) == copies, launched


@pytest.mark.parametrize(("steps", "whole"), [(16, True), (17, False)])
def test_a_short_sequence_of_some_rows_is_one_launch(steps, whole) -> None:
    if torch.cuda.get_device_properties(0).multi_processor_count != 132:
        pytest.skip("the rows of a block depend on the number of multiprocessors")
    launched = kernels(Case(steps, 60, 8, 1208))
    assert any("grid_kernel" in name for name in launched) == whole, launched


@pytest.mark.parametrize("sizes", [(9, 5, 12, 1100), (5, 20, 4, 1028), (16, 2, 12, 500)], ids=str)
def test_whole_vectors_agree_with_the_loop(monkeypatch, sizes) -> None:
    monkeypatch.setenv("LLTM_LAYER_KERNELS", "gemm")
    case = Case(*sizes)
    # A product in tf32 has the mantissa of float16.
    agrees_with_the_loop(case, case.layer(device="cuda"), tolerance=TOLERANCE[torch.float16])
