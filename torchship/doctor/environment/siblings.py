"""What the other objects of a distribution tell of the torch that they were built for.

One build makes all objects of a distribution. An object with few symbols may fit every torch,
while the one beside it has a symbol that only some minors have: then both were built for one
of these.
"""

from __future__ import annotations

from pathlib import Path

from ...judge.reading.binary import read_binary
from ...judge.reading.layouts import LAYOUTS, minors_with
from ...judge.reading.named_torch import Minor, names_torch
from ...judge.records import BinaryRecord
from ...judge.target import Target, once
from ...judge.text import some


def minors_of_build(target: Target, binary: BinaryRecord) -> tuple[tuple[Minor, str], ...]:
    """The minors of torch that have the symbols of this object and of those beside it, each
    with its source in words; empty if the symbols exclude no older torch, or contradict each
    other. Raises BudgetSpentError."""
    if binary.owner is None or binary.lane != "aten" or names_torch(binary.path):
        return ()
    own = minors_with(binary.torch_symbols)
    shared = own
    telling: list[str] = []
    siblings = [path for path in binary.owner.libraries.values() if path != binary.path]
    for path in siblings:
        target.budget.spend()  # a list of files may name more than there are
        fitting = None if names_torch(path) else _fitting(target, path)
        if fitting is not None and not shared <= fitting:
            shared &= fitting
            telling.append(path.name)
    if not telling or not shared or min(LAYOUTS) in shared:
        return ()
    source = f"the symbols of {some(telling)}, of the same build"
    return tuple((minor, source) for minor in sorted(shared))


@once
def _fitting(target: Target, path: Path) -> frozenset[Minor] | None:
    """The minors that have an object's symbols; None for an object that uses no ATen."""
    binary = read_binary(path, light=True, budget=target.budget)
    if binary.lane != "aten" or binary.problems:
        return None
    return minors_with(binary.torch_symbols)
