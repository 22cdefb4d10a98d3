"""How a result is stored: JSON with a record on each line, four digits a number, packed by xz.

``xzcat FILE | less`` reads such a file without this module. A name without ``.xz`` is not
packed.
"""

from __future__ import annotations

import json
import lzma
import math
from collections.abc import Mapping
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
DIGITS = 4
PACKED = ".xz"


def load(path: Path) -> object:
    """Read a stored document. Raises ValueError, which names the file, if it holds no such JSON."""
    content = path.read_bytes()
    try:
        return json.loads(lzma.decompress(content) if path.suffix == PACKED else content)
    except (lzma.LZMAError, ValueError) as error:
        raise ValueError(
            f"{path} holds no stored result ({error}): restore it, or measure again"
        ) from error


def save(document: object, path: Path) -> None:
    """Write a document in one step, so that a killed program leaves the file as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = to_text(document).encode()
    if path.suffix == PACKED:
        content = lzma.compress(content, preset=9 | lzma.PRESET_EXTREME)
    partial = path.with_name(f"{path.name}.partial")
    partial.write_bytes(content)
    partial.replace(path)


def to_text(document: object) -> str:
    """The document as JSON: every list of records has one record on each line."""
    return "".join(_pieces(rounded(document), "")) + "\n"


def rounded(value: object) -> object:
    """The value with every float in it rounded to four significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else value
    if isinstance(value, Mapping):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(inner) for inner in value]
    return value


def _has_records(value: object) -> bool:
    """Whether a list of objects or of lists is in the value."""
    if isinstance(value, dict):
        return any(_has_records(inner) for inner in value.values())
    return isinstance(value, list) and any(isinstance(inner, dict | list) for inner in value)


def _pieces(value: object, indent: str) -> list[str]:
    """The text of a value in pieces.

    The whole document is broken over lines, and in it every value that holds records.
    """
    if not isinstance(value, dict | list) or (indent and not _has_records(value)):
        return [json.dumps(value, ensure_ascii=False)]
    deeper = indent + " "
    if isinstance(value, dict):
        begin, end = "{", "}"
        items = [[f"{json.dumps(key)}: ", *_pieces(inner, deeper)] for key, inner in value.items()]
    else:
        begin, end = "[", "]"
        items = [_pieces(inner, deeper) for inner in value]
    pieces = [begin]
    for number, item in enumerate(items):
        pieces += ["," if number else "", "\n", deeper, *item]
    return [*pieces, "\n", indent, end]
