"""Evaluates the expressions of GitHub's workflows, as far as ours use them.

GitHub takes empty text for a name that it does not know. Here that is an error, since no workflow
means it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>\d+)"
    r"|(?P<name>[A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)*)"
    r"|(?P<sign>==|!=|&&|\|\||[!(),]))"
)
_EMBEDDED = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
_CONSTANTS: Mapping[str, object] = {"true": True, "false": False, "null": None}

Function = Callable[..., object]


class ExpressionError(ValueError):
    """An expression that cannot be evaluated."""


class ExpressionSyntaxError(ExpressionError):
    """An expression that GitHub would not even read."""


@dataclass(frozen=True)
class Scope:
    """What the names of an expression mean: the contexts, and the functions of a job's state."""

    contexts: Mapping[str, object]
    functions: Mapping[str, Function] = field(default_factory=dict)


def evaluate(expression: str, scope: Scope) -> object:
    """The value of an expression without its `${{ }}`. Raises ExpressionError."""
    return _Parser(expression, scope).value()


def fill_in(text: str, scope: Scope) -> object:
    """A value with its expressions replaced; what is one expression keeps its type."""
    whole = _EMBEDDED.fullmatch(text.strip())
    if whole and "${{" not in whole[1]:
        return evaluate(whole[1], scope)
    return _EMBEDDED.sub(lambda match: to_text(evaluate(match[1], scope)), text)


def fill_in_text(text: str, scope: Scope) -> str:
    return to_text(fill_in(text, scope))


def names_status(expression: str) -> bool:
    """Whether a condition asks for a state itself; else `success()` is implied."""
    return re.search(r"\b(?:always|failure|success|cancelled)\s*\(", expression) is not None


def to_text(value: object) -> str:
    """A value as GitHub writes it into a text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def is_true(value: object) -> bool:
    return value not in (None, False, 0, "")


class _Parser:
    """A parser by recursive descent, which evaluates as it reads."""

    def __init__(self, expression: str, scope: Scope) -> None:
        self._expression = expression.strip()
        self._scope = scope
        self._tokens = self._split()

    def value(self) -> object:
        value = self._any_of()
        if self._tokens:
            raise self._syntax_error(f"what does {self._tokens[0][1]!r} mean there?")
        return value

    def _split(self) -> list[tuple[str, str]]:
        tokens = []
        position = 0
        while position < len(self._expression):
            match = _TOKEN.match(self._expression, position)
            if match is None or match.lastgroup is None:
                raise self._syntax_error(f"{self._expression[position:]!r} cannot be read")
            tokens.append((match.lastgroup, match[match.lastgroup]))
            position = match.end()
        return tokens

    def _error(self, problem: str) -> ExpressionError:
        return ExpressionError(f"expression `{self._expression}`: {problem}")

    def _syntax_error(self, problem: str) -> ExpressionSyntaxError:
        return ExpressionSyntaxError(f"expression `{self._expression}`: {problem}")

    def _takes(self, sign: str) -> bool:
        if self._tokens and self._tokens[0] == ("sign", sign):
            del self._tokens[0]
            return True
        return False

    def _any_of(self) -> object:
        value = self._all_of()
        while self._takes("||"):
            other = self._all_of()
            value = value if is_true(value) else other
        return value

    def _all_of(self) -> object:
        value = self._comparison()
        while self._takes("&&"):
            other = self._comparison()
            value = other if is_true(value) else value
        return value

    def _comparison(self) -> object:
        value = self._single()
        for sign in ("==", "!="):
            if self._takes(sign):
                return (value == self._single()) == (sign == "==")
        return value

    def _single(self) -> object:
        if self._takes("!"):
            return not is_true(self._single())
        if self._takes("("):
            value = self._any_of()
            self._expect(")")
            return value
        if not self._tokens:
            raise self._syntax_error("it ends too early")
        kind, token = self._tokens.pop(0)
        if kind == "text":
            return token[1:-1].replace("''", "'")
        if kind == "number":
            return int(token)
        if kind == "name":
            return self._call(token) if self._takes("(") else self._look_up(token)
        raise self._syntax_error(f"what does {token!r} mean there?")

    def _expect(self, sign: str) -> None:
        if not self._takes(sign):
            raise self._syntax_error(f"lacks a {sign!r}")

    def _call(self, name: str) -> object:
        arguments: list[object] = []
        while not self._takes(")"):
            if arguments:
                self._expect(",")
            arguments.append(self._any_of())
        functions: Mapping[str, Function] = {"fromJSON": json.loads, **self._scope.functions}
        if name not in functions:
            raise self._syntax_error(f"{name}() is no function that this runner knows")
        try:
            return functions[name](*arguments)
        except (TypeError, ValueError) as error:
            raise self._error(f"{name}(): {error}") from error

    def _look_up(self, name: str) -> object:
        if name in _CONSTANTS:
            return _CONSTANTS[name]
        value: object = self._scope.contexts
        for key in name.split("."):
            if not isinstance(value, Mapping) or key not in value:
                raise self._error(f"{name} is nothing that is there; GitHub would take empty text")
            value = value[key]
        return value
