"""What oracles share with the doctor's tests: made facts and objects."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "doctor"))
