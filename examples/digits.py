"""Trains an LLTM cell to classify handwritten digits, read row by row.

The data are the UCI handwritten digits of scikit-learn: 1,797 images of 8 x 8 pixels. An image
is a sequence of eight rows; the cell reads one row per step, and a linear layer classifies the
digit from the last hidden state.

    python examples/digits.py                  # CPU
    python examples/digits.py --device cuda
    python examples/digits.py --layer          # LLTMLayer: the whole sequence in one call

Needs scikit-learn, matplotlib and rich: pip install scikit-learn matplotlib rich

Writes learning_curve.png, confusion_matrix.png and metrics.json. The exit code is 0 only if
at least 95 % of the held-out images are classified correctly.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

try:
    import digits_plots
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
except ModuleNotFoundError as error:
    module = (error.name or "").partition(".")[0]
    sys.exit(
        f"error: this example needs the module {module}, which is not installed; "
        "run: pip install scikit-learn matplotlib rich"
    )

from lltm_conda import LLTM, LLTMLayer, __version__

REQUIRED_ACCURACY = 0.95
HELD_OUT = 0.25
BATCH_SIZE = 64
STATE_SIZE = 64
PEAK_LEARNING_RATE = 0.01


@dataclass(frozen=True)
class Split:
    """Images `(N, 8 rows, 8 columns)` and their labels `(N,)`."""

    images: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Epoch:
    """Loss and accuracy after one pass over the training images."""

    train_loss: float
    train_accuracy: float
    held_out_loss: float
    held_out_accuracy: float


class DigitReader(nn.Module):
    """An LLTM cell over the rows of an image, and a linear layer on its last hidden state."""

    def __init__(self, row_length: int = 8, state_size: int = STATE_SIZE, classes: int = 10):
        super().__init__()
        self.cell = LLTM(row_length, state_size)
        self.classifier = nn.Linear(state_size, classes)

    def forward(self, images: Tensor) -> Tensor:
        """`(N, rows, columns)` images to `(N, classes)` logits."""
        h = c = images.new_zeros(images.shape[0], self.cell.state_size)
        for row in images.unbind(1):
            h, c = self.cell(row, (h, c))
        return self.classifier(h)


class LayerReader(nn.Module):
    """The same with an `LLTMLayer`, which reads all rows in one call."""

    def __init__(self, row_length: int = 8, state_size: int = STATE_SIZE, classes: int = 10):
        super().__init__()
        self.layer = LLTMLayer(row_length, state_size, batch_first=True)
        self.classifier = nn.Linear(state_size, classes)

    def forward(self, images: Tensor) -> Tensor:
        """`(N, rows, columns)` images to `(N, classes)` logits."""
        _, (h, _) = self.layer(images)
        return self.classifier(h[0])


def load_splits(seed: int, device: torch.device) -> tuple[Split, Split]:
    """Training and held-out images, normalized with the statistics of the training images."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)
    labels = torch.tensor(digits.target, dtype=torch.int64)
    indices = torch.arange(len(labels)).numpy()
    train, held_out = train_test_split(
        indices, test_size=HELD_OUT, random_state=seed, stratify=labels
    )
    mean = images[train].mean()
    std = images[train].std()
    images = (images - mean) / std
    return (
        Split(images[train].to(device), labels[train].to(device)),
        Split(images[held_out].to(device), labels[held_out].to(device)),
    )


@torch.no_grad()
def evaluate(model: nn.Module, split: Split) -> tuple[float, float, Tensor]:
    """Mean loss, accuracy, and the predicted labels."""
    logits = model(split.images)
    predicted = logits.argmax(dim=1)
    accuracy = (predicted == split.labels).double().mean().item()
    return F.cross_entropy(logits, split.labels).item(), accuracy, predicted


