"""The constants of the model of a forward step, without a GPU."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from benchmarks import constants
from benchmarks.schema import Size

CUDA = Path(__file__).parents[2] / "csrc" / "kernels" / "cuda"
BOUNDS = CUDA / "common" / "measured_bounds.h"
LAUNCH = 3.0
TRUE = {
    "rows16": (0.01, 0.2),
    "tensor": (1.5, 0.004),
    "cublas": (8.0, 0.02, 0.5),
}


def steps(seed: int) -> list[Size]:
    numbers = torch.randint(16, 2000, (60, 3), generator=torch.Generator().manual_seed(seed))
    return [Size(*row) for row in numbers.tolist()]


@pytest.mark.parametrize("family", TRUE)
def test_a_fit_finds_the_constants_that_made_the_times(family) -> None:
    rows = torch.tensor([constants.terms(family, size, 2) for size in steps(3)]).double()
    true = torch.tensor(TRUE[family]).double()
    times = constants.predicted(family, true, rows, LAUNCH)
    fitted = constants.fit(family, rows, times, LAUNCH)
    torch.testing.assert_close(fitted, true, rtol=1e-6, atol=0)


def test_the_command_prints_every_constant_of_the_plan() -> None:
    body = re.search(r"struct ForwardCosts \{(.*?)\};", BOUNDS.read_text(), re.DOTALL)
    assert body is not None
    in_plan = re.findall(r"double (\w+) =", body[1])
    printed = [name for names in constants.NAMES.values() for name in names]
    # The program measures single steps, and not how far a single estimate is off.
    of_the_plan = ["more_launches_in_loop", "whole_step_error"]
    assert sorted(in_plan) == sorted([*printed, "launch", "more_launches", *of_the_plan])
