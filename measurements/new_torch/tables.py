"""Writes a torch into the tables that are kept by hand, or takes it out of them.

The tables are build_matrix.yaml, the layouts and the symbols of the checker. Every function takes
the content of a file and returns the new one; the functions raise ValueError where the file does
not look as they know it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from typing import TypedDict

from measurements.new_torch.facts import Facts

Minor = tuple[int, int]


class SymbolTable(TypedDict):
    """torchship/judge/reading/symbols.json: [first minor, last minor, symbols] in `ranges`."""

    source: str
    meaning: str
    ranges: list[tuple[int, int, list[str]]]


def dotted(minor: Minor) -> str:
    return f"{minor[0]}.{minor[1]}"


def newest_before(minor: Minor, known: Iterable[Minor]) -> Minor:
    """The newest of the known minors that are older than one; a nightly's may not be the next."""
    older = [other for other in known if other < minor]
    if not older:
        raise ValueError(f"no minor is known that is older than torch {dotted(minor)}")
    return max(older)


# build_matrix.yaml


def known_minors(matrix: str) -> list[Minor]:
    """The minors that have an entry under the last key of the matrix, `torch:`."""
    start = matrix.rindex("\ntorch:\n")
    names = re.findall(r'^  "(\d+)\.(\d+)":$', matrix[start:], re.MULTILINE)
    return [(int(major), int(minor)) for major, minor in names]


def has_entry(matrix: str, minor: Minor) -> bool:
    return minor in known_minors(matrix)


def find_entry(matrix: str, minor: Minor) -> re.Match[str]:
    """The entry of a minor under `torch:`."""
    start = matrix.rindex("\ntorch:\n")
    pattern = re.compile(rf'^  "{re.escape(dotted(minor))}":\n(?:    .*\n)+', re.MULTILINE)
    match = pattern.search(matrix, start)
    if match is None:
        raise ValueError(f"build_matrix.yaml has no entry of torch {dotted(minor)} under `torch:`")
    return match


def find_difference(matrix: str, minor: Minor) -> re.Match[str] | None:
    """The line of a minor under `differs:` of a platform."""
    return re.search(rf'^        "{re.escape(dotted(minor))}": .*\n', matrix, re.MULTILINE)


def add_entry(matrix: str, facts: Facts) -> str:
    """The matrix with an entry of the torch, after that of the minor before it.

    The compilers are those of the minor before, and so are the architectures of other platforms.
    """
    older = newest_before(facts.minor, known_minors(matrix))
    previous = find_entry(matrix, older)
    compilers = re.search(r"^    gcc: .*\n", previous[0], re.MULTILINE)
    if compilers is None:
        raise ValueError(f"build_matrix.yaml: torch {dotted(older)} has no `gcc:`")
    lines = [f'  "{dotted(facts.minor)}":', f'    release: "{facts.release}"']
    lines.append(f"    pythons: {json.dumps(facts.pythons.usual)}")
    if facts.pythons.free_threaded:
        lines.append(f"    free_threaded: {json.dumps(facts.pythons.free_threaded)}")
    if facts.cuda is None:
        lines.append("    cuda: null")
    else:
        archs = ", ".join(map(str, facts.archs))
        lines.append(f'    cuda: {{version: "{facts.cuda}", archs: [{archs}]}}')
    lines.append(f"    abi: {{pypi: {facts.abi}, conda: 1}}")
    entry = "\n".join(lines) + "\n" + compilers[0]
    matrix = matrix[: previous.end()] + entry + matrix[previous.end() :]
    other = find_difference(matrix, older)
    if other is None:
        return matrix
    line = other[0].replace(f'"{dotted(older)}"', f'"{dotted(facts.minor)}"', 1)
    if facts.cuda is None:
        line = f'        "{dotted(facts.minor)}": {{cuda: null}}\n'
    return matrix[: other.end()] + line + matrix[other.end() :]