def train(
    model: nn.Module, train_split: Split, held_out: Split, *, epochs: int, console: Console
) -> list[Epoch]:
    """Trains for a fixed number of epochs, so the held-out images influence no choice."""
    batches = -(-len(train_split.labels) // BATCH_SIZE)
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, PEAK_LEARNING_RATE, total_steps=epochs * batches
    )
    history: list[Epoch] = []
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("epoch {task.completed}/{task.total}"),
        TextColumn("{task.fields[status]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("training", total=epochs, status="")
        for _ in range(epochs):
            order = torch.randperm(len(train_split.labels)).to(train_split.labels.device)
            for batch in order.split(BATCH_SIZE):
                logits = model(train_split.images[batch])
                labels = train_split.labels[batch]
                loss = F.cross_entropy(logits, labels, label_smoothing=0.05)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
            epoch = Epoch(*evaluate(model, train_split)[:2], *evaluate(model, held_out)[:2])
            history.append(epoch)
            accuracy = f"held-out accuracy {epoch.held_out_accuracy:.1%}"
            status = f"loss {epoch.train_loss:.3f}, {accuracy}"
            progress.update(task, advance=1, status=status)
            if not console.is_terminal and len(history) % 5 == 0:  # a log shows no bar
                console.print(f"epoch {len(history)}/{epochs}: {status}", highlight=False)
    return history


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--layer", action="store_true", help="LLTMLayer instead of the cell")
    parser.add_argument("--epochs", type=positive, default=20)
    parser.add_argument("--seed", type=int, default=0, help="of the split and the training")
    results = Path("build/examples/digits")
    parser.add_argument("--out", type=Path, default=results, help="folder for the results")
    parsed = parser.parse_args(arguments)
    if parsed.device == "cuda" and not torch.cuda.is_available():
        parser.error(
            f"--device cuda needs a GPU and a CUDA build of torch; torch {torch.__version__} sees "
            "no CUDA device. Use --device cpu, or see: python -m lltm_conda"
        )
    return parsed


def positive(argument: str) -> int:
    """An argparse type: a positive integer."""
    if not argument.isdecimal() or int(argument) < 1:
        raise argparse.ArgumentTypeError(f"{argument!r} is not a positive integer")
    return int(argument)


def main(arguments: list[str] | None = None) -> int:
    """Trains, saves the results, and returns the exit code."""
    options = parse_arguments(arguments)
    console = Console(soft_wrap=True)
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)  # 64 rows per step are too little work for several threads
    device = torch.device(options.device)
    train_split, held_out = load_splits(options.seed, device)
    console.print(
        f"{len(train_split.labels)} training images, {len(held_out.labels)} held out "
        f"({HELD_OUT:.0%}, stratified, seed {options.seed}); lltm {__version__}, "
        f"torch {torch.__version__}, {device}",
        highlight=False,
    )
    model = (LayerReader() if options.layer else DigitReader()).to(device)
    start = time.perf_counter()
    history = train(model, train_split, held_out, epochs=options.epochs, console=console)
    seconds = time.perf_counter() - start

    _, accuracy, predicted = evaluate(model, held_out)
    options.out.mkdir(parents=True, exist_ok=True)
    digits_plots.learning_curve(
        [asdict(epoch) for epoch in history],
        REQUIRED_ACCURACY,
        options.out / "learning_curve.png",
    )
    digits_plots.confusion_matrix(
        held_out.labels.cpu(), predicted.cpu(), options.out / "confusion_matrix.png"
    )
    metrics = {
        "held_out_accuracy": accuracy,
        "required_accuracy": REQUIRED_ACCURACY,
        "train_images": len(train_split.labels),
        "held_out_images": len(held_out.labels),
        "wrong": int((predicted != held_out.labels).sum()),
        "seed": options.seed,
        "epochs": options.epochs,
        "device": options.device,
        "reader": "LLTMLayer" if options.layer else "LLTM",
        "train_seconds": round(seconds, 2),
        "lltm": __version__,
        "torch": torch.__version__,
        "history": [asdict(epoch) for epoch in history],
    }
    (options.out / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")

    passed = accuracy >= REQUIRED_ACCURACY
    console.print(
        f"held-out accuracy {accuracy:.2%} "
        f"({metrics['wrong']} of {len(held_out.labels)} wrong) "
        f"after {seconds:.1f} s; results in {options.out}",
        highlight=False,
    )
    if not passed:
        console.print(
            f"below the required {REQUIRED_ACCURACY:.0%}; train longer with --epochs",
            highlight=False,
        )
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
