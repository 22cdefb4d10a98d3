"""Each finding carries a stable code, and the codes are one table."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from torchship.judge.rules import CODES, RULES
from torchship.judge.words import codes

REPO = Path(__file__).resolve().parents[3]


def findings_without_a_code() -> list[str]:
    """Where a `Finding(...)` that is not `OK` names no code."""
    places = []
    for file in sorted((REPO / "torchship").rglob("*.py")):
        for call in ast.walk(ast.parse(file.read_text())):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Finding":
                values = {word.arg: ast.unparse(word.value) for word in call.keywords}
                if values["status"] not in ("OK", "NOT_LOOKED_AT") and "code" not in values:
                    places.append(f"{file.name}:{call.lineno}")
    return places


def test_every_finding_that_is_not_ok_has_a_code() -> None:
    assert findings_without_a_code() == []


def test_no_code_is_given_twice() -> None:
    constants = [value for value in vars(codes).values() if isinstance(value, codes.Code)]
    assert sorted(constants) == sorted(codes.ALL)
    of_rules = (code for rule in RULES for code in rule.codes)
    given = {id(code): code for code in (*constants, *of_rules)}.values()
    assert sorted(given) == sorted(CODES)
    assert len({code.heading for code in given}) == len(CODES)


def test_codes_are_spelt_alike() -> None:
    assert [code for code in CODES if not re.fullmatch(r"TD[1-9]\d\d", code)] == []
