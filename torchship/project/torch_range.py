"""Which torches of the matrix a repository's own requirement of torch allows."""

import re
from collections.abc import Iterable

from packaging.requirements import InvalidRequirement, Requirement

_TORCH = re.compile(r"torch\b(?![-_.])")
#: No minor of torch has had more patch releases.
_PATCHES = range(10)


def is_torch(requirement: str) -> bool:
    return bool(_TORCH.match(requirement))


def allowed_minors(requirements: Iterable[str], minors: Iterable[str]) -> list[str]:
    """The minors, such as "2.9", of which each requirement of torch takes some release."""
    allowed = list(minors)
    for requirement in filter(is_torch, requirements):
        try:
            range_ = Requirement(requirement).specifier
        except InvalidRequirement:
            continue
        allowed = [
            minor
            for minor in allowed
            if any(range_.contains(f"{minor}.{patch}") for patch in _PATCHES)
        ]
    return allowed
