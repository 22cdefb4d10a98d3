"""Files that follow from the matrix: written on request, checked on every run."""

from __future__ import annotations

from rich.console import Console

from release import REPO, ReleaseError
from release.schema import Matrix
from release.store import write_atomically
from release.variants import expected


def drifted(matrix: Matrix) -> list[str]:
    """Names of generated files whose text is not what the matrix says."""
    found = []
    for path, text in expected(matrix).items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            found.append(str(path.relative_to(REPO)))
    return found


def check_or_write(matrix: Matrix, console: Console, *, write: bool) -> None:
    """Writes what is out of date, or refuses to go on with it."""
    stale = drifted(matrix)
    if not write and stale:
        text = f"{', '.join(stale)}: not what build_matrix.yaml says"
        raise ReleaseError(f"{text}; run scripts/build_all.sh --write-generated")
    for path, text in expected(matrix).items() if write else ():
        name = str(path.relative_to(REPO))
        if name in stale:
            write_atomically(path, text)
        console.print(f"{'written  ' if name in stale else 'unchanged'} {name}")
