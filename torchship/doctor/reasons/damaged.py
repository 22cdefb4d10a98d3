"""Reason: a file that a distribution was installed with is not there, or is cut short."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ...judge import fixes
from ...judge.reading.binary import read_binary
from ...judge.records import Finding
from ...judge.text import is_file
from ...judge.words import codes
from ..environment.installed import Distribution
from ..environment.owner import is_shared_object_name
from ..environment.standards import normal
from ..fixes.mending import reinstall
from ..looking.seen import DIED
from .case import Case

_LIBRARY = re.compile(r"[\w.+-]*\.so[\w.]*")
_NO_MODULE = re.compile(r"No module named '([\w.]{1,300})'")
_NO_NAME = re.compile(
    r"cannot import name '(\w{1,200})' from (?:partially initialized module )?'([\w.]{1,300})'"
)


def files_are_damaged(case: Case) -> Finding | None:
    """Only files that the failure names, or that torch cannot do without, count."""
    named = _named_files(case)
    modules = {*_missing_modules(case)}
    for package in _concerned(case):
        for file in case.catalog.files(package):
            name = file.path.name
            is_object = is_shared_object_name(name)
            if is_object and name in named and not is_file(file.path):
                return file_is_gone(case, package, file.path)
            if is_object and name in named and _is_cut(file.path, file.size):
                return _cut(case, package, file.path)
            is_module = name.endswith((".py", ".so")) and _module_of(package, file.path) in modules
            if is_module and not is_file(file.path):
                return file_is_gone(case, package, file.path)
    return None


def _concerned(case: Case) -> Iterator[Distribution]:
    """torch first: where it is damaged, everything above it fails in its own way."""
    seen: set[str] = set()
    torch = case.catalog.named("torch")
    of_torch = [r.installed for r in case.catalog.requirements(torch)] if torch else []
    for package in (torch, case.raiser, case.subject, *of_torch):
        if package is not None and package.name not in seen:
            seen.add(package.name)
            yield package


def _named_files(case: Case) -> set[str]:
    """The names of the libraries that the failure speaks of."""
    names = {name for error in case.errors for name in _LIBRARY.findall(error.message)}
    log = case.seen.log
    if log is not None:
        names.update(Path(error.file).name for error in log.errors)
        names.update(name for name in log.tried if name not in log.found)
        if case.seen.outcome == DIED:  # a page behind the end of a mapped file is a SIGBUS
            names.update(Path(file).name for file in log.needed_by)
    if case.of_torch is not None and case.of_torch.rejection is not None:
        names.update(_LIBRARY.findall(case.of_torch.rejection.why))
    return names


def _missing_modules(case: Case) -> Iterator[str]:
    for error in case.errors:
        match = _NO_MODULE.search(error.message)
        if match:
            yield match[1]
        match = _NO_NAME.search(error.message)
        if match:
            yield f"{match[2]}.{match[1]}"


def _module_of(package: Distribution, file: Path) -> str:
    inner = file.relative_to(package.site) if package.site in file.parents else Path(file.name)
    parts = [*inner.parts[:-1], inner.name.partition(".")[0]]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _is_cut(path: Path, size: int | None) -> bool:
    """Whether a file is shorter than it was, and no whole object: `strip` shortens one, too."""
    if size is None or path.stat().st_size >= size:
        return False
    return not read_binary(path, light=True).is_read_whole


def file_is_gone(case: Case, package: Distribution, path: Path) -> Finding:
    """The finding on a file of a distribution that is not there."""
    return _finding(case, package, path, "is not there, although it was installed")


def _cut(case: Case, package: Distribution, path: Path) -> Finding:
    return _finding(case, package, path, "is cut short: it is smaller than when it was installed")


def _finding(case: Case, package: Distribution, path: Path, what: str) -> Finding:
    code = codes.PACKAGE_FILES
    if normal(package.name) == "torch":
        code = codes.TORCH_DAMAGED
    elif normal(package.name).startswith(("nvidia-", "cuda-")):
        code = codes.TORCH_REQUIREMENTS  # torch loads their libraries itself
    fix = reinstall(package, case.runtime)
    if not fix.command and case.runtime.environment.kind != "conda" and "+" not in package.version:
        fix = fixes.install_requirements(
            case.runtime.environment, f"{package.name}=={package.version}"
        )
    return case.finding(
        code,
        f"{path.name} of {package.name} {package.version} {what}",
        observed=str(path),
        needed="the file as it was installed",
        fix=fix,
    )
