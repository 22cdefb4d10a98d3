"""The command line on tiny sizes: it runs, stores, refuses, and says why."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import lltm_conda
from benchmarks import __main__ as command
from benchmarks import baselines, session, sizes
from benchmarks.baselines.cells import plain_cell
from benchmarks.contender import Cell, Request
from benchmarks.schema import Size, read

REPO = Path(__file__).resolve().parents[2]
QUICK = ("--seconds", "0.01", "--rounds", "2")


def test_a_cell_is_measured_stored_and_shown(
    tmp_path: Path, device: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cell.json"
    arguments = ["cell", "--device", device, "--sizes", "2,3,4", *QUICK, "--json", str(path)]
    assert command.main([*arguments, "--contenders", "python", "lstmcell"]) == 0
    report = read(path)
    assert {r.contender for r in report.results} == {"python", "lstmcell"}
    assert {r.metric for r in report.results} == {"forward", "backward"}
    assert all(len(r.rounds) == 2 and r.error is not None for r in report.results)
    assert str(tmp_path) not in path.read_text(), "the file tells where it was written"
    capsys.readouterr()
    assert command.main(["show", str(path)]) == 0
    assert "lstmcell" in capsys.readouterr().out


@pytest.mark.parametrize("protocol", ["split", "memory"])
@pytest.mark.slow
def test_the_other_protocols_run(protocol: str, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    arguments = ["cell", "--sizes", "2,3,4", "--contenders", "python", *QUICK]
    assert command.main([*arguments, "--protocol", protocol, "--json", str(path)]) == 0
    assert read(path).protocol == protocol


@pytest.mark.slow
def test_a_layer_is_measured_a_step(tmp_path: Path) -> None:
    path = tmp_path / "layer.json"
    arguments = ["layer", "--sizes", "2,3,4,5", "--contenders", "lstm", "python-loop"]
    assert command.main([*arguments, *QUICK, "--json", str(path)]) == 0
    assert {r.contender for r in read(path).results} == {"lstm", "python-loop"}


def test_the_grid_is_the_one_that_was_promised() -> None:
    assert set(sizes.cell_grid()) == {
        Size(b, s // 4, s) for b in (1, 16, 64, 256, 1024) for s in (16, 128, 512, 2048)
    }


def test_a_deadline_names_what_it_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "late.json"
    arguments = ["cell", "--sizes", "2,3,4", "--contenders", "python", "--deadline", "-1"]
    assert command.main([*arguments, "--json", str(path)]) == 1
    (skip,) = read(path).skipped
    assert "deadline" in skip.reason
    assert skip.size == Size(2, 3, 4)


@pytest.mark.slow
def test_a_wrong_contender_is_not_timed_and_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def wrong(request: Request) -> Cell:
        cell = plain_cell(request)
        return Cell("lltm", cell.module, lambda x, state: cell.call(x * 1.01, state))

    contenders = {"python": plain_cell, "wrong": wrong}
    monkeypatch.setattr(baselines, "CELLS", contenders)
    path = tmp_path / "wrong.json"
    assert command.main(["cell", "--sizes", "2,3,4", *QUICK, "--json", str(path)]) == 1
    report = read(path)
    assert {r.contender for r in report.results} == {"python"}
    assert [s.contender for s in report.skipped] == ["wrong"]
    assert report.skipped[0].reason.startswith(session.WRONG)


@pytest.mark.slow
def test_one_contender_that_fails_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(request: Request) -> Cell:
        raise torch.OutOfMemoryError("no room")

    contenders = {"fails": fails, "python": plain_cell}
    monkeypatch.setattr(baselines, "CELLS", contenders)
    path = tmp_path / "fails.json"
    assert command.main(["cell", "--sizes", "2,3,4", *QUICK, "--json", str(path)]) == 0
    report = read(path)
    assert {r.contender for r in report.results} == {"python"}
    assert "no room" in report.skipped[0].reason


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["cell", "--contenders", "nobody"], "no contender .'nobody'"),
        (["cell", "--sizes", "2,3,4,5"], "a step needs B,I,S"),
        (["layer", "--sizes", "2,3,4"], "layer needs B,I,S,T"),
        (["show", "missing.json"], "missing.json"),
    ],
)
def test_a_mistake_is_named(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(arguments) == 2
    assert re.search(says, capsys.readouterr().err)


@pytest.mark.slow
def test_ours_is_the_installed_package_though_the_sources_come_first_on_the_path() -> None:
    program = (
        "from measurements.installed import import_installed; "
        "print(import_installed('lltm_conda').__file__)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=REPO, check=True, capture_output=True, text=True
    )
    assert run.stdout.strip() == lltm_conda.__file__


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_cuda_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["cell", "--device", "cuda"]) == 2
    assert "GPU" in capsys.readouterr().err


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_run_all_asks_for_what_the_command_line_knows(device: str, tmp_path: Path) -> None:
    """A stand-in for Python writes down what it is called with."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> {tmp_path}/calls\n')
    python.chmod(0o755)
    script = Path(command.__file__).with_name("run_all.sh")
    env = {**os.environ, "PYTHON": str(python)}
    subprocess.run([script, tmp_path, device], env=env, check=True, capture_output=True)
    calls = [line.split() for line in (tmp_path / "calls").read_text().splitlines()]
    assert len(calls) > 5
    for module, name, *arguments in calls:
        assert (module, name) == ("-m", "benchmarks")
        options = command.parser().parse_args(arguments)
        is_layer = options.command == "layer" or getattr(options, "what", "cell") == "layer"
        contenders = baselines.LAYERS if is_layer else baselines.CELLS
        assert set(getattr(options, "contenders", ())) <= set(contenders), " ".join(arguments)
