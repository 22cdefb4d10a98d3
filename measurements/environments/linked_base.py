"""An environment with torch alone, out of the packages of this Python: nothing is downloaded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

#: torch 2.13 with what it requires, and the tools with which fixes install.
DISTRIBUTIONS = (
    "torch",
    "filelock",
    "fsspec",
    "jinja2",
    "markupsafe",
    "mpmath",
    "networkx",
    "numpy",
    "sympy",
    "typing_extensions",
    "pip",
    "setuptools",
    "wheel",
)


def link_base(base: Path) -> Path:
    """Make the environment `base` of hard links; of copies on another file system."""
    python = getattr(sys, "_base_executable", sys.executable)
    subprocess.run([python, "-m", "venv", "--without-pip", base], check=True)
    (site,) = base.glob("lib/python*/site-packages")
    for name in DISTRIBUTIONS:
        for file in distribution(name).files or ():
            is_outside = file.parts[0] == ".."
            if not is_outside and "__pycache__" not in file.parts:
                _link(Path(str(file.locate())), site / file)
    return base


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
