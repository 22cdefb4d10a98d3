"""What a dependency of a conda package admits, such as `pytorch =2.9.1=cuda*` or `2.9.*|2.10.*`.

conda has a grammar of its own. It is turned into specifiers of `packaging`, as far as versions of
torch need it.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ...judge.project import Record
from .standards import admits
from .standards import admits_of_minor as _admits_of_minor

_MAX_TEXT = 1000
_NEED = re.compile(r"(?:[\w.-]+(?:/[\w-]+)?::)?(?P<name>[\w.-]+)\s*(?P<rest>.*)", re.DOTALL)
_IN_BRACKETS = re.compile(r"\bversion\s*=\s*[\"']?([^\"'\]]+)")
_CLAUSE = re.compile(r"(?P<sign>==|!=|>=|<=|~=|=|>|<)?\s*(?P<version>\d[\w.+!]*?)(?P<star>\.?\*)?")


class CondaNeed(Record, kw_only=True):
    """A dependency without its build string."""

    name: str
    versions: str  #: "" for any


def parse(need: str) -> CondaNeed | None:
    """A dependency as conda's metadata have it; None if it is malformed."""
    parts = _NEED.fullmatch(need[:_MAX_TEXT].strip())
    if parts is None:
        return None
    rest, _, brackets = parts["rest"].partition("[")
    in_brackets = _IN_BRACKETS.search(brackets)
    versions = in_brackets[1] if in_brackets else _without_build(rest.strip())
    return CondaNeed(name=parts["name"], versions=versions.strip())


def _without_build(rest: str) -> str:
    """`=2.9.1` of `=2.9.1=cuda*`, and `2.9.*` of `2.9.* cuda*`."""
    spaced = re.sub(r"\s*([,|<>=!~]+)\s*", r"\1", rest)
    # The build string comes after a space or a single sign. Before one, `=2.9` is that version
    # alone.
    version, separator, _ = re.sub(r"(?<=[\w.*])=(?!=)", " ", spaced).partition(" ")
    is_alone = separator and version.startswith("=") and not version.startswith("==")
    return f"={version}" if is_alone else version


@lru_cache(maxsize=1024)
def _alternatives(versions: str) -> tuple[str, ...] | None:
    """The specifiers of which one must admit a version; None if the text is not understood."""
    alternatives = []
    for alternative in versions.split("|"):
        clauses = []
        for clause in filter(None, map(str.strip, alternative.split(","))):
            if clause == "*":
                continue
            parts = _CLAUSE.fullmatch(clause)
            if parts is None:
                return None
            clauses.append(_specifier(parts["sign"] or "", parts["version"], parts["star"] or ""))
        alternatives.append(",".join(clauses))
    return tuple(alternatives)


def _specifier(sign: str, version: str, star: str) -> str:
    """`2.9` is that version, `=2.9` and `2.9.*` any that starts so; a star behind `>=` says
    nothing."""
    if sign in ("", "=", "=="):
        is_start = star or sign == "="
        return f"=={version}{'.*' if is_start else ''}"
    if sign == "!=":
        return f"!={version}{'.*' if star else ''}"
    return f"{sign}{version}"


def admits_version(versions: str, release: str) -> bool:
    """Whether a dependency admits a version; true for one that is not understood."""
    alternatives = _alternatives(versions)
    return alternatives is None or any(admits(one, release) for one in alternatives)


def admits_of_minor(versions: str, minor: tuple[int, int]) -> bool:
    """Whether a dependency admits any release of a minor version."""
    alternatives = _alternatives(versions)
    return alternatives is None or any(_admits_of_minor(one, minor) for one in alternatives)
