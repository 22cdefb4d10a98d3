"""Calls drawn by seed: mixtures of layouts, aliases and sizes, and arguments that do not fit."""

from __future__ import annotations

import random

import pytest
import torch
from op_cases import (
    DTYPES,
    NAMES,
    SMALLEST_SCALE,
    TOLERANCE,
    Inputs,
    assert_agree,
    gradients,
    like,
    make_inputs,
    through_apply,
    through_function,
    through_module,
)

import lltm_conda

ENTRIES = (through_function, through_apply, through_module)
BATCHES, FEATURES, STATES = (0, 1, 2, 5, 16, 33), (0, 1, 3, 8, 17), (1, 2, 5, 8, 16, 33)
REFUSALS = (RuntimeError, TypeError, ValueError, NotImplementedError, AttributeError)


def padded(tensor):
    """Rows further apart than they are long, past an odd offset."""
    flat = tensor.reshape(1, -1) if tensor.dim() == 1 else tensor
    return torch.nn.functional.pad(flat, (1, 2))[:, 1:-2].reshape_as(tensor)


LAYOUTS = {
    "plain": lambda t: t,
    "strided": lambda t: torch.stack([t, torch.full_like(t, float("nan"))], -1)[..., 0],
    "column major": lambda t: t.t().contiguous().t() if t.dim() == 2 else t,
    "unaligned": lambda t: torch.cat([t.new_zeros(1), t.reshape(-1)])[1:].view(t.shape),
    "padded": padded,
    "negated": lambda t: torch._neg_view(-t),
    "expanded": lambda t: t[:1].expand_as(t),
    "flipped": lambda t: t.flip(0),
    "zero": lambda t: torch._efficientzerotensor(t.shape, dtype=t.dtype, device=t.device),
}


class Draw:
    """One random call: the leaves, and how the arguments are made from them."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.rng = random.Random(seed)
        choose = self.rng.choice
        self.dtype = choose(DTYPES)
        batch = choose(BATCHES)
        features = choose(FEATURES)
        state = choose(STATES)
        self.entry = choose(ENTRIES)
        rows = self.entry is not through_module and choose((False, True))
        inputs = make_inputs(
            batch, features, state, dtype=self.dtype, device=device, seed=seed, bias_rows=rows
        )
        self.leaves = [t.requires_grad_(choose((True, True, False))) for t in inputs]
        if not any(t.requires_grad for t in self.leaves):
            self.leaves[1].requires_grad_()
        self.layouts = [choose(list(LAYOUTS)) for _ in NAMES]
        self.alias = choose(("none", "none", "states", "all"))
        self.square = features == state
        self.incoming_layouts = [choose(list(LAYOUTS)) for _ in range(2)]
        self.used = choose(((0,), (1,), (0, 1)))

    def arguments(self, leaves) -> Inputs:
        inputs = Inputs(*(LAYOUTS[name](t) for name, t in zip(self.layouts, leaves, strict=True)))
        if self.alias != "none":
            inputs = inputs._replace(old_cell=inputs.old_h)
        if self.alias == "all" and self.square:
            inputs = inputs._replace(input=inputs.old_h)
        return inputs


@pytest.mark.parametrize("start", range(0, 400, 50))
def test_any_mixture_of_layouts_and_aliases_agrees_with_the_reference(device, start) -> None:
    for seed in range(start, start + 50):
        draw = Draw(seed, device)
        exact = [t.detach().to("cpu", torch.float64).requires_grad_(t.requires_grad)
                 for t in draw.leaves]  # fmt: skip
        outputs = draw.entry(*draw.arguments(draw.leaves))
        expected = lltm_conda.reference(*draw.arguments(exact))
        assert_agree(
            outputs, expected, TOLERANCE[draw.dtype], ("new_h", "new_cell"), SMALLEST_SCALE
        )
        outputs, expected = ([pair[k] for k in draw.used] for pair in (outputs, expected))
        if not outputs[0].requires_grad:
            continue
        incoming = [LAYOUTS[draw.incoming_layouts[k]](t)
                    for k, t in zip(draw.used, like(outputs, seed), strict=True)]  # fmt: skip
        leaves = [t for t in draw.leaves if t.requires_grad]
        actual = gradients(outputs, leaves, incoming)
        want = gradients(
            expected, [t for t in exact if t.requires_grad], [t.cpu().double() for t in incoming]
        )
        # Sums over the batch, and over the uses of one leaf.
        scale = SMALLEST_SCALE * 4 * max(outputs[0].shape[0], 1) ** 0.5
        names = [f"seed {seed}: gradient {k}" for k in range(len(leaves))]
        assert_agree(actual, want, 2 * TOLERANCE[draw.dtype], names, scale)


def spoil(rng: random.Random, tensor):
    """Something that is not a tensor, or not one that fits."""
    kinds = [
        lambda: tensor.to_sparse(),
        lambda: tensor.reshape(1, -1).to_sparse_csr(),
        lambda: torch.quantize_per_tensor(tensor.float(), 0.1, 0, torch.quint8),
        lambda: tensor.float().to_mkldnn(),
        lambda: tensor.to(rng.choice((torch.int64, torch.bool, torch.complex64))),
        lambda: tensor.to("meta"),
        lambda: tensor.unsqueeze(1),
        lambda: tensor.reshape(-1)[: rng.randrange(tensor.numel())],
        lambda: tensor.new_zeros([0] * rng.randrange(1, 7)),
        lambda: tensor.new_zeros(()).expand([1 << 20] * 3),
        lambda: rng.choice((None, 1.5, "x", [tensor], b"", object())),
        lambda: torch.nested.nested_tensor([tensor]),
    ]
    return rng.choice(kinds)()


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("start", range(0, 400, 100))
def test_what_does_not_fit_is_an_error_and_never_a_crash(start) -> None:
    for seed in range(start, start + 100):
        rng = random.Random(seed)
        entry = rng.choice((*ENTRIES[:2], torch.ops.lltm.forward))
        inputs = make_inputs(3, 4, 5, seed=seed, requires_grad=rng.random() < 0.5)
        name = rng.choice(NAMES)
        with torch.no_grad():
            bad = inputs._replace(**{name: spoil(rng, getattr(inputs, name))})
        with pytest.raises(REFUSALS) as refused:
            entry(*bad)
        assert str(refused.value), f"seed {seed}: an error without a word"
