"""Cuts C++ and CUDA sources into tokens, and leaves out what a compiler never sees.

Comments, the contents of strings, and `#if 0` are left out, so a name in them is no use of it. Both
branches of every other condition are kept, because a port must mend both.
"""

import re
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    NAME = "name"
    NUMBER = "number"
    STRING = "string"
    MARK = "mark"
    #: The path of an `#include`.
    INCLUDE = "include"
    #: The name that a `#define` defines.
    DEFINE = "define"


class Token(NamedTuple):
    kind: Kind
    text: str
    line: int


_SPACE = re.compile(r"(?:[ \t\r\f\v]|\\\r?\n)+")
_NAME = re.compile(r"[A-Za-z_$\u0080-\U0010ffff][\w$]*")
_NUMBER = re.compile(r"\.?\d(?:[eEpP][+-]|'?[\w.])*")
_STRING_START = re.compile(r'(?:u8|[uUL])?(R?)"')
# A string or a character ends at its quote or, where the source is broken, at the end of its line.
_STRING_REST = re.compile(r'(?:[^"\\\n]|\\\r?\n|\\.)*"?')
_CHARACTER = re.compile(r"(?:u8|[uUL])?'(?:[^'\\\n]|\\.)*'?")
_MARK = re.compile(r"::|->|&&|\|\||<<<|>>>|[-+*/%&|^=!<>]=|\+\+|--|\.\.\.|.", re.DOTALL)
_DIRECTIVE = re.compile(r"#[ \t]*([A-Za-z]\w*)?[ \t]*")
_INCLUDED = re.compile(r'<([^>\n]*)>|"([^"\n]*)"')
_CONDITION = re.compile(r"[^\n]*")
# A raw string's delimiter has at most 16 characters.
_RAW_START = re.compile(r"([^()\\\s\"]{0,16})\(")


class Tokenizer:
    """Cuts one source. Each character is looked at a bounded number of times."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._line = 1
        self._at_line_start = True

    def tokens(self) -> Iterator[Token]:
        end = len(self._source)
        while self._at < end:
            character = self._source[self._at]
            if character == "\n":
                self._advance(self._at + 1)
                self._at_line_start = True
            elif not (self._skip_space() or self._skip_comment()):
                if character == "#" and self._at_line_start:
                    yield from self._directive()
                else:
                    yield self._token()
                self._at_line_start = False

    def _advance(self, end: int) -> str:
        passed = self._source[self._at : end]
        self._line += passed.count("\n")
        self._at = end
        return passed

    def _skip_space(self) -> bool:
        space = _SPACE.match(self._source, self._at)
        if space is None:
            return False
        self._advance(space.end())
        return True

    def _skip_comment(self) -> bool:
        if self._source.startswith("//", self._at):
            while True:
                end = self._find("\n")
                spliced = self._source[self._at : end].rstrip("\r").endswith("\\")
                self._advance(end)
                if not spliced or end == len(self._source):
                    return True
                self._advance(end + 1)
        if self._source.startswith("/*", self._at):
            self._advance(min(self._find("*/", self._at + 2) + 2, len(self._source)))
            return True
        return False

    def _find(self, mark: str, start: int | None = None) -> int:
        """Where the mark is next; the end of the source without one."""
        place = self._source.find(mark, self._at if start is None else start)
        return len(self._source) if place < 0 else place

    def _token(self) -> Token:
        line = self._line
        if string := _STRING_START.match(self._source, self._at):
            self._advance(string.end())
            return Token(Kind.STRING, self._string(is_raw=bool(string[1])), line)
        for kind, pattern in (
            (Kind.STRING, _CHARACTER),
            (Kind.NAME, _NAME),
            (Kind.NUMBER, _NUMBER),
        ):
            if match := pattern.match(self._source, self._at):
                return Token(kind, self._advance(match.end()), line)
        mark = _MARK.match(self._source, self._at)
        assert mark is not None  # the pattern takes any character
        return Token(Kind.MARK, self._advance(mark.end()), line)

    def _string(self, *, is_raw: bool) -> str:
        if is_raw and (start := _RAW_START.match(self._source, self._at)):
            closing = f'){start[1]}"'
            self._advance(min(self._find(closing) + len(closing), len(self._source)))
            return ""
        rest = _STRING_REST.match(self._source, self._at)
        assert rest is not None  # the pattern takes the empty string
        return self._advance(rest.end()).removesuffix('"')

    def _directive(self) -> Iterator[Token]:
        line = self._line
        directive = _DIRECTIVE.match(self._source, self._at)
        assert directive is not None  # the caller saw the #
        self._advance(directive.end())
        if directive[1] in ("include", "include_next", "import"):
            if path := _INCLUDED.match(self._source, self._at):
                self._advance(path.end())
                yield Token(Kind.INCLUDE, path[1] or path[2] or "", line)
        elif directive[1] == "define":
            if name := _NAME.match(self._source, self._at):
                yield Token(Kind.DEFINE, self._advance(name.end()), line)
        elif directive[1] == "if":
            condition = _CONDITION.match(self._source, self._at)
            if condition is not None and condition[0].strip() in ("0", "false"):
                self._skip_false_branch()
        elif directive[1] in ("error", "warning", "pragma", "line"):
            self._advance(self._find("\n"))

    def _skip_false_branch(self) -> None:
        """Goes to the end of the branch of an `#if 0`: behind its #else, #elif or #endif."""
        depth = 0
        while self._at < len(self._source):
            self._advance(min(self._find("\n") + 1, len(self._source)))
            self._skip_space()
            directive = _DIRECTIVE.match(self._source, self._at)
            if directive is None or directive[1] is None:
                continue
            if directive[1].startswith("if"):
                depth += 1
            elif directive[1] == "endif" and depth > 0:
                depth -= 1
            elif depth == 0 and directive[1] in ("endif", "else", "elif"):
                self._advance(directive.end())
                return


def tokenize(source: str) -> list[Token]:
    """The tokens of a source of C++ or CUDA. Never raises: what is not C++ becomes marks."""
    return list(Tokenizer(source).tokens())
