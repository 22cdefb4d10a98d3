"""What building a new project's whole matrix left behind: new_project.json.xz of the results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from measurements import storage
from torchship.release.matrix.load import load

REPO = Path(__file__).resolve().parents[2]
PAGE = REPO / "docs" / "ship" / "own-op.md"


@pytest.fixture
def manifest() -> dict[str, Any]:
    document = storage.load(storage.RESULTS / "new_project.json.xz")
    assert isinstance(document, dict)
    return document


def test_every_cell_is_in_it_and_only_optional_ones_were_skipped(manifest, matrix) -> None:
    from torchship.release.matrix.cells import all_cells

    states = {name: cell["state"] for name, cell in manifest["cells"].items()}
    assert sorted(states) == sorted(cell.name for cell in all_cells(matrix))
    assert {name for name, state in states.items() if state != "done"} == {*manifest["optional"]}


def test_a_new_project_has_our_matrix_but_for_its_names_and_tools(matrix) -> None:
    """So what torchship's suite asks of the matrix of a new project holds for ours as well."""
    own = {"project", "tools"}
    theirs = load(REPO / "torchship" / "templates" / "rms_norm" / "build_matrix.yaml")
    assert matrix.model_dump(exclude=own) == theirs.model_dump(exclude=own)


def test_every_binary_was_installed_and_run(manifest) -> None:
    built = [cell for cell in manifest["cells"].values() if cell["state"] == "done"]
    assert all(any(run["ran"] for run in cell["runs"]) for cell in built)
    assert not any(run["facts"].get("failed") for cell in built for run in cell["runs"])


def test_the_page_says_how_much_it_was(manifest) -> None:
    (fat,) = (a for a in manifest["artefacts"] if a["kind"] == "fat")
    built = sum(cell["state"] == "done" for cell in manifest["cells"].values())
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert f"{built} of {manifest['total']} cells" in page
    assert f"a fat wheel of {fat['size'] / 1e6:.1f} MB" in page
