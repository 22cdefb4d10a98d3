"""Renders lltm_conda/compat/support.json: what the installed package knows of the matrix.

`python -m lltm_conda` and a failing import take from it the commands that they name.
"""

from __future__ import annotations

import json

from packaging.version import Version

from release import REPO
from release.cells import all_cells
from release.schema import Matrix

SUPPORT_FILE = REPO / "lltm_conda" / "compat" / "support.json"


def render(matrix: Matrix) -> str:
    """The text of the file; `lltm_conda.compat.support` reads it."""
    minors = matrix.minors()
    facts = {
        "variants": [cell.name for cell in all_cells(matrix)],
        "torch_min": minors[0],
        "torch_max": minors[-1],
        "python_min": min(matrix.package.pythons, key=Version),
        "channel": None,
        "index": None,
    }
    return json.dumps(facts, indent=2) + "\n"
