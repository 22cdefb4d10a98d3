"""The release tool: builds, audits, packs, installs and runs what build_matrix.yaml lists.

`import engine` finds the engine of the package that `project:` in build_matrix.yaml names.
"""

from __future__ import annotations

import os
import re
import sys
from importlib import import_module
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
BUILD = REPO / "build"
DIST = REPO / "dist"
MATRIX_FILE = REPO / "build_matrix.yaml"


def of_project(name: str) -> str:
    """A line of the block `project:` as text; `matrix` checks it, and needs the engine for that."""
    line = rf"^project:\n(?:(?:  .*)?\n)*?  {name}: *\"?([^\"\n]*)"
    found = re.search(line, MATRIX_FILE.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        sys.exit(f"{MATRIX_FILE}: `project.{name}` is missing; add it")
    return found[1]


_package = of_project("package")
# The tool needs the checker and the builder alone; torch must not be needed for that.
os.environ.setdefault(f"{of_project('prefix')}_LOAD", "0")
import_module(f"{_package}.engine.aliases").add("engine", f"{_package}.engine")

PROJECT = import_module(f"{_package}._project").PROJECT
PACKAGE = REPO / _package
SMOKE = REPO / of_project("smoke")
EXAMPLE = REPO / of_project("example")


class ReleaseError(Exception):
    """A failure whose text has the cause and the remedy; printed without a traceback."""
