"""The files and parts of files that follow from the matrix: written on request, always checked."""

from __future__ import annotations

import json
from pathlib import Path

from packaging.version import Version
from rich.console import Console

from engine.compat.troubleshooting import page
from release import (
    PACKAGE,
    PROJECT,
    REPO,
    ReleaseError,
    cibuildwheel,
    evidence,
    support_table,
    variants,
)
from release.cells import all_cells
from release.schema import Matrix
from release.store import write_atomically

README_FILE = REPO / "README.md"
SUPPORT_PAGE = REPO / "docs" / "support.md"
SUPPORT_FILE = PACKAGE / "support.json"
PYPROJECT = REPO / "pyproject.toml"
HEADER_FILE = REPO / "csrc" / "project.h"
WRITE = "scripts/build_all.sh --write-generated"
ORIGIN = f"Generated from build_matrix.yaml by `{WRITE}`; do not edit."


def expected(matrix: Matrix) -> dict[Path, str]:
    """Every generated file with the text that it should hold."""
    seen = evidence.load()
    short, full = support_table.short(matrix, seen), support_table.full(matrix, seen)
    settings = cibuildwheel.table(matrix)
    return {
        variants.VARIANTS_FILE: variants.for_all(matrix),
        SUPPORT_FILE: support(matrix),
        PACKAGE / "_project.py": project_record(matrix),
        HEADER_FILE: project_header(matrix),
        PYPROJECT: filled(PYPROJECT, "cibuildwheel", settings, ("# ", "")),
        REPO / "docs" / "troubleshooting.md": page(PROJECT),
        README_FILE: filled(README_FILE, "support-table", short),
        SUPPORT_PAGE: filled(SUPPORT_PAGE, "environments", full),
    }


def support(matrix: Matrix) -> str:
    """What the installed package knows of the matrix: `engine.compat.support` reads it."""
    facts = {
        "variants": [cell.name for cell in all_cells(matrix)],
        "torch_min": matrix.minors()[0],
        "torch_max": matrix.minors()[-1],
        "python_min": min(matrix.package.pythons, key=Version),
        "channel": None,
        "index": None,
    }
    return json.dumps(facts, indent=2) + "\n"


def project_record(matrix: Matrix) -> str:
    """Who the project is, for the engine."""
    project = matrix.project
    devices = dict.fromkeys(name.rstrip("0123456789") for name in matrix.kernels)
    definition = f"{project.package}.{project.definition}" if project.definition else ""
    return f'''# {ORIGIN}
"""Who the project is, for the engine."""

from __future__ import annotations

from pathlib import Path

from ._version import __version__
from .engine.project import Project

PROJECT = Project(
    distribution="{project.distribution}",
    package="{project.package}",
    namespace="{project.namespace}",
    prefix="{project.prefix}",
    operator="{project.operator}",
    version=__version__,
    folder=Path(__file__).parent,
    kernels=({", ".join(f'"{device}"' for device in devices)}{"," * (len(devices) == 1)}),
    definition="{definition}",
)
'''


def project_header(matrix: Matrix) -> str:
    """Who the project is, for C++."""
    project = matrix.project
    return f"""// {ORIGIN}
#pragma once

#define PROJECT_NAME "{project.distribution}"
#define PROJECT_PACKAGE "{project.package}"
// C++, the dispatcher and the prefix of exported C symbols have one namespace.
#define PROJECT_NAMESPACE {project.namespace}
#define PROJECT_SYMBOL(name) {project.namespace}_##name
"""


def filled(path: Path, name: str, text: str, comment: tuple[str, str] = ("<!-- ", " -->")) -> str:
    """The file with `text` between its markers `NAME:begin` and `NAME:end`.

    Raises:
        ReleaseError: the markers are not there once each and in this order.
    """
    begin, end = (f"{comment[0]}{name}:{which}{comment[1]}\n" for which in ("begin", "end"))
    old = path.read_text(encoding="utf-8")
    before, found, rest = old.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed or begin in rest or end in before + after:
        raise ReleaseError(
            f"{path.relative_to(REPO)} must hold {begin.strip()} and {end.strip()} once each, in "
            "this order; put them around the generated part"
        )
    return before + begin + text + end + after


def drifted(matrix: Matrix) -> dict[str, str]:
    """The generated files that are out of date: name in the checkout -> the text of the matrix."""
    return {
        str(path.relative_to(REPO)): text
        for path, text in expected(matrix).items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    }


def check(matrix: Matrix) -> None:
    """Checks the generated files.

    Raises:
        ReleaseError: some are out of date; the text names them and the command that writes them.
    """
    if stale := drifted(matrix):
        text = f"{', '.join(stale)}: not what build_matrix.yaml says"
        raise ReleaseError(f"{text}; run {WRITE}")


def write(matrix: Matrix, console: Console) -> None:
    """Writes the generated files that are out of date."""
    stale = drifted(matrix)
    for name, text in stale.items():
        write_atomically(REPO / name, text)
    console.print("\n".join(f"written {name}" for name in stale) or "all are up to date")
