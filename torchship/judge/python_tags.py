"""For which Pythons a wheel was made, by its tag."""

from __future__ import annotations

import re

#: PEP 803: this Python is the first that imports `x.abi3t.so`, free-threaded or not. It is also the
#: first that imports names with a platform, such as `x.abi3-x86_64-linux-gnu.so`.
FIRST_WITH_ABI3T = (3, 15)


def fits_python(tag: str, version: tuple[int, ...]) -> bool:
    """Whether a tag names the Python of a version."""
    python, _, rest = tag.partition("-")
    major, minor = version[:2]
    for name in python.split("."):
        number = re.fullmatch(r"(?:py|cp)(\d)(\d{0,2})", name)
        if number is None or int(number[1]) != major:
            continue
        least = int(number[2] or 0)
        is_any = name.startswith("py") or rest.startswith("abi3")
        if least == minor or (is_any and least <= minor):
            return True
    return False
