"""Trains a small word model with an LSTM, a GRU and an LLTM, and stores loss by step and by time.

    python -m measurements.word_model --device cuda --json measurements/results/word_model.json

The text is the help of Python itself (`pydoc_data.topics`), which every Python has. Each model is
trained once for each learning rate. The state is carried from one chunk to the next; a model whose
name ends in `halved` halves the cell state between chunks.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import re
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from pydoc_data import topics

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from measurements import storage
from measurements.installed import import_installed

WORDS = 4000
"""The size of the vocabulary; all rarer words are one."""
WIDTH = 256
STATE = 512
ROWS = 16
CHUNK = 64
VALIDATION = 0.1
"""The last share of the text, which no model is trained on."""
NOTE_EVERY = 50
MODELS = ("lstm", "gru", "lltm", "lltm-halved")
RATES = (5e-4, 1e-3, 3e-3)


@dataclass
class Run:
    """One training. `losses` are means of the last steps, `seconds` without validation."""

    model: str
    rate: float
    seed: int
    steps: list[int]
    losses: list[float]
    seconds: list[float]
    validation: float
    largest_cell: float


def tokens() -> Tensor:
    """The text as numbers of words, the most frequent first."""
    text = " ".join(topics.topics[name] for name in sorted(topics.topics))
    words = re.findall(r"\w+|[^\w\s]", text.lower())
    known = [word for word, _ in Counter(words).most_common(WORDS - 1)]
    numbers = {word: k for k, word in enumerate(known)}
    return torch.tensor([numbers.get(word, WORDS - 1) for word in words])


def recurrent(name: str) -> nn.Module:
    if name == "lstm":
        return nn.LSTM(WIDTH, STATE)
    if name == "gru":
        return nn.GRU(WIDTH, STATE)
    layer: nn.Module = import_installed("lltm_conda").LLTMLayer(WIDTH, STATE)
    return layer


State = Tensor | tuple[Tensor, Tensor] | None
"""What a recurrent module carries from chunk to chunk: a GRU one tensor, the others two."""


class WordModel(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.recurrent = recurrent(name)
        self.output = nn.Linear(STATE, WORDS)
        self.halves = name.endswith("halved")

    def forward(self, words: Tensor, state: State) -> tuple[Tensor, State]:
        hidden, state = self.recurrent(self.embedding(words), state)
        return self.output(hidden), state

    def carried(self, state: State) -> State:
        """The state for the next chunk, through which no gradient flows."""
        if state is None or isinstance(state, Tensor):
            return None if state is None else state.detach()
        h, c = state
        return h.detach(), (0.5 if self.halves else 1.0) * c.detach()


def in_rows(text: Tensor, device: str) -> Tensor:
    """``(T, ROWS)``: the text in rows that go on from chunk to chunk."""
    length = len(text) // ROWS
    return text[: length * ROWS].reshape(ROWS, length).t().contiguous().to(device)


def loss_of(model: WordModel, rows: Tensor, at: int, state: State) -> tuple[Tensor, State]:
    words, following = rows[at : at + CHUNK], rows[at + 1 : at + CHUNK + 1]
    logits, state = model(words, state)
    return F.cross_entropy(logits.flatten(0, 1), following.flatten()), state


@torch.no_grad()
def validate(model: WordModel, rows: Tensor) -> float:
    state: State = None
    losses = []
    for at in range(0, len(rows) - CHUNK - 1, CHUNK):
        loss, state = loss_of(model, rows, at, state)
        state = model.carried(state)
        losses.append(loss.item())
    return sum(losses) / len(losses)


def clock(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def train(name: str, *, rate: float, seed: int, steps: int, device: str) -> Run:
    text = tokens()
    cut = int(len(text) * (1 - VALIDATION))
    rows, unseen = in_rows(text[:cut], device), in_rows(text[cut:], device)
    torch.manual_seed(seed)
    model = WordModel(name).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    run = Run(name, rate, seed, [], [], [], 0.0, 0.0)
    state: State = None
    at, total = 0, torch.zeros((), device=device)
    largest = torch.zeros((), device=device)
    begun = clock(device)
    for step in range(1, steps + 1):
        if at + CHUNK + 1 > len(rows):
            state, at = None, 0
        loss, state = loss_of(model, rows, at, state)
        state, at = model.carried(state), at + CHUNK
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.detach()
        if isinstance(state, tuple):
            largest = torch.maximum(largest, state[1].abs().max())
        if step % NOTE_EVERY == 0:
            run.steps.append(step)
            run.seconds.append(round(clock(device) - begun, 4))
            run.losses.append(round(total.item() / NOTE_EVERY, 4))
            total.zero_()
    run.validation = round(validate(model, unseen), 4)
    run.largest_cell = round(largest.item(), 1)
    return run


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    train(MODELS[0], rate=RATES[0], seed=0, steps=2 * NOTE_EVERY, device=arguments.device)  # warms
    runs = []
    for seed in arguments.seeds:
        for name in arguments.models:
            for rate in RATES:
                run = train(
                    name, rate=rate, seed=seed, steps=arguments.steps, device=arguments.device
                )
                runs.append(asdict(run))
                print(name, rate, seed, run.losses[-1], run.validation, run.seconds[-1])
    pairs = zip(sys.argv, sys.argv[1:], strict=False)
    words = [Path(word).name if before == "--json" else word for before, word in pairs]
    document = {
        "command": " ".join(["python -m measurements.word_model", *words]),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "machine": torch.cuda.get_device_name() if arguments.device == "cuda" else "CPU",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "words": len(tokens()),
        "runs": runs,
    }
    storage.save(document, arguments.json)


if __name__ == "__main__":
    main()
