"""What the sources of two extensions have alike, and one glue cannot hold: functions and headers.

Two extensions are two libraries, in which each may have its own `degree()` and its own `utils.h`.
Their joined glue is one library, compiled with the include folders of both.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..builder.registered_twice import unconditional
from ..builder.sources import HEADER_SUFFIXES
from ..porting.tokens import Kind, Token, tokenize

#: A definition with one of these words may stand in two sources, or is no function of a namespace.
_LOCAL = {"static", "inline", "constexpr", "consteval", "template", "friend", "__forceinline__"}
_TYPES = {"class", "struct", "union", "enum", "typedef", "using"}
#: Words of a type that are no parameter's name.
_BUILT_IN = {"int", "long", "short", "char", "bool", "float", "double", "void", "unsigned", "auto"}
_OPEN, _CLOSE = "(<[{", ")>]}"
_INCLUDED = re.compile(r"#\s*include\s*[<\"]([^>\"]+)[>\"]")


@dataclass(frozen=True)
class Collision:
    """What two files have alike."""

    what: str
    first: str
    second: str


def same_functions(texts: Mapping[str, str]) -> Iterator[Collision]:
    """The functions with external linkage that two of the sources define, with equal arguments.

    What stands under a condition of the preprocessor may not be compiled, and does not count.
    """
    files: dict[tuple[str, ...], str] = {}
    for file, text in texts.items():
        for function in _defined(tokenize(unconditional(text))):
            first = files.setdefault(function, file)
            if first != file:
                yield Collision(f"{function[0]}()", first, file)


def _defined(tokens: Sequence[Token]) -> list[tuple[str, ...]]:
    """Each function that the source defines for others: its name, and its arguments' types."""
    found: dict[tuple[str, ...], None] = {}
    scopes: list[
        str | None
    ] = []  # the namespaces; None for a body, and for a namespace of one file
    statement: list[Token] = []
    for token in tokens:
        if token.kind is Kind.MARK and token.text == "{":
            scope = _namespace(statement)
            if scope is None and None not in scopes and (function := _function(statement)):
                name, *arguments = function
                whole = "::".join([*filter(None, scopes), name])
                function = (whole, *arguments)
                found[function] = None
            scopes.append(scope)
            statement = []
        elif token.kind is Kind.MARK and token.text == "}":
            del scopes[-1:]
            statement = []
        elif token.kind is Kind.MARK and token.text == ";":
            statement = []
        elif token.kind not in (Kind.INCLUDE, Kind.DEFINE):
            statement.append(token)
    return list(found)


def _namespace(statement: Sequence[Token]) -> str | None:
    """The name of the namespace that a brace opens; "" for `extern "C"`, None for anything else."""
    words = [token.text for token in statement if token.text != "inline"]
    if words[:1] == ["extern"] and len(words) == 2:
        return ""
    return "".join(words[1:]) or None if words[:1] == ["namespace"] else None


def _function(statement: Sequence[Token]) -> tuple[str, ...] | None:
    """The name and the types of the arguments, if a body of a function follows."""
    words = [token.text for token in statement]
    if {*words} & _LOCAL or {*words[:1]} & _TYPES or "=" in words[: _find(words, "(")]:
        return None
    # `__launch_bounds__(256)` and the like stand before the name.
    start = next(
        (
            at
            for at in range(1, len(words))
            if words[at] == "("
            and statement[at - 1].kind is Kind.NAME
            and not words[at - 1].startswith("__")
        ),
        0,
    )
    first = start - 1
    while first >= 2 and words[first - 1] == "::":
        first -= 2
    if start == 0 or first <= 0:  # a macro, or a constructor: no type stands before its name
        return None
    return ("".join(words[first:start]), *map(_type, _arguments(words[start + 1 :])))


def _find(words: Sequence[str], word: str) -> int:
    return words.index(word) if word in words else len(words)


def _arguments(words: Sequence[str]) -> Iterator[list[str]]:
    depth = 0
    argument: list[str] = []
    for word in words:
        depth += (word in _OPEN) - (word in _CLOSE)
        if depth < 0:
            break
        if word == "," and depth == 0:
            yield argument
            argument = []
        else:
            argument.append(word)
    if argument:
        yield argument


def _type(argument: Sequence[str]) -> str:
    words = list(argument[: _find(argument, "=")])
    if len(words) > 1 and re.fullmatch(r"[A-Za-z_]\w*", words[-1]) and words[-2] != "::":
        words = words if words[-1] in _BUILT_IN else words[:-1]
    if not {"*", "&"} & {*words}:
        words = [word for word in words if word != "const"]  # the caller's value is copied
    return " ".join("at" if word == "torch" else word for word in words)


def same_headers(root: Path, folders: Sequence[str], sources: Sequence[str]) -> Iterator[Collision]:
    """The headers of one name in two include folders, that differ, and that a source includes."""
    asked = _asked(root, [*sources, *_headers(root, folders)])
    for at, folder in enumerate(folders):
        for name in asked:
            for other in folders[at + 1 :]:
                first, second = root / folder / name, root / other / name
                if first.is_file() and second.is_file() and not _are_equal(first, second):
                    yield Collision(name, f"{folder}/{name}", f"{other}/{name}")


def _headers(root: Path, folders: Sequence[str]) -> Iterator[str]:
    for folder in folders:
        for path in sorted((root / folder).glob("*")):
            if path.suffix in HEADER_SUFFIXES and path.is_file():
                yield str(path.relative_to(root))


def _asked(root: Path, files: Sequence[str]) -> list[str]:
    """The names that the files include, and that do not lie beside the file that includes them."""
    names: dict[str, None] = {}
    for file in files:
        path = root / file
        if path.is_file():
            for name in _INCLUDED.findall(path.read_text(encoding="utf-8", errors="replace")):
                if not (path.parent / name).is_file():
                    names[name] = None
    return list(names)


def _are_equal(first: Path, second: Path) -> bool:
    return first.samefile(second) or first.read_bytes() == second.read_bytes()
