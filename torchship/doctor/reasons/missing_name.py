"""Reason: a module is there, but not a name in it: it is of another release."""

from __future__ import annotations

import os
import re

from ...judge import fixes
from ...judge.records import Finding, dotted
from ...judge.words import codes
from ..environment.installed import Distribution
from ..environment.metadata import origin_of
from ..environment.standards import normal
from ..fixes.mending import install
from ..looking.seen import SeenError
from .case import Case
from .missing_module import of_itself, other_release

_NO_NAME = re.compile(
    r"module '(?P<module>[\w.]{1,300})' has no attribute '(?P<name>\w{1,200})'"
    r"|cannot import name '(?P<import>\w{1,200})' from (?:partially initialized module )?"
    r"'(?P<from>[\w.]{1,300})'"
)
_NUMPY_ABI = re.compile(
    r"numpy\.dtype size changed|numpy\.core\.multiarray failed to import"
    r"|numpy\.ufunc size changed|compiled using NumPy 1"
    r"|module compiled against API version|compiled against ABI version"
)


#: `cannot import name 'x' from 'y' (/folder/y.py)`.
_OF_FILE = re.compile(r"from '[\w.]{1,300}' \((/[^()]{1,1000})\)")
_REMOVED = re.compile(r"removed in the (\w{1,50}) (\d+(?:\.\d+)+) release")


def name_is_missing(case: Case) -> Finding | None:
    for error in case.errors:
        if _NUMPY_ABI.search(error.message):
            return _numpy_abi(case)
        refused = _name_is_refused(case, error)
        if refused is not None:
            return refused
        match = _NO_NAME.search(error.message)
        if match is None:
            continue
        module = match["module"] or match["from"]
        name = match["name"] or match["import"]
        if "partially initialized" in error.message and not _is_native(name):
            continue  # its modules import each other
        if case.seen.what == "torch" and module.startswith("torch._C"):
            return _of_two_releases(case, module, name)
        owner = case.catalog.of_module(module)
        if owner is None or _is_of_elsewhere(case, error, owner):
            return None if owner else _of_library(case, module, name)
        asking = case.raiser
        if asking is not None and normal(asking.name) == normal(owner.name):
            finding = of_itself(case, owner, f"{module}.{name}") if _is_native(name) else None
            if finding is not None:
                return finding
            continue
        return other_release(case, asking, owner, f"has no {module}.{name}")
    return None


def _is_of_elsewhere(case: Case, error: SeenError, owner: Distribution) -> bool:
    """Whether the error names a file that is not where the distribution has its own."""
    match = _OF_FILE.search(error.message)
    if match is None or origin_of(case.runtime.target, owner.place).is_editable:
        return False
    return not os.path.realpath(match[1]).startswith(os.path.realpath(owner.site))


def _of_library(case: Case, module: str, name: str) -> Finding | None:
    """The standard library of another Python has the name."""
    package = case.raiser
    if package is None:
        return None
    version = dotted(case.runtime.python[:2])
    return case.finding(
        codes.PACKAGE_OF_ANOTHER_PYTHON,
        f"{package.name} {package.version} was written for another Python: {module} of Python "
        f"{version} has no {name}",
        observed=f"Python {version}",
        needed=f"a Python whose {module} has {name}",
        fix=fixes.other_release(
            f"install a release of {package.name} for Python {version}, or use the Python that it "
            "is for",
            package.name,
        ),
    )


def _name_is_refused(case: Case, error: SeenError) -> Finding | None:
    """A module that tells by its own `__getattr__` that it has a name no longer, or not yet."""
    asked = [frame.file for frame in error.frames if frame.function == "__getattr__"]
    owner = case.catalog.of_file(asked[-1]) if asked else None
    if owner is None or case.raiser != owner:
        return None
    packages = [case.catalog.of_file(frame.file) for frame in reversed(error.frames)]
    asking = next((one for one in packages if one not in (None, owner)), case.subject)
    if asking is None or asking == owner or normal(owner.name) == "torch":
        return None
    said = error.message.strip().partition("\n")[0].rstrip(".")[:200]
    removed = _REMOVED.search(error.message)
    if removed is None or normal(removed[1]) != normal(owner.name):
        return other_release(case, asking, owner, f"says: {said}")
    wanted = f"{owner.name}<{removed[2].removesuffix('.0')}"
    return case.finding(
        codes.REQUIREMENT_NOT_MET,
        f"{asking.name} {asking.version} was not written for {owner.name} "
        f"{owner.version}, which says: {said}",
        observed=f"{owner.name} {owner.version}",
        needed=wanted,
        fix=install(case.runtime, wanted),
    )


def _of_two_releases(case: Case, module: str, name: str) -> Finding:
    """torch's own Python asks its own module for what that does not have."""
    runtime = case.runtime
    return case.finding(
        codes.TORCH_DAMAGED,
        f"torch's Python files and its libraries are of two releases, as after an upgrade that was "
        f"cut off: {module} has no {name}",
        needed="all files of one release",
        fix=fixes.reinstall_torch(runtime.environment, runtime.torch),
    )


def _is_native(name: str) -> bool:
    return re.fullmatch(r"_C\w*|_ext\w*|\w+_cuda|\w+_cpp", name) is not None


def _numpy_abi(case: Case) -> Finding | None:
    """A package that was compiled for another NumPy."""
    numpy = case.catalog.named("numpy")
    package = case.raiser
    if numpy is None or package is None or normal(package.name) == "numpy":
        return None
    requirement = case.catalog.requirement_on(package, "numpy")
    is_two = numpy.version.startswith("2.")
    wanted = requirement.text if requirement and requirement.is_met is False else "numpy<2"
    return case.finding(
        codes.REQUIREMENT_NOT_MET,
        f"{package.name} {package.version} was not compiled for NumPy {numpy.version}",
        observed=f"NumPy {numpy.version}",
        needed=wanted if is_two else "a newer NumPy",
        fix=install(case.runtime, wanted) if is_two else install(case.runtime, "numpy>=2"),
    )
