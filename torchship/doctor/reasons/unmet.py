"""Reason: a package on the way to the error requires what is not so here.

By its own words in the error, or by the metadata of the packages whose code was running.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...judge.records import Finding
from ...judge.words import codes
from ..environment.catalog import Requirement
from ..environment.installed import Distribution
from ..environment.standards import admits, normal, parse_need
from ..fixes.mending import install, meet
from .case import Case

_SIGN = r"(?:==|~=|!=|>=|<=|>|<) ?\d[\w.*+!]{0,30}"
_SPELLED = re.compile(rf"(?<![\w.-])([A-Za-z][\w.-]{{1,60}}) ?({_SIGN}(?: ?, ?{_SIGN}){{0,5}})")
_ASKS = re.compile(r"\b(?:requires?|required|needs?|expects?|expected|install|upgrade|must)\b")
_REFUSED = re.compile(
    r"The '(?P<lacking>[^']{1,200})' distribution was not found and is required by (?P<by>.{1,200})"
    r"|\(\S+ \S+ \([^()]{1,1000}\), Requirement\.parse\('(?P<wanted>[^']{1,200})'\)(?P<of>.{0,200})"
)
#: Errors that come of the machine or of the code itself rather than of another release.
_OF_ELSEWHERE = ("OSError", "FileNotFoundError", "PermissionError", "RuntimeError", "SystemExit")


def words_name_a_requirement(case: Case) -> Finding | None:
    """The package looks at the version of another itself, and says which it needs."""
    package = case.raiser
    for error in case.errors:
        if package is None or not _ASKS.search(error.message):
            continue
        for name, specifier in _SPELLED.findall(error.message):
            need = parse_need(f"{name}{specifier}")
            here = case.catalog.named(name)
            if need is None or here is None or need.name == "torch":
                continue
            if not admits(need.specifier, here.version):
                return case.finding(
                    codes.REQUIREMENT_NOT_MET,
                    f"{package.name} {package.version} looks at the version of {here.name} itself, "
                    f"needs {need.text}, and {here.version} is installed",
                    observed=f"{here.name} {here.version}",
                    needed=need.text,
                    fix=install(case.runtime, need.text),
                )
    return None


def installed_ones_are_refused(case: Case) -> Finding | None:
    """A script that setuptools made has pkg_resources look at all requirements when it starts."""
    for error in case.errors:
        match = _REFUSED.search(error.message) if "pkg_resources" in error.type else None
        if match is None:
            continue
        need = parse_need(match["lacking"] or match["wanted"])
        if need is None:
            continue
        here = case.catalog.named(need.name)
        who = re.findall(r"[A-Za-z][\w.-]*", match["by"] or match["of"])
        observed = f"{here.name} {here.version}" if here else "not installed"
        instead = f"and {observed} is installed" if here else "which is not installed"
        return case.finding(
            codes.REQUIREMENT_NOT_MET,
            f"the script has its requirements checked when it starts: "
            f"{', '.join(who[:3]) or 'it'} requires {need.text}, {instead}",
            observed=observed,
            needed=need.text,
            fix=install(case.runtime, need.text),
        )
    return None


def requirement_on_the_way_is_not_met(case: Case) -> Finding | None:
    """A package whose code was running requires another release of one whose code was running, too,
    or a package of which the error speaks."""
    if not case.errors or case.errors[0].type in _OF_ELSEWHERE:
        return None
    packages = dict.fromkeys(packages_on_the_way(case))
    names = {normal(one.name) for one in packages}
    said = {normal(word) for error in case.errors for word in _words(error.message)}
    for package in packages:
        for requirement in unmet_of(case, package):
            if requirement.name in names | said:
                here = requirement.installed
                observed = f"{here.name} {here.version}" if here else "not installed"
                instead = f"and {observed} is installed" if here else "which is not installed"
                return case.finding(
                    codes.REQUIREMENT_NOT_MET,
                    f"{package.name} {package.version} requires {requirement.text}, {instead}",
                    observed=observed,
                    needed=requirement.text,
                    fix=meet(requirement, case.runtime),
                )
    return None


def packages_on_the_way(case: Case) -> Iterator[Distribution]:
    """The distributions whose code was running, that in which it failed first."""
    for frame in case.frames():
        package = case.catalog.of_file(frame.file)
        if package is not None:
            yield package
    if case.subject is not None:
        yield case.subject


def unmet_of(case: Case, package: Distribution) -> Iterator[Requirement]:
    """What a distribution requires and is not so; without torch, which has reasons of its own."""
    for requirement in case.catalog.requirements(package):
        if not requirement.is_met and requirement.name != "torch":
            yield requirement


def _words(text: str) -> list[str]:
    return re.findall(r"[A-Za-z][\w-]{1,60}", text)[:1000]
