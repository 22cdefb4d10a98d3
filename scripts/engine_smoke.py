"""torchship's smoke test, for the package of this project: engine_smoke.py [OPTION ...]."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "torchship" / "release" / "launch" / "engine_smoke.py"

if __name__ == "__main__":
    names = (ROOT / "project.env").read_text(encoding="utf-8")
    sys.argv[1:1] = re.findall(r'^PROJECT_PACKAGE="(.*)"$', names, re.MULTILINE)
    runpy.run_path(str(PROGRAM), run_name="__main__")
