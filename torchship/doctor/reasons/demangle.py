"""The qualified names in mangled C++ symbols, without parameters: enough to be read."""

from __future__ import annotations

import re

_LENGTH = re.compile(r"\d{1,4}")
_MAX_PARTS = 50


def qualified_name(symbol: str) -> str:
    """`_ZN2at6Tensor3addEv` -> `at::Tensor::add`; "" if this is no C++ name that is understood."""
    special = re.match(r"_Z(T[VTIS])?", symbol)
    if special is None:
        return ""
    rest = symbol[special.end() :]
    nested = rest.startswith("N")
    if nested:
        rest = rest[1:].lstrip("KrVRO")
    parts = _parts(rest, is_nested=nested)
    kind = {"TV": "virtual table of ", "TT": "table of ", "TI": "type of ", "TS": "type name of "}
    return kind.get(special[1] or "", "") + "::".join(parts) if parts else ""


def _parts(rest: str, *, is_nested: bool) -> list[str]:
    """The names at the start of a mangled name; template arguments are left out."""
    parts: list[str] = []
    if rest.startswith("St"):
        parts.append("std")
        rest = rest[2:]
    while rest and len(parts) < _MAX_PARTS:
        length = _LENGTH.match(rest)
        if length is not None:
            end = length.end() + int(length[0])
            parts.append(rest[length.end() : end])
            rest = rest[end:]
        elif rest[0] in "CD" and rest[1:2].isdecimal() and parts:
            parts.append(("~" if rest[0] == "D" else "") + parts[-1])
            break
        elif rest[0] == "L":  # internal linkage
            rest = rest[1:]
        else:
            break  # the end, template arguments or an operator
        if not is_nested:
            break
    return parts
