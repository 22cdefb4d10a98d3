"""Reason: the code asks for the metadata of a distribution, which are not where its files are."""

from __future__ import annotations

import re
from pathlib import Path

from ...judge import fixes
from ...judge.records import Finding
from ...judge.text import printable
from ...judge.words import codes
from ..environment.installed import module_in
from ..environment.standards import parse_need
from ..fixes.mending import install
from .case import Case

_NO_METADATA = re.compile(
    r"No package metadata was found for (?:The ')?(?P<need>[A-Za-z][\w.,<>=!~\[\] -]{0,200})"
)


def metadata_are_not_there(case: Case) -> Finding | None:
    for error in case.errors:
        match = _NO_METADATA.search(error.message)
        need = parse_need(match["need"].strip()) if match else None
        if need is None or case.catalog.named(need.name) is not None:
            continue
        asking = case.name_of(case.raiser)
        module = need.name.replace("-", "_")
        place = next((e for e in map(Path, filter(None, case.path)) if module_in(e, module)), None)
        if place is None:
            return case.finding(
                codes.REQUIREMENT_NOT_MET,
                f"{asking} asks for the metadata of {need.name}, which is not installed",
                observed="not installed",
                needed=need.text,
                fix=install(case.runtime, need.text),
            )
        return case.finding(
            codes.PACKAGE_FILES,
            f"{asking} asks for the metadata of {need.name}, and in {place} its module lies "
            f"without them: there is no folder {module}-*.dist-info",
            observed=str(place),
            needed=f"{module}-*.dist-info beside {module}",
            fix=fixes.in_words(
                f"bring the folder {printable(module)}-*.dist-info to where its module lies, with "
                "whatever laid out this environment, or install it with an installer",
            ),
        )
    return None
