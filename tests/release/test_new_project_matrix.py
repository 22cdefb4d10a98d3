"""The matrix of a new project is ours."""

from __future__ import annotations

from pathlib import Path

from torchship.release.matrix.load import load

REPO = Path(__file__).resolve().parents[2]


def test_a_new_project_has_our_matrix_but_for_its_names_and_tools(matrix) -> None:
    """So what torchship's suite asks of the matrix of a new project holds for ours as well."""
    own = {"project", "tools"}
    theirs = load(REPO / "torchship" / "templates" / "rms_norm" / "build_matrix.yaml")
    assert matrix.model_dump(exclude=own) == theirs.model_dump(exclude=own)
