"""Where the tests of the release tool find the checkout."""

from __future__ import annotations

from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
MATRIX = REPO / "build_matrix.yaml"
