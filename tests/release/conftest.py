"""The release tool is tested from the checkout, as scripts/build_all.sh runs it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "scripts"))
sys.path[1:1] = [str(REPO / "tests" / name) for name in ("compat", "builds")]  # their helpers

pytest.importorskip("pydantic")
pytest.importorskip("ruamel.yaml")


@pytest.fixture(scope="session")
def matrix():
    from release.matrix import load

    return load()


@pytest.fixture
def matrix_text() -> str:
    return (REPO / "build_matrix.yaml").read_text(encoding="utf-8")


@pytest.fixture
def log(tmp_path):
    from release.shell import Log

    with Log(tmp_path / "logs" / "test.log") as log:
        yield log
