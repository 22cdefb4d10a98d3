"""examples/digits.py: the split is honest, the command says what it did."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from processes import Forks

if TYPE_CHECKING:
    from digits import Split

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CPU = torch.device("cpu")


def run_digits(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / "digits.py"), "--out", str(folder), *arguments]
    return subprocess.run(command, cwd=folder.parent, capture_output=True, text=True)


def rows(split: Split) -> list[tuple[float, ...]]:
    return [tuple(image.flatten().tolist()) for image in split.images]


def test_no_held_out_image_is_learnt_from(digits) -> None:
    train, held_out = digits.load_splits(0, CPU)
    assert len(train.labels) + len(held_out.labels) == 1797
    assert set(rows(train)).isdisjoint(rows(held_out))


def test_every_digit_has_its_share_of_the_held_out_images(digits) -> None:
    train, held_out = digits.load_splits(0, CPU)
    whole = torch.cat([train.labels, held_out.labels]).bincount()
    share = held_out.labels.bincount() / whole
    assert (share - digits.HELD_OUT).abs().max() < 0.01


def test_normalisation_comes_from_the_training_images_alone(digits) -> None:
    train, held_out = digits.load_splits(0, CPU)
    torch.testing.assert_close(train.images.mean(), torch.tensor(0.0), atol=1e-5, rtol=0)
    torch.testing.assert_close(train.images.std(), torch.tensor(1.0), atol=1e-5, rtol=0)
    assert held_out.images.mean().abs() > 1e-5


def test_split_follows_the_seed(digits) -> None:
    first, again, other = (digits.load_splits(seed, CPU)[1] for seed in (3, 3, 4))
    assert torch.equal(first.images, again.images)
    assert not torch.equal(first.labels, other.labels)


def test_the_layer_reads_as_the_cell_does(digits) -> None:
    cell = digits.DigitReader()
    layer = digits.LayerReader()
    layer.layer.load_cell(cell.cell)
    layer.classifier.load_state_dict(cell.classifier.state_dict())
    images = torch.randn(5, 8, 8)
    torch.testing.assert_close(layer(images), cell(images))


@pytest.fixture(
    scope="module",
    params=[
        # scripts/build_all.sh trains as well, with the package that it installs.
        pytest.param("cpu", marks=pytest.mark.rehearsal),
        pytest.param("cuda", marks=pytest.mark.cuda),
    ],
)
def trained(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    folder = tmp_path_factory.mktemp("digits") / "out"
    return folder, run_digits(folder, "--epochs", "15", "--device", request.param)


def test_learns_to_name_the_digits(trained, digits) -> None:
    folder, run = trained
    assert run.returncode == 0, run.stdout + run.stderr
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["held_out_accuracy"] >= digits.REQUIRED_ACCURACY
    assert metrics["train_images"] == 1347
    assert metrics["held_out_images"] == 450
    wrong = round((1 - metrics["held_out_accuracy"]) * metrics["held_out_images"])
    assert metrics["wrong"] == wrong
    assert len(metrics["history"]) == 15


def is_readable(picture: Path) -> bool:
    import matplotlib.image

    pixels = matplotlib.image.imread(picture)
    colours = {*map(tuple, pixels[::7, ::7, :3].reshape(-1, 3).tolist())}
    return min(pixels.shape[:2]) >= 500 and len(colours) > 3


def test_shows_progress_without_a_terminal(trained) -> None:
    assert "epoch 5/15: loss" in trained[1].stdout


@pytest.mark.slow
def test_too_little_training_fails_and_is_shown(
    digits, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)  # other tests come after
    assert digits.main(["--out", str(tmp_path / "out"), "--epochs", "1"]) == 1
    assert "below the required 95%" in capsys.readouterr().out
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert len(metrics["history"]) == 1
    for name in ("learning_curve.png", "confusion_matrix.png"):
        assert is_readable(tmp_path / "out" / name), name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epochs", "0"], "'0' is not a positive integer"),
        (["--epochs", "many"], "'many' is not a positive integer"),
        (["--device", "tpu"], "invalid choice: 'tpu'"),
    ],
)
def test_bad_arguments_are_named(
    digits, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as refusal:
        digits.parse_arguments(arguments)
    assert refusal.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch sees a GPU")
def test_cuda_without_a_gpu_is_refused(digits, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refusal:
        digits.parse_arguments(["--device", "cuda"])
    assert refusal.value.code == 2
    message = capsys.readouterr().err
    assert "sees no CUDA device" in message
    assert "--device cpu" in message


@pytest.mark.network
def test_the_command_that_is_named_installs_what_is_missing(tmp_path: Path) -> None:
    """Everything of this environment is there but the three packages."""
    venv.create(tmp_path / "env", with_pip=True, symlinks=True)
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    named = ("sklearn", "scikit_learn", "matplotlib", "rich", "pip", "mpl_toolkits")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        is_left_out = entry.name.startswith((*named, "_distutils", "distutils", "__"))
        if not is_left_out and not (site / entry.name).exists():
            (site / entry.name).symlink_to(entry)
    python = tmp_path / "env" / "bin" / "python"
    program = [python, EXAMPLES / "digits.py", "--help"]
    before = subprocess.run(program, capture_output=True, text=True)
    assert before.returncode == 1
    command = before.stderr.partition("run: pip ")[2].split()
    subprocess.run([python, "-m", "pip", *command], check=True)
    subprocess.run(program, check=True)


@pytest.mark.parametrize(
    ("program", "module"),
    [("digits.py", "sklearn"), ("pause.py", "matplotlib")],
)
def test_a_missing_module_is_named_with_what_to_install(
    program: str, module: str, tmp_path: Path, forked: Forks
) -> None:
    code = (
        f"import runpy, sys; sys.modules[{module!r}] = None; "
        f"sys.path.insert(0, {str(EXAMPLES)!r}); "
        f"runpy.run_path({str(EXAMPLES / program)!r}, run_name='__main__')"
    )
    run = forked.run(code, cwd=tmp_path)
    assert run.returncode == 1
    assert run.stderr == (
        f"error: this example needs the module {module}, which is not installed; "
        "run: pip install scikit-learn matplotlib rich\n"
    )
