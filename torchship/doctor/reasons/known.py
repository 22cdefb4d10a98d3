"""Reason: the words of the error are known, whatever raised it."""

from __future__ import annotations

from ...judge import fixes
from ...judge.records import Finding
from ...judge.words import codes
from ...judge.words.codes import Code
from ...judge.words.messages import matches
from .case import Case
from .meaning import meaning_of

#: Codes whose messages say too little to be the reason for what was seen here.
_TOO_LITTLE: frozenset[Code] = frozenset(
    {
        codes.LOAD_FAILED,
        codes.OTHER_TORCH,
        codes.TORCH_LACKS_SYMBOLS,
        codes.SYMBOL_MISSING,
        codes.TORCH_MISSING,
        codes.PACKAGE_FILES,
        codes.MODULE_MISSING,
        codes.REQUIREMENT_NOT_MET,
        codes.WITHOUT_ITS_OPS,
        codes.OPERATOR_MISSING,
        codes.EXECUTION_FORBIDDEN,
        codes.BUILD_ISOLATION,
        codes.FALLS_BACK,
        codes.LOADED_BEFORE_TORCH,
        codes.TORCH_SHADOWED,
    }
)


def message_is_known(case: Case) -> Finding | None:
    lines = [line for error in case.errors for line in error.last_line.splitlines()]
    if case.seen.outcome == "died":
        lines += case.seen.output.splitlines()[-40:]
    for message, line in matches(lines):
        if message.code not in _TOO_LITTLE:
            meaning = meaning_of(message.code)
            return case.finding(
                message.code,
                meaning.why,
                observed=line,
                fix=fixes.in_words(meaning.fix),
            )
    return None
