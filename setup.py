"""Builds the package with torchship. The metadata is in pyproject.toml."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from torchship.setuptools_build import run_setup  # noqa: E402

run_setup(ROOT)
