"""An older copy of a package that PYTHONPATH brings in before the environment's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from environments import add_package
from looked_environment import LookedEnvironment, carry_out, diagnose, fix_of, row_of
from sick_environment import carries_out

from torchship.judge import fixes


@pytest.fixture
def env(tmp_path: Path) -> LookedEnvironment:
    """`metrics` 1.4 in the environment, which works."""
    env = LookedEnvironment(tmp_path / "env")
    env.add("metrics", "import torch\ncompare = 1\n")
    _set_version(env.site, "1.4.0")
    return env


def _set_version(site: Path, version: str) -> None:
    metadata = site / "metrics-1.0.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("1.0", version))


def _copy(env: LookedEnvironment, source: str, version: str) -> Path:
    site = env.prefix / "old copies"
    add_package(site, "metrics", {"metrics/__init__.py": source}, "Requires-Dist: torch")
    _set_version(site, version)
    return site


@carries_out(fixes.Kind.UNSET_VARIABLE, fixes.Kind.SET_VARIABLE)
@pytest.mark.parametrize("others", [[], ["/nonexistent/a", "/nonexistent/b"]])
@pytest.mark.parametrize("name", ["metrics", "upper"])
def test_the_folder_is_taken_off_the_path(
    env: LookedEnvironment, monkeypatch: pytest.MonkeyPatch, others: list[str], name: str
) -> None:
    source = "import torch\nimport pkg_resources\n" if name == "metrics" else "import torch\n"
    old = _copy(env, source, "0.6.0")
    env.add("upper", "import torch\nfrom metrics import compare\n", "Requires-Dist: metrics>=0.6")
    before = os.pathsep.join([*others, str(old)])
    monkeypatch.setenv("PYTHONPATH", before)
    row = row_of(diagnose(env, name), name)
    assert row.code == "TD205"
    assert "metrics 0.6.0" in row.summary and "which PYTHONPATH names" in row.summary
    carry_out(env, row, name)
    assert fix_of(row).command == (
        "export PYTHONPATH=/nonexistent/a:/nonexistent/b" if others else "unset PYTHONPATH"
    )


def test_a_newer_copy_is_not_the_cause(
    env: LookedEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody put it there to be used: what it lacks is the cause."""
    newer = _copy(env, "import torch\nimport no_such_module\n", "2.0.0")
    monkeypatch.setenv("PYTHONPATH", str(newer))
    report = diagnose(env, "metrics")
    assert row_of(report, "metrics").code == "TD213"
    notes = [row.summary for row in report.rows if row.code == "TD709"]
    assert len(notes) == 1 and "which PYTHONPATH names" in notes[0]


def test_what_the_copy_only_imports_is_not_blamed_on_it(
    env: LookedEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    env.add("inner", "import torch\nimport no_such_module\n")
    monkeypatch.setenv("PYTHONPATH", str(_copy(env, "import torch, inner\n", "0.6.0")))
    assert row_of(diagnose(env, "metrics"), "metrics").code == "TD213"


def test_an_error_of_another_package_is_not_blamed_on_it(
    env: LookedEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(_copy(env, "import torch\n", "0.6.0")))
    env.add("upper", "import torch\nimport metrics, no_such_module\n")
    assert row_of(diagnose(env, "upper"), "upper").code == "TD213"
