"""`--verify full` on another platform: the fat wheel beside each torch, on one Python."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from shared_objects import GLUE_RECORD, shared_object
from wheel_makers import make_wheel

from torchship.release import evidence, support_table, verify_full
from torchship.release.evidence import Environment
from torchship.release.manifest import Artefact, Manifest

ARM, DATE = "linux-aarch64", "2026-01-02T03:04:05Z"


@pytest.fixture
def arm(matrix):
    return matrix.on(ARM)


@pytest.fixture
def world(tmp_path, monkeypatch) -> list:
    """A fat wheel; what is tried is only pretended. The newest torch crashes without the wheel."""
    tried = []

    def pretended(wheel, targets, console, jobs):
        tried.extend(targets)
        result = {"state": "ran", "variant": "stable210-cpu", "date": DATE}
        environments = {t: Environment(torch=t.torch, python=t.python, **result) for t in targets}
        return {**environments, targets[0]: None}

    glue = shared_object(tmp_path / "glue-stable210.so", record=GLUE_RECORD)
    wheel = make_wheel(tmp_path, {glue.name: glue.read_bytes()})
    fat = Artefact(path=wheel.name, kind="fat", sha256="0" * 64, size=1, cells=[])
    monkeypatch.setattr(verify_full, "parse", lambda _: Manifest.model_construct(artefacts=[fat]))
    monkeypatch.setattr(verify_full, "MANIFEST", wheel)
    monkeypatch.setattr(verify_full, "python_facts", lambda _: {"minor": "3.11"})
    monkeypatch.setattr(verify_full, "tried", pretended)
    for name in ("PLATFORM", "FOREIGN"):
        monkeypatch.setattr(verify_full, name, ARM)
    monkeypatch.setattr(verify_full.emulation, "version", lambda: "qemu-aarch64 7.2")
    monkeypatch.setattr(evidence, "results", lambda platform: tmp_path / f"{platform}.json")
    return tried


def verified(arm) -> int:
    return verify_full.verify_built(arm, Console(file=io.StringIO()), 1, ())


def test_every_torch_is_tried_on_one_python_and_what_has_a_result_is_stored(world, arm) -> None:
    assert verified(arm) == 1, "one torch could not be tried"
    assert [t.torch for t in world] == arm.minors()[::-1]
    assert {t.interpreter for t in world} == {str(verify_full.emulation.PYTHON)}
    stored = evidence.load(evidence.results(ARM))
    assert stored is not None and "runs under qemu-aarch64 7.2" in stored.machine
    assert stored.command == "scripts/build_all.sh '*-aarch64' --verify full"
    rows = {row.torch: row for row in stored.environments if row.state == "ran"}
    assert [*rows] == arm.minors()[:-1]
    assert {row.python for row in rows.values()} == {"3.11"}
    table = support_table.full(arm, stored, {})
    assert "| Python 3.11 |" in table and "Python 3.12" not in table
    assert "runs under qemu" in table and "run under qemu" in table and "untried" in table


def test_nothing_is_stored_where_nothing_ran(world, arm, monkeypatch) -> None:
    monkeypatch.setattr(verify_full, "tried", lambda wheel, targets, *_: dict.fromkeys(targets))
    assert verified(arm) == 1
    assert evidence.load(evidence.results(ARM)) is None
