"""Reads a handwritten digit, waits, then classifies it: the use of a cell that never forgets.

The digits are those of digits.py, read row by row. Blank rows follow, 0 to 40 of them in
training, and the digit is classified after the last. At every blank row an LSTM multiplies its
cell state by a forget gate, and so the gradient in backward. The LLTM has no such gate and carries
both through the pause unchanged. The test uses pauses far longer than those in training.

    python examples/pause.py                  # CPU, about a minute
    python examples/pause.py --seeds 10       # median and range of seeds 0 to 9
    python examples/pause.py --device cuda

Writes pause.png and pause.json: the accuracy on held-out digits by length of the pause, for the
LLTM and for torch's LSTM (with its default start, and told to remember) and GRU, trained alike.
A seed decides the split, the start and the order of the batches.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
import torch.nn.functional as F

# digits stands before matplotlib: it says what to install, and chooses plots without a display.
from digits import BATCH_SIZE, PEAK_LEARNING_RATE, STATE_SIZE, Split, load_splits, positive
from matplotlib import pyplot as plt
from matplotlib.ticker import PercentFormatter
from torch import Tensor, nn

from lltm_conda import LLTMLayer, __version__

LONGEST_TRAINED = 40
PAUSES = (0, 10, 20, 40, 80, 160, 320, 640, 1280)


def patient_lstm(*arguments: int, **options: bool) -> nn.LSTM:
    """An LSTM told to remember: its forget gate starts at σ(3) = 0.95 instead of 0.5."""
    lstm = nn.LSTM(*arguments, **options)
    with torch.no_grad():
        lstm.bias_ih_l0[STATE_SIZE : 2 * STATE_SIZE] = 3.0
        lstm.bias_hh_l0[STATE_SIZE : 2 * STATE_SIZE] = 0.0
    return lstm


KINDS: dict[str, Callable[..., nn.Module]] = {
    "LLTM": LLTMLayer,
    "LSTM": nn.LSTM,
    "LSTM, told to remember": patient_lstm,
    "GRU": nn.GRU,
}
STYLES = {
    "LLTM": {"color": "#d95f02", "linewidth": 2.5},
    "LSTM": {"color": "#1f77b4"},
    "LSTM, told to remember": {"color": "#1f77b4", "linestyle": "--"},
    "GRU": {"color": "#7f7f7f"},
}


class PatientReader(nn.Module):
    """A recurrent layer over rows and pause, and a linear layer on its last hidden state."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer = KINDS[kind](8, STATE_SIZE, batch_first=True)
        self.classifier = nn.Linear(STATE_SIZE, 10)

    def forward(self, rows: Tensor) -> Tensor:
        """`(N, rows, 8)` to `(N, 10)` logits."""
        return self.classifier(self.layer(rows)[0][:, -1])


def with_pause(images: Tensor, pause: int) -> Tensor:
    """`(N, 8, 8)` images followed by `pause` blank rows: `(N, 8 + pause, 8)`."""
    return F.pad(images, (0, 0, 0, pause))


def train(kind: str, split: Split, epochs: int, seed: int) -> PatientReader:
    """Trains one kind; every kind gets the same batches with the same pauses."""
    torch.manual_seed(seed)
    model = PatientReader(kind).to(split.images.device)
    batches = -(-len(split.labels) // BATCH_SIZE)
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, PEAK_LEARNING_RATE, total_steps=epochs * batches
    )
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for batch in torch.randperm(len(split.labels), generator=generator).split(BATCH_SIZE):
            pause = int(torch.randint(LONGEST_TRAINED + 1, (), generator=generator))
            picked = batch.to(split.images.device)
            logits = model(with_pause(split.images[picked], pause))
            optimizer.zero_grad()
            F.cross_entropy(logits, split.labels[picked]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    return model


@torch.no_grad()
def accuracies(model: PatientReader, split: Split) -> list[float]:
    """The accuracy for each of `PAUSES`."""
    guesses = [model(with_pause(split.images, pause)).argmax(1) for pause in PAUSES]
    return [(guess == split.labels).double().mean().item() for guess in guesses]


def median_and_range(runs: list[list[float]]) -> tuple[list[float], list[float], list[float]]:
    """By length of the pause: the median over the seeds, the least and the most."""
    lengths = list(zip(*runs, strict=True))
    return [median(one) for one in lengths], [*map(min, lengths)], [*map(max, lengths)]


def draw(accuracies_by_kind: dict[str, list[list[float]]], path: Path) -> None:
    """Draws the accuracy by length of the pause: a line for the median of the seeds, a band from
    the least to the most. The lengths used in training are shaded."""
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    axes.axvspan(0, LONGEST_TRAINED, color="#eeeeee")
    axes.text(6, 0.03, "trained", color="#666666")
    for kind, runs in accuracies_by_kind.items():
        values, least, most = median_and_range(runs)
        colour = STYLES[kind]["color"]
        axes.fill_between(PAUSES, least, most, color=colour, alpha=0.12, linewidth=0)
        axes.plot(PAUSES, values, marker="o", markersize=3, label=kind, **STYLES[kind])
    axes.set_xscale("symlog", linthresh=10)
    axes.set_xticks(PAUSES, [str(pause) for pause in PAUSES])
    axes.minorticks_off()
    axes.set_xlabel("blank rows between reading and naming")
    axes.set_ylabel("accuracy on held-out digits")
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 0.12), frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> int:
    """Trains all kinds and saves the results."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--epochs", type=positive, default=30)
    parser.add_argument("--seeds", type=positive, default=1, help="how many, from 0 on")
    results = Path("build/examples/pause")
    parser.add_argument("--out", type=Path, default=results, help="folder for the results")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda needs a GPU; see: python -m lltm_conda")
    torch.set_num_threads(1)  # 64 rows per step are too little work for several threads
    accuracies_by_kind: dict[str, list[list[float]]] = {kind: [] for kind in KINDS}
    for seed in range(options.seeds):
        train_split, held_out = load_splits(seed, torch.device(options.device))
        for kind in KINDS:
            start = time.perf_counter()
            model = train(kind, train_split, options.epochs, seed)
            seconds = time.perf_counter() - start
            by_pause = accuracies(model, held_out)
            accuracies_by_kind[kind].append(by_pause)
            summary = ", ".join(f"{p}: {a:.1%}" for p, a in zip(PAUSES, by_pause, strict=True))
            run = f"seed {seed}, {kind} ({seconds:.0f} s)"
            print(f"{run} accuracy by pause: {summary}", flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    draw(accuracies_by_kind, options.out / "pause.png")
    facts = {
        "pauses": PAUSES,
        "longest_trained": LONGEST_TRAINED,
        "accuracy": accuracies_by_kind,
        "held_out_images": len(held_out.labels),
        "epochs": options.epochs,
        "seeds": list(range(options.seeds)),
        "lltm": __version__,
        "torch": torch.__version__,
    }
    (options.out / "pause.json").write_text(json.dumps(facts, indent=2) + "\n")
    print(f"results in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
