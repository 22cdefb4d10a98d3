from __future__ import annotations

import pytest
import torch

from benchmarks import floor
from benchmarks.schema import Ceilings, Floor, Size

CEILINGS = Ceilings(gemm_flops=1e12, copy_bytes_per_second=1e11, launch_us=2.0)
SIZE = Size(16, 32, 128)


def test_operations_and_elements_of_a_step_counted_by_hand() -> None:
    assert floor.forward_flops(SIZE) == 2 * 16 * 160 * 384
    weights, bias, x, row = 384 * 160, 384, 16 * 32, 16 * 128
    in_and_out = (weights + bias + x + 2 * row) + 2 * row
    assert floor.forward_elements(SIZE) == in_and_out + 3 * row


def test_the_floor_is_the_largest_term() -> None:
    assert Floor(1.0, 3.0, 2.0).us == 3.0


@pytest.mark.parametrize("metric", ["forward", "backward", "inference"])
def test_twice_the_ceilings_halve_the_floor(metric: str) -> None:
    half = Ceilings(2e12, 2e11, 1.0)
    slow = floor.model(SIZE, torch.float32, CEILINGS, "split")[metric]
    fast = floor.model(SIZE, torch.float32, half, "split")[metric]
    assert (fast.compute_us, fast.memory_us, fast.launch_us) == pytest.approx(
        (slow.compute_us / 2, slow.memory_us / 2, slow.launch_us / 2)
    )


def test_a_backward_without_input_gradients_has_the_lower_floor() -> None:
    few = floor.model(SIZE, torch.float32, CEILINGS, "tutorial")["backward"]
    every = floor.model(SIZE, torch.float32, CEILINGS, "split")["backward"]
    assert few.compute_us == every.compute_us / 2
    assert few.memory_us < every.memory_us


def test_a_long_sequence_reads_its_weights_once() -> None:
    step = floor.model(SIZE, torch.float32, CEILINGS, "split")["forward"]
    long = floor.model(Size(16, 32, 128, 1000), torch.float32, CEILINGS, "split")["forward"]
    assert long.compute_us == pytest.approx(step.compute_us)
    assert long.memory_us < step.memory_us / 2


def test_ceilings_are_measured() -> None:
    ceilings = floor.measure_ceilings(torch.float32, "cpu", 1 << 16)
    assert ceilings.gemm_flops > 0
    assert ceilings.copy_bytes_per_second > 0