def take_out_entry(matrix: str, minor: Minor) -> str:
    """The matrix without a torch; what was built or tried with it takes the one before."""
    entry = find_entry(matrix, minor)
    matrix = matrix[: entry.start()] + matrix[entry.end() :]
    if other := find_difference(matrix, minor):
        matrix = matrix[: other.start()] + matrix[other.end() :]
    older = newest_before(minor, known_minors(matrix))
    for key in ("built_with", "headers", "default_torch"):
        matrix = matrix.replace(f'{key}: "{dotted(minor)}"', f'{key}: "{dotted(older)}"')
    return matrix


# torchship/judge/reading/layouts.py


def add_layout(layouts: str, minor: Minor, layout: tuple[int, ...]) -> str:
    """The module with the row of a torch after that of the minor before it."""
    row = _find_row(layouts, _row_before(layouts, minor))
    line = f"    ({minor[0]}, {minor[1]}): {layout},\n"
    return layouts[: row.end()] + line + layouts[row.end() :]


def take_out_layout(layouts: str, minor: Minor) -> str:
    row = _find_row(layouts, minor)
    return layouts[: row.start()] + layouts[row.end() :]


def read_layout_before(layouts: str, minor: Minor) -> tuple[int, ...]:
    """The numbers in the row of the minor before a torch."""
    numbers = _find_row(layouts, _row_before(layouts, minor))[0].partition("): (")[2]
    return tuple(map(int, re.findall(r"\d+", numbers)))


def _row_before(layouts: str, minor: Minor) -> Minor:
    """The minor of the row before that of a torch."""
    rows = re.findall(r"^    \((\d+), (\d+)\): \(", layouts, re.MULTILINE)
    return newest_before(minor, [(int(major), int(second)) for major, second in rows])


def _find_row(layouts: str, minor: Minor) -> re.Match[str]:
    row = re.search(rf"^    \({minor[0]}, {minor[1]}\): \(.*\),\n", layouts, re.MULTILINE)
    if row is None:
        raise ValueError(f"torchship/judge/reading/layouts.py has no row of torch {dotted(minor)}")
    return row


# torchship/judge/reading/symbols.json


def add_symbols(table: str, minor: Minor, exported: Collection[str]) -> str:
    """The table in which the torch has the symbols that it exports, if the one before has them."""
    document: SymbolTable = json.loads(table)
    newest = _newest(document)
    groups: dict[tuple[int, int], list[str]] = {}
    for first, last, names in document["ranges"]:
        for name in names:
            is_kept = last == newest and name in exported
            groups.setdefault((first, minor[1] if is_kept else last), []).append(name)
    return _to_text(document, groups)


def take_out_symbols(table: str, minors: Sequence[Minor]) -> str:
    """The table as it was before the newest of these minors, which are all that were measured.

    Symbols that all others have were not in it.
    """
    document: SymbolTable = json.loads(table)
    *others, _ = sorted(minors)
    oldest = others[0][1]
    previous = others[-1][1]
    groups: dict[tuple[int, int], list[str]] = {}
    for first, last, names in document["ranges"]:
        if first <= previous and (first, min(last, previous)) != (oldest, previous):
            groups.setdefault((first, min(last, previous)), []).extend(names)
    return _to_text(document, groups)


def lost_symbols(table: str, exported: Collection[str]) -> list[str]:
    """The symbols of the table that its newest minor has, and a newer torch lacks."""
    document: SymbolTable = json.loads(table)
    newest = _newest(document)
    return sorted(
        name
        for _, last, names in document["ranges"]
        for name in names
        if last == newest and name not in exported
    )


def _newest(document: SymbolTable) -> int:
    """The newest minor of the table: it has symbols that an older one lacks."""
    return max(last for _, last, _ in document["ranges"])


def _to_text(document: SymbolTable, groups: dict[tuple[int, int], list[str]]) -> str:
    ranges = [(*key, sorted(names)) for key, names in sorted(groups.items())]
    return json.dumps({**document, "ranges": ranges}, indent=1) + "\n"
