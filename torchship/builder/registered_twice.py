"""What sources register with torch, and what two of them must not register in one glue.

torch ends the process where a library registers an operator twice, or two TORCH_LIBRARY blocks of
one namespace.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .programs import BuildError

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_CONDITION = re.compile(r"\s*#\s*(if|ifdef|ifndef|endif)\b")
_MODULE = re.compile(r"\bPYBIND11_MODULE\s*\(")
_BOUND = re.compile(r"\.def\(\s*\"(?:\w+::)?(\w+)")
#: Where a block or a function gets the name of what it defines operators with.
_HOLDER = re.compile(
    r"\b(?:PYBIND11_MODULE|(?:STABLE_)?TORCH_LIBRARY(?:_FRAGMENT)?)\s*\(\s*\w+\s*,\s*(\w+)\s*\)"
    r"|\b(?:module_?|Library)\s*&\s*(\w+)|\b(\w+)\s*=\s*\w+\.def_submodule\("
)
_LIBRARY = re.compile(r"\bTORCH_LIBRARY\s*\(\s*(\w+)\s*,")
_MAX_SOURCE = 4 << 20


@dataclass(frozen=True)
class Twice:
    """What two sources register."""

    what: str
    first: str
    second: str
    advice: str


def registered_twice(texts: Mapping[str, str]) -> Iterator[Twice]:
    """What two files register, by their names.

    What stands under a condition of the preprocessor may not be compiled, and does not count.
    """
    files: dict[str, str] = {}
    for file, text in texts.items():
        for what, advice in _registered(text).items():
            if what in files:
                yield Twice(what=what, first=files[what], second=file, advice=advice)
            else:
                files[what] = file


def bound_names(text: str) -> list[str]:
    """The names that a source without comments gives to operators, in their order.

    What it defines with a class, of pybind11 or of torch, are the class's methods.
    """
    holders = {"m"}.union(*_HOLDER.findall(text))
    names: list[str] = []
    for statement in text.split(";"):
        before, mark, _ = statement.partition(".def(")
        holder = re.search(r"(\w+)\s*$", before)
        if mark and holder and holder[1] in holders and "class_<" not in statement:
            names += _BOUND.findall(statement)
    return names


def refuse_what_is_registered_twice(sources: Iterable[Path]) -> None:
    """Raises BuildError if one glue cannot hold all of these sources."""
    texts = {
        str(path): path.read_text(encoding="utf-8", errors="replace")
        for path in sources
        if path.is_file() and path.stat().st_size <= _MAX_SOURCE
    }
    for twice in registered_twice(texts):
        raise BuildError(
            f"{twice.first} and {twice.second} both register {twice.what}, and torch ends the "
            f"process where one library does so: {twice.advice}"
        )


def _registered(text: str) -> dict[str, str]:
    """What a source registers under no condition, with what to do if another one does so too."""
    text = unconditional(_COMMENT.sub("", text))
    registered = {
        f"TORCH_LIBRARY({namespace}, ...)": "write TORCH_LIBRARY_FRAGMENT in one of them"
        for namespace in _LIBRARY.findall(text)
    }
    _, *bindings = _MODULE.split(text, maxsplit=1)
    for name in bound_names("".join(bindings) and text):
        registered[f"the operator {name}"] = (
            "what PYBIND11_MODULE binds becomes an operator of the project; rename it in one of "
            f'them, for example module.def("{name}_cuda", ...), and where Python calls it'
        )
    return registered


def unconditional(text: str) -> str:
    """The lines that stand under no condition of the preprocessor."""
    depth = 0
    kept = []
    for line in text.splitlines():
        if condition := _CONDITION.match(line):
            depth += -1 if condition[1] == "endif" else 1
        elif depth == 0:
            kept.append(line)
    return "\n".join(kept)
