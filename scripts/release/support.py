"""lltm_conda/compat/support.json: what the installed package knows of the matrix.

From it come the commands that `python -m lltm_conda` and a failing import name.
"""

from __future__ import annotations

import json

from release import REPO
from release.cells import all_cells
from release.schema import Matrix

SUPPORT_FILE = REPO / "lltm_conda" / "compat" / "support.json"


def _ascending(versions: list[str]) -> list[str]:
    return sorted(versions, key=lambda text: [int(part) for part in text.split(".")])


def render(matrix: Matrix) -> str:
    """The text of the file; `lltm_conda.compat.support` reads it."""
    minors = _ascending(list(matrix.torch))
    facts = {
        "variants": [cell.name for cell in all_cells(matrix)],
        "torch_min": minors[0],
        "torch_max": minors[-1],
        "python_min": _ascending(list(matrix.package.pythons))[0],
        "channel": None,
        "index": None,
    }
    return json.dumps(facts, indent=2) + "\n"
