"""examples/pause.py: pauses are blank, all kinds see the same, the command says what it found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from digits import Split

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_a_pause_is_blank_rows_behind_the_image(pause) -> None:
    images = torch.randn(2, 8, 8)
    longer = pause.with_pause(images, 3)
    assert torch.equal(longer[:, :8], images)
    assert longer.shape == (2, 11, 8) and not longer[:, 8:].any()


@pytest.fixture
def few(digits) -> Split:
    split = digits.load_splits(0, torch.device("cpu"))[0]
    return digits.Split(split.images[:70], split.labels[:70])


def test_longer_pauses_are_asked_than_were_trained(pause, few, monkeypatch) -> None:
    lengths: list[int] = []
    real = pause.with_pause
    monkeypatch.setattr(
        pause, "with_pause", lambda images, length: lengths.append(length) or real(images, length)
    )
    model = pause.train("LLTM", few, 5, seed=1)
    trained = lengths.copy()
    pause.accuracies(model, few)
    tested = lengths[len(trained) :]
    assert len(set(trained)) > 1 and max(tested) > 10 * max(trained)


def test_training_follows_the_seed(pause, few) -> None:
    one, again, other = (pause.train("LLTM", few, 1, seed) for seed in (1, 1, 2))
    assert torch.equal(one.classifier.weight, again.classifier.weight)
    assert not torch.equal(one.classifier.weight, other.classifier.weight)


def test_the_median_and_the_range_are_taken_over_the_seeds(pause) -> None:
    assert pause.median_and_range([[0.5, 0.1], [0.9, 0.2], [0.6, 0.9]]) == (
        [0.6, 0.2],
        [0.5, 0.1],
        [0.9, 0.9],
    )


@pytest.mark.rehearsal
def test_the_command_learns_and_says_so(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, str(EXAMPLES / "pause.py"), "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert run.returncode == 0, run.stderr
    facts = json.loads((tmp_path / "pause.json").read_text())
    (ours,) = facts["accuracy"]["LLTM"]
    (lstm,) = facts["accuracy"]["LSTM"]
    assert ours[0] > 0.9
    for length, one, other in zip(facts["pauses"], ours, lstm, strict=True):
        assert one > other, f"after {length} blank rows"
    assert (tmp_path / "pause.png").stat().st_size > 10_000
