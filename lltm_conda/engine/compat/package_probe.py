"""Probe: are the package's files those that were installed, and installed once?"""

from __future__ import annotations

import base64
import csv
import hashlib
from pathlib import Path

from ..project import Project
from . import fixes
from .runtime_probe import environment
from .text import printable, some

_MAX_RECORD = 4 << 20


def package_problems(project: Project) -> tuple[str, ...]:
    """Compares the installer's list of files with the files on disk; one sentence per problem.

    The result is empty for a whole package, and for a source folder, which has no such list.
    """
    package = project.folder
    try:
        lists = sorted(package.parent.glob(f"{project.distribution}-*.dist-info/RECORD"))
    except OSError:
        return ()
    problems = _compare(package, lists[-1]) if lists else []
    if len(lists) > 1:
        names = ", ".join(path.parent.name for path in lists)
        mend = fixes.install_once(environment(project), project)
        problems.insert(0, f"installed over each other: {names}; to mend: {mend}")
    return tuple(map(printable, problems))


def _compare(package: Path, record: Path) -> list[str]:
    try:
        with record.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file.read(_MAX_RECORD).splitlines()))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        return [f"{record} cannot be read ({error})"]
    listed = {row[0] for row in rows if row}
    missing, altered = [], []
    for row in rows:
        if len(row) != 3 or not row[0].startswith(f"{package.name}/") or row[0].endswith(".pyc"):
            continue
        path = package.parent / row[0]
        try:
            size = path.stat().st_size
            # Only shared objects are hashed; for other files, the size is compared.
            wrong = row[2].isdecimal() and row[2] != str(size)
            if not wrong and path.suffix == ".so" and row[1].startswith("sha256="):
                digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest())
                wrong = digest.rstrip(b"=").decode() != row[1].removeprefix("sha256=")
        except (OSError, ValueError):  # ValueError: no file can have this name
            missing.append(row[0])
            continue
        if wrong:
            altered.append(row[0])
    # A folder without any listed file is a source folder or an editable installation.
    whole = f"{package.name}/__init__.py" in listed
    objects = sorted(path.name for path in package.glob("lib/*.so")) if whole else []
    left = [name for name in objects if f"{package.name}/lib/{name}" not in listed]
    other = f"{package / 'lib'} from another installation"
    found = {
        f"left over in {other}: {some(left, 4)}; to mend: delete them": left,
        f"missing since it was installed: {some(missing, 4)}": missing,
        f"altered since it was installed: {some(altered, 4)}": altered,
    }
    return [text for text, names in found.items() if names]
