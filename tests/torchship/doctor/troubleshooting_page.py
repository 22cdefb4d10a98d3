"""What docs/fails/troubleshooting.md says of each class of faults, by its number."""

from __future__ import annotations

import re
from pathlib import Path

TEXT = (Path(__file__).parents[3] / "docs" / "fails" / "troubleshooting.md").read_text()
_TITLES = re.findall(r"^## (\d+)\. (.*)$", TEXT, re.MULTILINE)
_FIXES = re.findall(r"^\*\*Fix\.\*\* (.*)$", TEXT, re.MULTILINE)
_PROOFS = re.findall(r"^\| (\d+)\. .* \| ([\w ]+) \|$", TEXT, re.MULTILINE)

TITLES = {int(number): title for number, title in _TITLES}
FIXES = dict(zip(TITLES, _FIXES, strict=True))
PROOFS = {int(number): proof for number, proof in _PROOFS}
