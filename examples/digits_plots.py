"""The two pictures of examples/digits.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")  # files only: no display is needed

from matplotlib import pyplot as plt
from matplotlib.ticker import MaxNLocator, NullLocator, PercentFormatter
from sklearn.metrics import confusion_matrix as count_pairs

TRAIN_COLOUR = "#1f77b4"
HELD_OUT_COLOUR = "#d95f02"


def learning_curve(history: Sequence[dict[str, float]], required: float, path: Path) -> None:
    """Loss and error rate by epoch, for training and held-out images.

    The logarithmic axis of the error rate keeps differences above 95 % accuracy visible.
    """
    epochs = range(1, len(history) + 1)
    figure, (loss_axes, error_axes) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for key, label, colour in (
        ("train", "training", TRAIN_COLOUR),
        ("held_out", "held out", HELD_OUT_COLOUR),
    ):
        losses = [epoch[f"{key}_loss"] for epoch in history]
        errors = [100 * (1 - epoch[f"{key}_accuracy"]) for epoch in history]
        loss_axes.plot(epochs, losses, color=colour, label=label)
        error_axes.plot(epochs, errors, color=colour, label=label)
    loss_axes.set(xlabel="epoch", ylabel="cross-entropy (nats)", yscale="log", title="Loss")
    loss_axes.set_yticks([0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2])
    loss_axes.yaxis.set_major_formatter("{x:g}")
    lowest = min(min(epoch["train_loss"], epoch["held_out_loss"]) for epoch in history)
    loss_axes.set_ylim(0.8 * lowest, 3)
    loss_axes.legend(frameon=False)

    limit = 100 * (1 - required)
    error_axes.axhline(limit, color="0.4", linestyle="--", linewidth=1)
    error_axes.annotate(
        f"allowed: {limit:.0f} %",
        (1, limit),
        xycoords=("axes fraction", "data"),
        xytext=(-4, 4),
        textcoords="offset points",
        ha="right",
        color="0.3",
    )
    last = 100 * (1 - history[-1]["held_out_accuracy"])
    # Linear below 1 %, so that an error rate of 0 can be drawn.
    error_axes.set_yscale("symlog", linthresh=1)
    error_axes.set_ylim(bottom=0)
    error_axes.set_yticks([0, 1, 2, 5, 10, 20, 50, 100])
    error_axes.yaxis.set_major_formatter(PercentFormatter(decimals=0))
    error_axes.set(xlabel="epoch", ylabel="images classified wrongly")
    error_axes.set_title(f"Error rate; held out, at the end: {last:.1f} %")
    error_axes.legend(frameon=False)
    for axes in (loss_axes, error_axes):
        axes.yaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def confusion_matrix(labels: Sequence[int], predicted: Sequence[int], path: Path) -> None:
    """Counts of predicted labels for each digit; mistakes in colour, correct ones in grey."""
    counts = count_pairs(labels, predicted, labels=range(10))
    mistakes = np.ma.masked_equal(counts * (1 - np.eye(10, dtype=int)), 0)
    figure, axes = plt.subplots(figsize=(6.5, 6), layout="constrained")
    most = max(4, int(counts[~mistakes.mask].max(initial=0)))
    axes.imshow(mistakes, cmap="Oranges", vmin=0, vmax=most)
    for true in range(10):
        for guess in range(10):
            if true == guess:
                axes.add_patch(plt.Rectangle((guess - 0.5, true - 0.5), 1, 1, color="0.9"))
            if counts[true, guess]:
                axes.text(
                    guess,
                    true,
                    str(counts[true, guess]),
                    ha="center",
                    va="center",
                    fontweight="bold" if true != guess else "normal",
                )
    recall = counts.diagonal() / counts.sum(axis=1)
    axes.set_xticks(range(10))
    axes.set_yticks(range(10), [f"{digit}  ({recall[digit]:.0%})" for digit in range(10)])
    axes.set_xticks([edge - 0.5 for edge in range(1, 10)], minor=True)
    axes.set_yticks([edge - 0.5 for edge in range(1, 10)], minor=True)
    axes.grid(which="minor", color="0.85", linewidth=0.6)
    axes.tick_params(which="both", length=0)
    axes.set(xlabel="predicted", ylabel="true digit (recall)")
    total = int(counts.sum())
    wrong = int(counts.sum() - counts.trace())
    axes.set_title(f"Held-out images: {total - wrong} of {total} right, {wrong} wrong")
    figure.savefig(path, dpi=150)
    plt.close(figure)
