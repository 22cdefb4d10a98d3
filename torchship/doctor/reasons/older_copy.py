"""Reason: PYTHONPATH brings in another copy of a package before the one of the environment."""

from __future__ import annotations

import re

from ...judge.records import Finding
from ...judge.words import codes
from ..environment.catalog import tops_of
from ..environment.installed import Distribution, hidden_copies, site_folders
from ..environment.standards import admits, is_older, normal, parse_need
from ..fixes.mending import leave_out, names_in_variable
from .case import Case

_NAMED = re.compile(r"'(\w{1,200})(?:\.[\w.]{1,300})?'")


def older_copy_comes_first(case: Case) -> Finding | None:
    """The error must come out of the older copy, or speak of it."""
    target = case.runtime.target
    for hidden in hidden_copies(target, site_folders(target)):
        used, copy = hidden.used, hidden.copy
        if not names_in_variable(used.site) or not is_older(used.version, copy.version):
            continue
        if _comes_out_of(case, used):
            return case.finding(
                codes.SOURCE_FOLDER,
                f"Python takes {used.name} {used.version} in {used.site}, which PYTHONPATH names, "
                f"before the newer {copy.version} in {copy.site}",
                observed=f"{used.name} {used.version}",
                needed=f"{copy.name} {copy.version}, which is installed",
                fix=leave_out(used.site),
            )
    return None


def with_copy_that_fits(finding: Finding, case: Case) -> Finding:
    """The finding on a distribution that is not of the release that is needed; where one that is
    lies further on the path, that it is not taken."""
    need = parse_need(finding.needed) if finding.code == codes.REQUIREMENT_NOT_MET else None
    target = case.runtime.target
    for hidden in hidden_copies(target, site_folders(target)) if need else ():
        used, copy = hidden.used, hidden.copy
        is_meant = need is not None and normal(used.name) == need.name
        if need is None or not is_meant or not names_in_variable(used.site):
            continue
        if admits(need.specifier, copy.version) and not admits(need.specifier, used.version):
            return finding._replace(
                code=codes.SOURCE_FOLDER,
                observed=f"{used.name} {used.version}",
                why=f"{finding.why}; {copy.version} is installed in {copy.site}, and Python takes "
                f"{used.version} in {used.site} before it, which PYTHONPATH names",
                fix=leave_out(used.site),
            )
    return finding


def _comes_out_of(case: Case, package: Distribution) -> bool:
    packages = (case.catalog.of_file(frame.file) for frame in case.frames())
    # Torch raises what old code asks of it in a wrong way.
    others = (one for one in packages if one is not None and normal(one.name) != "torch")
    if next(others, None) == package:
        return True
    named = {name for error in case.errors for name in _NAMED.findall(error.message)}
    return not named.isdisjoint(tops_of(case.runtime.target, package.place))
