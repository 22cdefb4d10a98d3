"""Reason: two distributions wrote the same files, and what lies there is of both."""

from __future__ import annotations

import re
from pathlib import Path

from ...judge import fixes
from ...judge.fixes.installers import Pip
from ...judge.records import Finding, Fix
from ...judge.words import codes
from ..environment.installed import Distribution
from .case import Case

_LACKS = re.compile(
    r"cannot import name '\w{1,200}' from (?:partially initialized module )?'([\w.]{1,300})'"
    r"|module '([\w.]{1,300})' has no attribute '"
    r"|No module named '([\w.]{1,300})'"
    r"|undefined symbol: "
)


def two_wrote_one_folder(case: Case) -> Finding | None:
    """The error lies between files that both distributions list as theirs."""
    for error in case.errors:
        match = _LACKS.search(error.message)
        if match is None:
            continue
        files = [frame.file for frame in error.frames[-1:]] + ([error.path] if error.path else [])
        module = next(filter(None, match.groups()), error.name)
        owners = case.catalog.owners_of_module(module.partition(".")[0]) if module else ()
        sharing = [one for one in owners if _lists(case, one, files)]
        if len(sharing) > 1:
            return _finding(case, sharing)
    return None


def _lists(case: Case, package: Distribution, files: list[str]) -> bool:
    listed = {file.path for file in case.catalog.files(package)}
    return bool(files) and all(Path(file) in listed for file in files)


def _finding(case: Case, sharing: list[Distribution]) -> Finding:
    kept = case.subject if case.subject in sharing else sharing[0]
    assert kept is not None
    others = [one for one in sharing if one != kept]
    names = [f"{one.name} {one.version}" for one in sharing]
    return case.finding(
        codes.FILE_OF_ANOTHER_BUILD,
        f"{' and '.join(names)} have installed the same files, and what lies there is of both",
        observed=", ".join(names),
        needed="one of them",
        fix=_keep(kept, others, case),
    )


def _keep(kept: Distribution, others: list[Distribution], case: Case) -> Fix:
    """Remove the others, whose uninstallation takes the files of the one that is kept along."""
    names = " ".join(one.name for one in others)
    words = f"keep one of them; {kept.name} by: {{command}}"
    environment = case.runtime.environment
    if environment.kind == "conda" or "+" in kept.version:
        return fixes.in_words(f"uninstall {names}, and install {kept.name} {kept.version} again")
    pip = Pip(environment)
    again = pip.reinstall(f'"{kept.name}=={kept.version}"')
    return fixes.command_in_words(
        fixes.Kind.KEEP_ONE, words, f"{pip.remove_at_once(names)} && {again}"
    )
