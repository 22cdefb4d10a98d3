"""Reason: Python cannot read a file of its own language: damaged, or written for another Python."""

from __future__ import annotations

import base64
import hashlib
from contextlib import suppress
from pathlib import Path

from ...judge import fixes
from ...judge.records import Finding, dotted
from ...judge.text import read_regular
from ...judge.words import codes
from ..environment.installed import Distribution
from ..environment.metadata import Listed
from ..environment.standards import admits, normal
from ..fixes.mending import reinstall
from .case import Case

_OF_SYNTAX = ("SyntaxError", "IndentationError", "TabError")
_OF_NULL_BYTES = "null bytes"


def python_is_unreadable(case: Case) -> Finding | None:
    # Before Python 3.11.4, null bytes are a ValueError.
    errors = (one for one in case.errors if one.type in _OF_SYNTAX or _OF_NULL_BYTES in one.message)
    error = next(errors, None)
    if error is None:
        return None
    package = case.raiser
    files = case.catalog.files(package) if package is not None else []
    if package is not None and _OF_NULL_BYTES in error.message:
        # Before Python 3.12, such an error does not name its file.
        sources = (file for file in files if file.name.endswith(".py"))
        blank = next((file for file in sources if b"\0" in _content(case, file.path)), None)
        return _damaged(case, package, blank, "holds null bytes") if blank else None
    if package is None or not error.frames:
        return None
    named = Path(error.frames[-1].file)
    listed = next((file for file in files if file.path == named), None)
    if listed is not None and _is_changed(case, listed):
        return _damaged(case, package, listed, "is not as it was installed")
    return _of_another_python(case, package, listed)


def _content(case: Case, path: Path) -> bytes:
    with suppress(OSError):
        return read_regular(path, budget=case.runtime.target.budget)
    return b""


def _is_changed(case: Case, listed: Listed) -> bool:
    name, _, digest = listed.hash.partition("=")
    if name != "sha256":
        return False
    here = hashlib.sha256(_content(case, listed.path)).digest()
    return base64.urlsafe_b64encode(here).decode().rstrip("=") != digest


def _damaged(case: Case, package: Distribution, listed: Listed, what: str) -> Finding:
    is_torch = normal(package.name) == "torch"
    return case.finding(
        codes.TORCH_DAMAGED if is_torch else codes.PACKAGE_FILES,
        f"{listed.name} of {package.name} {package.version} {what}",
        observed=str(listed.path),
        needed="the file as it was installed",
        fix=reinstall(package, case.runtime),
    )


def _of_another_python(case: Case, package: Distribution, listed: Listed | None) -> Finding | None:
    """Its metadata exclude this Python, or the file is as its authors published it."""
    here = dotted(case.runtime.python)
    wanted = package.core.requires_python
    is_excluded = bool(wanted) and not admits(wanted, here)
    if not is_excluded and (listed is None or not listed.hash):
        return None
    asks = f"; it requires Python {wanted}" if is_excluded else ""
    return case.finding(
        codes.PACKAGE_OF_ANOTHER_PYTHON,
        f"{package.name} {package.version} is not written in the language of Python {here}{asks}",
        needed=f"Python {wanted}" if is_excluded else "the Python that it is written for",
        fix=fixes.other_release(
            f"install a release of {package.name} for Python {dotted(case.runtime.python[:2])}, or "
            "use the Python that it is for",
            package.name,
        ),
    )
