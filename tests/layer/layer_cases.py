"""Layers, inputs and the oracle that the layer's tests share: a loop over `lltm_conda.reference`.

Tolerances are those of tests/op, times a few: a sequence is a chain of steps, and every step rounds
what the next one multiplies.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from hypothesis import settings
from hypothesis import strategies as st
from op_cases import SMALLEST_SCALE, assert_agree, gradients, like
from op_cases import TOLERANCE as ONE_STEP
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import lltm_conda
from lltm_conda import LLTMLayer

TOLERANCE = {dtype: 4 * tolerance for dtype, tolerance in ONE_STEP.items()}
RESULTS = ("output", "h_n", "c_n")
quick = settings(max_examples=25, deadline=None, database=None)


class Case(NamedTuple):
    """A layer's sizes and options, and whether the state is given."""

    steps: int = 5
    batch: int = 3
    features: int = 4
    state: int = 6
    layers: int = 1
    bidirectional: bool = False
    bias: bool = True
    given_state: bool = True

    def layer(self, seed: int = 0, **options) -> LLTMLayer:
        """With parameters drawn by seed.

        gradgradcheck fails where a pre-activation is within 1e-6 of zero: there ELU's second
        derivative jumps.
        """
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return LLTMLayer(
                self.features,
                self.state,
                self.layers,
                bias=self.bias,
                bidirectional=self.bidirectional,
                **options,
            )

    def inputs(self, layer: LLTMLayer, seed: int = 0) -> tuple[Tensor, ...]:
        """(input, h_0, c_0), or the input alone."""
        generator = torch.Generator().manual_seed(seed)
        like = layer.weights_l0
        count = self.layers * (2 if self.bidirectional else 1)
        shapes = [(self.steps, self.batch, self.features)]
        if self.given_state:
            shapes += [(count, self.batch, self.state)] * 2
        return tuple(
            torch.randn(shape, generator=generator, dtype=torch.float64)
            .to(like.device, like.dtype)
            .requires_grad_()
            for shape in shapes
        )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Sizes either side of a register's and a tile's width, and every option."""
    return Case(
        steps=draw(st.sampled_from((1, 2, 3, 7))),
        batch=draw(st.sampled_from((1, 2, 3, 5, 8, 9, 17))),
        features=draw(st.sampled_from((1, 2, 3, 8, 17, 33))),
        state=draw(st.sampled_from((1, 2, 3, 8, 15, 16, 17, 33))),
        layers=draw(st.integers(1, 3)),
        bidirectional=draw(st.booleans()),
        bias=draw(st.booleans()),
        given_state=draw(st.booleans()),
    )


seeds = st.integers(0, 2**31 - 1)


def parameters_of(layer: LLTMLayer, k: int, reverse: bool) -> tuple[Tensor, Tensor]:
    suffix = f"_l{k}" + ("_reverse" if reverse else "")
    weights = getattr(layer, "weights" + suffix)
    bias = getattr(layer, "bias" + suffix) if layer.bias else weights.new_zeros(len(weights))
    return weights, bias


def loop(layer: LLTMLayer, input: Tensor, h_0=None, c_0=None, lengths=None):
    """(output, h_n, c_n) of `layer`, every sequence of the batch for itself, step by step."""
    steps, batch, _ = input.shape
    finals = []
    for k in range(layer.num_layers):
        directions = []
        for reverse in (False, True) if layer.bidirectional else (False,):
            weights, bias = parameters_of(layer, k, reverse)
            start = [input.new_zeros(batch, layer.state_size)] * 2
            if h_0 is not None:
                start = [h_0[len(finals)], c_0[len(finals)]]
            outputs, final = [], []
            for n in range(batch):
                length = steps if lengths is None else int(lengths[n])
                h = start[0][n : n + 1]
                c = start[1][n : n + 1]
                states = {}
                for t in reversed(range(length)) if reverse else range(length):
                    h, c = lltm_conda.reference(input[t, n : n + 1], weights, bias, h, c)
                    states[t] = h
                empty = torch.zeros_like(h)
                outputs.append(torch.stack([states.get(t, empty) for t in range(steps)]))
                final.append((h, c))
            directions.append(torch.cat(outputs, 1))
            finals.append([torch.cat(states) for states in zip(*final, strict=True)])
        input = torch.cat(directions, 2)
    return input, *(torch.stack(states) for states in zip(*finals, strict=True))


def run(layer: LLTMLayer, input: Tensor, h_0=None, c_0=None, lengths=None):
    """The same of the layer itself, through a PackedSequence where there are lengths."""
    state = None if h_0 is None else (h_0, c_0)
    if lengths is None:
        output, (h_n, c_n) = layer(input, state)
        return output, h_n, c_n
    packed = pack_padded_sequence(input, lengths, enforce_sorted=False)
    output, (h_n, c_n) = layer(packed, state)
    return pad_packed_sequence(output, total_length=input.shape[0])[0], h_n, c_n


def leaves(layer: LLTMLayer, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (*inputs, *layer.parameters())


def names(layer: LLTMLayer, inputs: tuple[Tensor, ...]) -> tuple[str, ...]:
    return (
        *("input", "h_0", "c_0")[: len(inputs)],
        *(name for name, _ in layer.named_parameters()),
    )


def agrees_with_the_loop(case, layer, seed=0, lengths=None, tolerance=1e-12) -> None:
    """Values and gradients of `layer` are those of the loop in float64 on the CPU."""
    inputs = case.inputs(layer, seed)
    exact = copy.deepcopy(layer).to("cpu", torch.float64)
    exact_inputs = tuple(t.detach().to("cpu", torch.float64).requires_grad_() for t in inputs)
    outputs = run(layer, *inputs, lengths=lengths)
    expected = loop(exact, *exact_inputs, lengths=lengths)
    assert_agree(outputs, expected, tolerance, RESULTS, SMALLEST_SCALE)
    incoming = like(outputs, seed + 1)
    actual = gradients(outputs, leaves(layer, inputs), incoming)
    want = gradients(
        expected, leaves(exact, exact_inputs), [g.to("cpu", torch.float64) for g in incoming]
    )
    # Gradients of weights are sums over batch and time.
    assert_agree(actual, want, tolerance, names(layer, inputs), SMALLEST_SCALE)
