"""What the page on training says of a state that is carried from chunk to chunk."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lltm_conda import LLTMLayer


def largest_cell_states(layer: nn.Module, scale: float) -> list[float]:
    """The largest |c| after each of 60 chunks of random input, with c scaled between chunks."""
    generator = torch.Generator().manual_seed(1)
    state: tuple[Tensor, Tensor] | None = None
    largest = []
    with torch.no_grad():
        for _ in range(60):
            _, (h, c) = layer(torch.randn(20, 8, 4, generator=generator), state)
            largest.append(c.abs().max().item())
            state = (h, scale * c)
    return largest


def make(module: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return module(4, 16)


def test_a_carried_cell_state_grows_with_the_steps() -> None:
    largest = largest_cell_states(make(LLTMLayer), 1.0)
    assert largest[59] > 3 * largest[14] > 9 * largest[2]


def test_a_cell_state_halved_between_chunks_stays_bounded() -> None:
    largest = largest_cell_states(make(LLTMLayer), 0.5)
    assert max(largest[30:]) < 1.5 * max(largest[:30])
    assert max(largest) < 0.2 * largest_cell_states(make(LLTMLayer), 1.0)[59]


def test_the_cell_state_of_an_lstm_stays_bounded() -> None:
    assert max(largest_cell_states(make(nn.LSTM), 1.0)) < 3
