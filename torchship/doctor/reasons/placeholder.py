"""Reason: what is installed only bears the name: a placeholder, or another project."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ...judge import fixes
from ...judge.records import Finding, Fix
from ...judge.text import printable, read_regular
from ...judge.words import codes
from ..environment.built_for import torch_requirements
from ..environment.installed import Distribution
from ..environment.known_packages import CAN_DO_WITHOUT, COMPILES, NEEDS
from ..environment.owner import is_shared_object_name
from ..environment.standards import Python, normal
from ..environment.syntax import syntax_of
from .case import Case

_KNOWN = {*NEEDS, *CAN_DO_WITHOUT, *COMPILES}
#: Statements of a module that has nothing to offer: texts, values such as a version, an error.
_EMPTY = (ast.Expr, ast.Assign, ast.AnnAssign, ast.Pass, ast.Raise)
_IMPORTS_TORCH = re.compile(rb"^\s*(import|from) torch\b", re.MULTILINE)


def name_alone_is_installed(case: Case) -> Finding | None:
    """A distribution without objects: of which nobody can import anything, or that has nothing of
    the torch extension of its name."""
    for package in filter(None, dict.fromkeys((case.raiser, case.subject))):
        files = [file.path for file in case.catalog.files(package)]
        if not files or any(_is_of_more(path) for path in files):
            continue
        sources = [path for path in files if path.suffix == ".py"]
        said = _only_raises(case, sources)
        if said is not None:
            return _placeholder(case, package, f"all that it does is to raise: {said}")
        if _lacks_its_own(case, package) and not any(_has_code(case, path) for path in sources):
            return _placeholder(case, package, "it has no code")
        if normal(package.name) in _KNOWN and not _has_to_do_with_torch(case, package, sources):
            return _another_project(case, package)
    return None


def _is_of_more(path: Path) -> bool:
    """Whether a listed file is an object, or leads to modules that are not listed (an editable)."""
    return is_shared_object_name(path.name) or path.suffix == ".pth"


def _only_raises(case: Case, sources: list[Path]) -> str | None:
    """What a module of the package says when it raises wherever it is imported."""
    for error in case.errors:
        frame = next(iter(reversed(error.frames)), None)
        if frame is None or frame.function != "<module>" or Path(frame.file) not in sources:
            continue
        body = syntax_of(Path(frame.file), case.runtime.target).body
        does_no_more = all(isinstance(one, _EMPTY) or _is_of_library(one) for one in body)
        if does_no_more and any(isinstance(one, ast.Raise) for one in body):
            return error.message.strip().partition("\n")[0][:200]
    return None


def _is_of_library(statement: ast.stmt) -> bool:
    """Whether a statement imports modules of the standard library alone."""
    names: list[str] = []
    if isinstance(statement, ast.ImportFrom):
        names = [statement.module or ""]
    elif isinstance(statement, ast.Import):
        names = [one.name for one in statement.names]
    return bool(names) and {name.partition(".")[0] for name in names} <= sys.stdlib_module_names


def _has_code(case: Case, path: Path) -> bool:
    """Whether a module holds more than texts and values that it assigns, such as a version."""
    return any(not isinstance(one, _EMPTY) for one in syntax_of(path, case.runtime.target).body)


def _lacks_its_own(case: Case, package: Distribution) -> bool:
    """Whether the error is that the package lacks a module or a name of its own."""
    tops = {name.partition(".")[0] for name in _named(case)}
    return any(case.catalog.of_module(top) == package for top in tops)


def _named(case: Case) -> Iterator[str]:
    for error in case.errors:
        match = re.search(r"(?:No module named|from|module) '([\w.]{1,300})'", error.message)
        if match:
            yield match[1]


def _has_to_do_with_torch(case: Case, package: Distribution, sources: list[Path]) -> bool:
    if torch_requirements(package.core, Python.of(case.runtime)):
        return True
    budget = case.runtime.target.budget
    for path in sources:
        with suppress(OSError):
            if _IMPORTS_TORCH.search(read_regular(path, budget=budget)):
                return True
    return False


def _placeholder(case: Case, package: Distribution, what: str) -> Finding:
    name = f"{package.name} {package.version}"
    return case.finding(
        codes.NAME_ALONE,
        f"{name} is a placeholder, which holds the name alone: {what}",
        observed=name,
        needed=f"the package {package.name} from where its authors publish it",
        fix=_from_elsewhere(package),
    )


def _another_project(case: Case, package: Distribution) -> Finding:
    name = f"{package.name} {package.version}"
    return case.finding(
        codes.NAME_ALONE,
        f"{name} is not the torch extension of that name, but another project: none of its files "
        "imports torch, and it has no binary",
        observed=name,
        needed=f"the torch extension {package.name}",
        fix=_from_elsewhere(package),
    )


def _from_elsewhere(package: Distribution) -> Fix:
    name = printable(package.name)
    return fixes.in_words(
        f"uninstall {name}, and install the package that is meant from where its own documentation "
        "says, which is not under this name on PyPI",
    )
