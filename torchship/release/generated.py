"""Writes and checks the files and parts of files that follow from the matrix and stored results."""

import json
import re
from pathlib import Path

from packaging.version import Version
from rich.console import Console

from . import (
    ORIGIN,
    PACKAGE,
    PROJECT,
    PROJECT_RECORD,
    REPO,
    WRITE,
    ReleaseError,
    cibuildwheel,
    evidence,
    project_record,
    support_table,
)
from .cells import STDLIB, VARIANTS_FILE, all_cells, for_conda, render
from .paths import write_atomically
from .schema import FIRST, Matrix

SUPPORT_PAGE = REPO / "docs" / "numbers" / "support.md"
SUPPORT_FILE = PACKAGE / "support.json"
PYPROJECT = REPO / "pyproject.toml"
# A line whose value follows from the template after `#=`: `{KEY}` of `project:`, or `{version}`.
NAMED = re.compile(r"^( *(?:- |[\w-]+(?::| =) ))(.*)  #= (.*)$", re.MULTILINE)


def expected(matrix: Matrix) -> dict[Path, str]:
    packaged = [cell for cell in all_cells(matrix) if for_conda(cell)]
    files = {
        VARIANTS_FILE: render(packaged, matrix),
        SUPPORT_FILE: support(matrix),
        PROJECT_RECORD: project_record(),
        REPO / "csrc" / "project.h": project_header(matrix),
    }
    for path in (REPO / "environment.yml", REPO / "recipe" / "recipe.yaml", PYPROJECT):
        files[path] = named(path.read_text(encoding="utf-8"), matrix)
    parts = [
        (PYPROJECT, "cibuildwheel", cibuildwheel.table(matrix), "# {}"),
        (REPO / "README.md", "support-table", support_table.brief(matrix)),
        (REPO / "docs" / "ship" / "release.md", "glibc", floors(matrix)),
    ]
    for name in matrix.platforms if SUPPORT_PAGE.exists() else ():
        seen = evidence.load(evidence.results(name))
        text = support_table.full(matrix.on(name), seen, evidence.suites(name))
        marks = "environments" if name == FIRST else f"environments-{name}"
        parts.append((SUPPORT_PAGE, marks, text))
    for path, *part in parts:
        if path.exists():  # a project may lack some of these files
            old = files.get(path) or path.read_text(encoding="utf-8")
            files[path] = filled(path, old, *part)
    return files


def named(text: str, matrix: Matrix) -> str:
    """The text with the project's values in the lines that NAMED matches."""
    names = {**dict(matrix.project), "version": PROJECT.version}
    return NAMED.sub(lambda line: f"{line[1]}{line[3].format_map(names)}  #= {line[3]}", text)


def support(matrix: Matrix) -> str:
    others = [matrix.on(name) for name in matrix.platforms if name != matrix.platform]
    facts = {
        "variants": [cell.name for cell in all_cells(matrix)],
        "torch_min": matrix.minors()[0],
        "torch_max": matrix.minors()[-1],
        "python_min": min(matrix.package.pythons, key=Version),
        "channel": matrix.project.channel,
        "index": matrix.project.index,
        "others": {m.platform: [str(cell.variant) for cell in all_cells(m)] for m in others},
    }
    return json.dumps(facts, indent=2) + "\n"


def project_header(matrix: Matrix) -> str:
    project = matrix.project
    return f"""// {ORIGIN}
#pragma once

#define PROJECT_NAME "{project.distribution}"
#define PROJECT_PACKAGE "{project.package}"
// The C++ namespace, the dispatcher's namespace, and the prefix of exported C symbols.
#define PROJECT_NAMESPACE {project.namespace}
#define PROJECT_SYMBOL(name) {project.namespace}_##name
"""


def floors(matrix: Matrix) -> str:
    """The Markdown table of the glibc that each artefact needs."""
    sysroot, newest = STDLIB["c_stdlib_version"], matrix.package.manylinux
    image = cibuildwheel.IMAGE.partition("manylinux")[2].partition("-")[0].replace("_", ".")
    return f"""\
| artefact | glibc | who says so |
|---|---|---|
| what `scripts/build_all.sh` makes | what its objects need, at most {newest} | the objects |
| what the release workflows make | the same, at most {image} | the image of their jobs |
| packages of conda-build beside conda-forge | {sysroot} | the sysroot of `variants.yaml` |
| those beside the bootstrap channel | the host's | its sysroot |
"""


def filled(path: Path, old: str, name: str, text: str, comment: str = "<!-- {} -->") -> str:
    """The text `old` of a file, with `text` between the comments NAME:begin and NAME:end."""
    begin, end = (comment.format(f"{name}:{which}") + "\n" for which in ("begin", "end"))
    before, found, rest = old.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed or begin in rest or end in before + after:
        raise ReleaseError(
            f"{path.relative_to(REPO)} must hold {begin.strip()} and {end.strip()} once each, in "
            "this order; put them around the generated part"
        )
    return before + begin + text + end + after


def drifted(matrix: Matrix) -> dict[str, str]:
    """The right texts of generated files that are missing or outdated, by path in the checkout."""
    return {
        str(path.relative_to(REPO)): text
        for path, text in expected(matrix).items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    }


def check(matrix: Matrix) -> None:
    if stale := drifted(matrix):
        raise ReleaseError(f"{', '.join(stale)}: not what build_matrix.yaml says; run {WRITE}")


def write(matrix: Matrix, console: Console) -> None:
    stale = drifted(matrix)
    for name, text in stale.items():
        write_atomically(REPO / name, text)
    console.print("\n".join(f"written {name}" for name in stale) or "all files are up to date")
