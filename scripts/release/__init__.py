"""The release tool: builds, audits, packs, installs and runs what build_matrix.yaml lists."""

from __future__ import annotations

import os
from pathlib import Path

# The tool reads lltm_conda.engine.compat and .builder; torch must not be needed for that.
os.environ.setdefault("LLTM_CONDA_LOAD", "0")

REPO = Path(__file__).resolve().parents[2]
BUILD = REPO / "build"
DIST = REPO / "dist"


class ReleaseError(Exception):
    """A failure whose text has the cause and the remedy; printed without a traceback."""
