"""How many cases an oracle's test draws, and from which seed on.

CI draws a few, always the same. By hand, `ORACLE_DRAWS=5000 ORACLE_FIRST=10000` draws others.
"""

from __future__ import annotations

import os


def seeds(few: int) -> range:
    """The seeds of a test; `few` is how many of them CI draws."""
    first = int(os.environ.get("ORACLE_FIRST", "0"))
    return range(first, first + int(os.environ.get("ORACLE_DRAWS", few)))


def differences(found: list[str]) -> str:
    """What a failing test prints: how many differences, and the first of them."""
    return f"{len(found)} differences:\n" + "\n".join(found[:20])
