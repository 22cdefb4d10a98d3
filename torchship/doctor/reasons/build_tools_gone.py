"""Reason: an editable install builds itself again when imported, with tools that are gone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ...judge import fixes
from ...judge.fixes.installers import Pip
from ...judge.records import Finding, Fix
from ...judge.text import is_file, quoted, read_regular
from ...judge.words import codes
from ..environment.installed import Distribution
from ..environment.metadata import origin_of
from ..environment.standards import parse_need
from .case import Case

_LARGEST = 1 << 20
#: The environments in which pip and uv build, and which they remove afterwards.
_TOOL = re.compile(
    r"'(?P<tool>/[^']{0,900}/(?:pip-build-env-[^/']+|builds-v\d+/\.tmp[^/']+)/[^']{1,300})'"
)


def build_tools_are_gone(case: Case) -> Finding | None:
    for error in case.errors:
        match = _TOOL.search(error.message)
        package = case.subject or case.raiser
        if match is None or package is None or is_file(match["tool"]):
            continue
        return case.finding(
            codes.PACKAGE_FILES,
            f"the editable install of {package.name} {package.version} builds it again when it is "
            f"imported, with {Path(match['tool']).name} of the isolated environment in which it "
            "was built, which the installer has removed",
            observed=match["tool"],
            needed="an editable install without build isolation",
            fix=_without_isolation(case, package),
        )
    return None


def _without_isolation(case: Case, package: Distribution) -> Fix:
    """Install what builds it here, and then the editable anew."""
    folder = origin_of(case.runtime.target, package.place).folder
    words = f"install {package.name} as editable again, with --no-build-isolation"
    if folder is None or case.runtime.environment.kind == "conda":
        return fixes.in_words(words)
    pip = Pip(case.runtime.environment)
    tools = [*_tools(folder)]
    again = pip.reinstall("--no-build-isolation", f"-e {quoted(folder)}")
    command = f"{pip.install(*map(quoted, tools))} && {again}" if tools else again
    return fixes.command_alone(fixes.Kind.NO_ISOLATION, command)


def _tools(folder: Path) -> Iterator[str]:
    """What builds a project, by its pyproject.toml; not torch, which is here."""
    with suppress(OSError):
        content = read_regular(folder / "pyproject.toml", _LARGEST).decode("utf-8", "replace")
        listed = re.search(r"^requires\s*=\s*\[(.*?)\]", content, re.MULTILINE | re.DOTALL)
        for _, text in re.findall(r"""(["'])(.*?)\1""", listed[1]) if listed else ():
            need = parse_need(text)
            if need is not None and need.name != "torch":
                yield need.text
