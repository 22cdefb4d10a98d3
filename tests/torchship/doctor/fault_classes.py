"""What docs/fails/codes/index.md says of each class of faults, by its number."""

from __future__ import annotations

import re
from pathlib import Path

TEXT = (Path(__file__).parents[3] / "docs" / "fails" / "codes" / "index.md").read_text()
_ROWS = re.findall(r"^\| (\d+)\. (.*?) \| .* \| ([\w ]+) \|$", TEXT, re.MULTILINE)

TITLES = {int(number): title for number, title, _ in _ROWS}
PROOFS = {int(number): proof for number, _, proof in _ROWS}
