"""`verify` on another platform: the fat wheel beside each torch, on one Python."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console
from shared_objects import GLUE_RECORD, shared_object
from small_checkout import CHECKOUT
from small_wheels import make_wheel

from torchship.release.matrix import evidence, support_table
from torchship.release.matrix.evidence import Environment
from torchship.release.matrix.settings import make_settings
from torchship.release.run.manifest import Artefact, Manifest
from torchship.release.steps.verify import full as verify_full

ARM, DATE = "linux-aarch64", "2026-01-02T03:04:05Z"


@pytest.fixture
def arm(matrix):
    return matrix.on(ARM)


@pytest.fixture
def arm_settings(arm, tmp_path):
    """A run for Arm on x86-64, in folders of the test's own."""
    defaults = make_settings(arm, CHECKOUT)
    folders = {"build": tmp_path / "build", "dist": tmp_path / "dist"}
    return replace(defaults, native="linux-x86_64", **folders)


@pytest.fixture
def world(tmp_path, arm_settings, monkeypatch) -> list:
    """A fat wheel; what is tried is only pretended. The newest torch crashes without the wheel."""
    tried = []

    def pretended(_verification, targets):
        tried.extend(targets)
        result = {"state": "ran", "variant": "stable210-cpu", "date": DATE}
        environments = {t: Environment(torch=t.torch, python=t.python, **result) for t in targets}
        return {**environments, targets[0]: None}

    glue = shared_object(tmp_path / "glue-stable210.so", record=GLUE_RECORD)
    wheel = make_wheel(arm_settings.dist, {glue.name: glue.read_bytes()})
    arm_settings.manifest.touch()
    fat = Artefact(
        path=wheel.name, kind="fat", sha256="0" * 64, size=1, cells=[], goes_to=["folder"]
    )
    monkeypatch.setattr(verify_full, "parse", lambda _: Manifest.model_construct(artefacts=[fat]))
    monkeypatch.setattr(verify_full, "python_facts", lambda _: {"minor": "3.11"})
    monkeypatch.setattr(verify_full, "try_all", pretended)
    monkeypatch.setattr(verify_full.emulation, "version", lambda _: "qemu-aarch64 7.2")
    monkeypatch.setattr(evidence, "results_of", lambda platform: tmp_path / f"{platform}.json")
    return tried


def verified(settings) -> int:
    return verify_full.verify_built(settings, Console(file=io.StringIO()), 1, ())


def test_every_torch_is_tried_on_one_python_and_what_has_a_result_is_stored(
    world, arm, arm_settings
) -> None:
    assert verified(arm_settings) == 1, "one torch could not be tried"
    assert [t.torch for t in world] == arm.minors()[::-1]
    assert {t.interpreter for t in world} == {str(verify_full.emulation.python_of(arm_settings))}
    stored = evidence.load(evidence.results_of(ARM))
    assert stored is not None and "runs under qemu-aarch64 7.2" in stored.machine
    assert stored.command == "scripts/build_all.sh verify '*-aarch64'"
    rows = {row.torch: row for row in stored.environments if row.state == "ran"}
    assert [*rows] == arm.minors()[:-1]
    assert {row.python for row in rows.values()} == {"3.11"}
    table = support_table.full(arm, stored, {})
    assert "| Python 3.11 |" in table and "Python 3.12" not in table
    assert "runs under qemu" in table and "run under qemu" in table and "untried" in table


def test_nothing_is_stored_where_nothing_ran(world, arm_settings, monkeypatch) -> None:
    monkeypatch.setattr(verify_full, "try_all", lambda _, targets: dict.fromkeys(targets))
    assert verified(arm_settings) == 1
    assert evidence.load(evidence.results_of(ARM)) is None
