"""What measurements.new_project stored of a project made from the wheel of torchship alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from new_projects import make

from measurements import new_project_names, storage
from measurements.new_project import count
from measurements.new_project_names import PROJECTS

REPO = Path(__file__).resolve().parents[3]
PAGE = REPO / "docs" / "ship" / "own-op.md"


@pytest.fixture
def result() -> dict[str, Any]:
    document = storage.load(storage.RESULTS / "new_project_steps.json")
    assert isinstance(document, dict)
    return document


def test_every_step_passed_both_commands_and_other_torches_among_them(result) -> None:
    passed = {step["name"] for step in result["steps"] if step["passed"]}
    assert passed == {step["name"] for step in result["steps"]}
    assert {"scripts/build_all.sh host", "scripts/test.sh"} <= passed
    assert {"its wheel with torch 2.10.0", "its wheel with torch 2.15.0"} <= passed


def test_the_page_says_how_small_it_is(result) -> None:
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert f"{result['files']} files and {result['lines']} lines" in page


def test_what_is_stored_is_the_size_of_a_new_project(result, tmp_path: Path) -> None:
    new = count(make(tmp_path, "my-op"))
    stored = {key: result[key] for key in new}
    assert new == stored, (
        "run python -m measurements.new_project --count --out "
        "measurements/results/new_project_steps.json"
    )


def test_both_commands_passed_in_projects_with_short_and_long_names() -> None:
    document: Any = storage.load(new_project_names.RESULT)
    projects = document["projects"]
    assert {project["name"]: project["template"] for project in projects} == PROJECTS
    assert {len(name) for name in PROJECTS} >= {2, 24}
    for project in projects:
        passed = {step["name"] for step in project["steps"] if step["passed"]}
        assert {"scripts/build_all.sh host", "scripts/test.sh"} <= passed, project["name"]
