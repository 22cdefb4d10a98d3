"""The clients of torchship beside lltm; projects are made by a helper of torchship's suite."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "torchship"))
