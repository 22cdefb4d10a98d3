"""`--verify full` on another platform: what the cells' own runs saw, and the fat wheel."""

from __future__ import annotations

import io
import json

import pytest
from release import ReleaseError, evidence, support_table, verify_full
from release.evidence import Environment
from release.manifest import Artefact, Binary, CellEntry, HostFacts, Manifest, Run
from rich.console import Console
from shared_objects import GLUE_RECORD, shared_object
from wheel_makers import make_wheel

ARM, DATE = "linux-aarch64", "2026-01-02T03:04:05Z"


@pytest.fixture
def arm(matrix):
    return matrix.on(ARM)


def beside_newer_torches(wheel, wanted, console, jobs):
    """Runs of the fat wheel that are only pretended; the newest torch cannot be installed."""
    *rest, newest = wanted
    seen = {"state": "ran", "variant": "stable210-cpu", "date": DATE}
    rows = {t: Environment(torch=t.torch, python=t.python, **seen) for t in rest}
    return {**rows, newest: None}


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A run of two cells, whose smoke tests left reports."""
    monkeypatch.setattr(verify_full, "BUILD", tmp_path / "build")
    monkeypatch.setattr(verify_full, "DIST", tmp_path / "dist")
    monkeypatch.setattr(verify_full, "PLATFORM", ARM)
    monkeypatch.setattr(evidence, "results", lambda platform: tmp_path / f"{platform}.json")
    monkeypatch.setattr(verify_full, "REPO", tmp_path)
    monkeypatch.setattr(verify_full, "tried", beside_newer_torches)
    glue = shared_object(tmp_path / "glue-stable210.so", record=GLUE_RECORD)
    wheel = make_wheel(tmp_path / "dist", {glue.name: glue.read_bytes()})
    cells = {}
    for name, torch in (("stable210-cpu", "2.10.0+cpu"), ("stable210-cu13", "2.10.0+cpu")):
        report = tmp_path / "build" / "smoke" / f"{name}-aarch64-venv.json"
        report.parent.mkdir(parents=True, exist_ok=True)
        row = {"device": "cpu", "dtype": "torch.float64", "shape": [1], "new_h": 1e-16}
        facts = {"torch": torch, "python": "3.11.2", "devices": ["cpu"], "gradcheck": True}
        report.write_text(json.dumps({**facts, "comparisons": [row]}))
        run = Run(kind="venv", ran=True, facts={"variant": name, "failed": 0})
        cells[f"{name}-aarch64"] = CellEntry(state="done", torch="2.10.0", runs=[run], host="h")
    path = wheel.relative_to(tmp_path / "dist").as_posix()
    fat = Artefact(path=path, kind="fat", sha256="0" * 64, size=1, cells=[])
    facts = {"system": "Linux; runs under qemu", "python": "3.11", "compiler": "g++"}
    host = HostFacts(**facts, processors=1, gpus=[], tools={})
    return Manifest.model_construct(
        cells=cells, artefacts=[fat], hosts={"h": host}, made=DATE, binaries=dict[str, Binary]()
    )


def verified(manifest: Manifest, arm) -> int:
    return verify_full.verify_cells(manifest, arm, Console(file=io.StringIO()))


def test_what_cells_and_fat_wheel_saw_is_stored_and_the_rest_stays_untried(world, arm) -> None:
    assert verified(world, arm) == 1, "one torch could not be installed"
    found = evidence.load(evidence.results(ARM))
    assert found is not None
    rows = {row.torch: row for row in found.environments}
    assert rows["2.10"].state == "ran" and rows["2.10"].variant == "stable210-cpu"
    assert rows["2.10"].worst == {"float64": 1e-16}
    assert [*rows] == ["2.10", "2.11", "2.12", "2.13", "2.14"], "torches with glue of their own?"
    assert {row.python for row in rows.values()} == {"3.11"}
    table = support_table.full(arm, found, {})
    assert "| Python 3.11 |" in table and "Python 3.12" not in table
    assert "runs under qemu" in table and "run under qemu" in table and "untried" in table


def test_a_run_that_failed_makes_the_exit_code(world, arm, monkeypatch) -> None:
    monkeypatch.setattr(verify_full, "tried", lambda *_: {})
    assert verified(world, arm) == 0
    world.cells["stable210-cpu-aarch64"].runs[0].facts["failed"] = 1
    assert verified(world, arm) == 1


def test_nothing_is_stored_where_nothing_ran(world, arm) -> None:
    world.cells.clear()
    with pytest.raises(ReleaseError, match="no cell has run"):
        verified(world, arm)
    assert evidence.load(evidence.results(ARM)) is None
