"""The script that tries several torches reads reports right, and what it stored is good."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

REPO = Path(__file__).resolve().parents[1]
SCRIPT = REPO / "measurements" / "torches.py"
REPORT = """<testsuites><testsuite>
<testcase classname="op.test_a" name="test_good" />
<testcase classname="op.test_a" name="test_bad[1]"><failure message="no">trace</failure></testcase>
<testcase classname="op.test_a" name="test_broken"><error message="gone">trace</error></testcase>
<testcase classname="op.test_b" name="test_new"><skipped message="needs 2.5" /></testcase>
<testcase classname="op.test_b" name="test_newer"><skipped message="needs 2.5" /></testcase>
</testsuite></testsuites>"""


def stored() -> list[dict[str, Any]]:
    results = REPO / "measurements" / "results" / "torches"
    return [json.loads(path.read_text()) for path in sorted(results.glob("*.json"))]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("script_test_torches", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass looks its module up
    spec.loader.exec_module(module)
    return module


def test_a_report_is_counted_with_reasons_and_failures(script: ModuleType, tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    assert asdict(script.count_outcomes(report)) == {
        "passed": 1,
        "failed": 2,
        "skipped": 2,
        "skip_reasons": {"needs 2.5": 2},
        "failures": [
            {"test": "op/test_a.py::test_bad[1]", "message": "no"},
            {"test": "op/test_a.py::test_broken", "message": "gone"},
        ],
    }


def test_nothing_failed_with_any_stored_torch() -> None:
    assert [(r["torch"], r["failures"]) for r in stored() if r["failed"]] == []


def test_both_doors_were_tried_at_both_ends() -> None:
    tried = {".".join(r["torch"].split(".")[:2]): r["variant"] for r in stored()}
    doors = {minor: tried[minor].rpartition("-")[0] for minor in ("2.4", "2.9", "2.10", "2.15")}
    assert doors == {
        "2.4": "aten24-abi0",
        "2.9": "aten29-abi1",
        "2.10": "stable210",
        "2.15": "stable210",
    }


@pytest.mark.parametrize("python", ["3.13t", "3.14", "3.14t", "3.15"])
def test_the_newest_pythons_ran_the_op_the_layers_and_the_loader(python: str) -> None:
    free = python.endswith("t")
    reports = [
        r for r in stored() if re.fullmatch(rf"{python.rstrip('t')}\.\d+{'t' * free}", r["python"])
    ]
    commands = [r["command"] for r in reports]
    for part in ("tests/op ", "tests/layer", "tests/compat/test_compat_loader.py"):
        assert any(part in command for command in commands), part
    assert all(command.startswith("PYTHON_GIL=0 ") for command in commands if free)


@pytest.mark.parametrize(
    ("version", "message"),
    [("2.3", "has no torch 2.3"), ("2.4@3.14", "wheels for Python 3.10, 3.11, 3.12, not for 3.14")],
)
def test_a_torch_that_cannot_be_had_is_refused(version: str, message: str) -> None:
    run = subprocess.run([sys.executable, str(SCRIPT), version], capture_output=True, text=True)
    assert run.returncode == 1
    assert message in run.stderr
