"""Reads build_matrix.yaml; every mistake is reported as file:line with what was got and needed."""

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError

from release import MATRIX_FILE, PLATFORM, ReleaseError
from release.contradictions import contradictions
from release.schema import FIRST, Matrix


class MatrixError(ReleaseError):
    """The matrix cannot be used; the text holds one `file:line: problem` per mistake."""


def load(path: Path = MATRIX_FILE, platform: str = PLATFORM) -> Matrix:
    """The checked matrix as it is on a platform; raises MatrixError."""
    try:
        tree = YAML(typ="rt").load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MatrixError(f"{path}: cannot be read ({error.strerror}); restore it") from error
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = (error.problem or "unreadable").splitlines()[0].split(" with value")[0]
        line = mark.line + 1 if mark else 1
        text = f"{path}:{line}: not valid YAML: {problem}; correct the line"
        raise MatrixError(text) from error
    if not isinstance(tree, dict):
        raise MatrixError(f"{path}:1: got {_kind(tree)}, needs a mapping with `schema: 1`")
    problems: dict[str, None] = {}
    found: dict[str, Matrix] = {}
    name = FIRST
    try:
        matrix = Matrix.model_validate(tree)
        for name in matrix.platforms:
            found[name] = matrix.on(name)
            for loc, text in contradictions(found[name]):
                problems[f"{path}:{_line(tree, _place(tree, name, loc))}: {text}"] = None
    except ValidationError as error:
        for detail in error.errors():
            detail["loc"] = _place(tree, name, detail["loc"])
            problems[_schema_problem(path, tree, detail)] = None
    if problems:
        raise MatrixError("\n".join(problems))
    if platform not in found:
        raise MatrixError(f"{path}: no platform is {platform}; there are {', '.join(found)}")
    return found[platform]


def _place(tree: Any, platform: str, loc: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Where the file has a value of a platform: what differs there, or else the common one."""
    differs: tuple[str | int, ...] = ("platforms", platform, "differs", *loc[:3])
    node = tree
    for part in differs:
        if not isinstance(node, dict) or part not in node:
            return loc
        node = node[part]
    return (*differs, *loc[3:])


def _line(tree: Any, loc: Iterable[str | int]) -> int:
    """The line of the deepest node of `loc` that the file has."""
    line = 1
    node = tree
    for part in loc:
        if isinstance(node, dict) and part in node:
            line = node.lc.key(part)[0] + 1
        elif isinstance(node, list) and isinstance(part, int) and part < len(node):
            line = node.lc.item(part)[0] + 1
        else:
            break
        node = node[part]
    return line


def _schema_problem(path: Path, tree: Any, detail: ErrorDetails) -> str:
    loc = tuple(part for part in detail["loc"] if part != "[key]")
    where = f"{path}:{_line(tree, loc)}"
    name = ".".join(str(part) for part in loc)
    kind, got = detail["type"], detail["input"]
    if kind == "extra_forbidden":
        schema = Matrix.model_json_schema(by_alias=True)
        nodes = (schema, *schema["$defs"].values())
        keys = sorted({key for node in nodes for key in node.get("properties", {})})
        near = difflib.get_close_matches(str(loc[-1]), keys, n=2)
        hint = f"did you mean {' or '.join(near)}?" if near else "remove it"
        return f"{where}: unknown key `{name}`; {hint}"
    if kind == "missing":
        return f"{where}: `{name}` is missing; add it"
    needs = detail["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    hint = ""
    if kind == "literal_error":
        known = [word.strip("' ") for word in needs.replace(" or ", ",").split(",")]
        near = difflib.get_close_matches(str(got), known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
    if isinstance(got, float) and kind == "string_type":
        hint = '; write versions in quotes ("2.10" is not the number 2.1)'
    if kind == "value_error":
        return f"{where}: `{name}`: got {got!r}: {needs}; correct it"
    return f"{where}: `{name}`: got {got!r} ({_kind(got)}), needs {needs}{hint}"


def _kind(value: Any) -> str:
    # `bool` comes before `int`, because a bool is an int.
    names = {dict: "a mapping", list: "a list", str: "text", bool: "true/false"}
    names |= {int: "a number", float: "a number", type(None): "nothing"}
    return next((n for t, n in names.items() if isinstance(value, t)), type(value).__name__)
