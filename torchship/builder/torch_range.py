"""What a wheel requires of torch, from the glue that it holds."""

import re
from collections.abc import Iterable

_GLUE = re.compile(r"(?:glue-)?(stable|aten)(\d)(\d+)\b")
#: The requirement of torch in metadata, without extras and markers.
REQUIREMENT = re.compile(r"torch\s*(?:\(?[<>=!~][^;\[\])]*\)?)?")


def torch_requirement(glues: Iterable[str]) -> str:
    """The requirement for glue of these names: `aten24-abi1`, `aten29-abi1` -> torch 2.4 and 2.9.

    Glue for the stable ABI serves its own minor and all later ones; ATen's serves one minor. The
    C++ ABI and the CUDA of a torch are in no requirement, so the checker tells those. Raises
    ValueError without any glue.
    """
    found = [match for match in map(_GLUE.search, glues) if match]
    minors = {(int(match[2]), int(match[3])) for match in found}
    stable = [(int(match[2]), int(match[3])) for match in found if match[1] == "stable"]
    if not minors:
        raise ValueError("no glue of a known name")
    first = min(minors)
    last = min(stable) if stable else max(minors)
    parts = [f">={first[0]}.{first[1]}"]
    parts += [
        f"!={first[0]}.{minor}.*"
        for minor in range(first[1] + 1, last[1])
        if (first[0], minor) not in minors
    ]
    if not stable:
        parts.append(f"<{last[0]}.{last[1] + 1}")
    return f"torch{','.join(parts)}"


def with_torch(requirements: Iterable[str], torch: str) -> list[str]:
    """The requirements, with `torch` in place of that of torch."""
    others = [word for word in requirements if not REQUIREMENT.fullmatch(word.strip())]
    return [torch, *others]
