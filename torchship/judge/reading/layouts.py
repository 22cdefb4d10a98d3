"""The measured layouts of torch's C++ classes, by torch minor.

A missing symbol proves that an ATen binary does not fit. A complete set of symbols proves
nothing: code for torch 2.4 loads in 2.5 and registers its kernels under the wrong dispatch
key, code for 2.8 aborts inside `dlopen` in 2.9, and code for 2.9 calls the wrong virtual
function in 2.10. In each of these cases, at least one of the integers `FIELDS` differs;
`torch_extension.h` writes them into ATen binaries. ATen glue is refused in a torch that is
not listed here or is no release, unless the glue was compiled with that very torch.
"""

from collections.abc import Iterable, Mapping
from functools import cache

from ..text import read_table

FIELDS = (
    "dispatch_key_cpu",
    "dispatch_key_composite_implicit",
    "sizeof_tensor_impl",
    "sizeof_storage_impl",
    "sizeof_function_schema",
    "sizeof_library",
    "sizeof_cpp_function",
    "scalar_type_num_options",
    "slot_tensor_impl_storage",
    "slot_tensor_impl_shallow_copy_from",
)
#: The fields that hold the slots of virtual functions, as ordered in `.torch_extension.vtable`.
SLOTS = FIELDS[-2:]

#: The table of the symbols that only some of the measured minors have.
SYMBOLS = "symbols.json"

#: Fields that may differ: torch appends new scalar types to its enumeration, and the
#: numbers of the older types stay the same.
HARMLESS = frozenset({"scalar_type_num_options"})

#: Fields of the classes that register operators: if one differs, loading an object that
#: registers an operator kills the process.
FATAL_TO_REGISTER = frozenset({"sizeof_function_schema", "sizeof_library", "sizeof_cpp_function"})

_ROWS = {
    (2, 4): (48, 144, 184, 88, 72, 96, 72, 38, 20, 28),
    (2, 5): (49, 145, 184, 88, 72, 96, 72, 38, 20, 28),
    (2, 6): (49, 145, 184, 96, 72, 96, 72, 45, 20, 28),
    (2, 7): (50, 146, 184, 96, 120, 120, 96, 46, 20, 28),
    (2, 8): (50, 152, 184, 96, 120, 120, 96, 47, 20, 28),
    (2, 9): (50, 152, 184, 96, 120, 120, 104, 47, 20, 28),
    (2, 10): (50, 152, 184, 96, 120, 120, 104, 47, 23, 31),
    (2, 11): (50, 152, 184, 96, 120, 120, 104, 47, 23, 31),
    (2, 12): (50, 152, 184, 96, 120, 120, 104, 47, 23, 31),
    (2, 13): (49, 151, 176, 96, 120, 120, 104, 47, 23, 31),
    (2, 14): (49, 151, 176, 96, 120, 120, 104, 48, 23, 31),
    (2, 15): (49, 151, 176, 96, 120, 120, 104, 48, 23, 31),
}

#: Torches that are older than all that are served, by measurements/header_layouts.py. Their
#: symbols were not measured.
_OLDER_ROWS = {
    (2, 0): (44, 124, 192, 80, 72, 72, 72, 19, 20, 28),
    (2, 1): (48, 128, 192, 96, 72, 72, 72, 26, 20, 28),
    (2, 2): (49, 129, 192, 96, 72, 96, 72, 28, 20, 28),
    (2, 3): (48, 144, 184, 88, 72, 96, 72, 38, 20, 28),
}

LAYOUTS = {minor: dict(zip(FIELDS, row, strict=True)) for minor, row in _ROWS.items()}
OLDER_LAYOUTS = {minor: dict(zip(FIELDS, row, strict=True)) for minor, row in _OLDER_ROWS.items()}


def layout_of(minor: tuple[int, int]) -> Mapping[str, int] | None:
    """The class layout of a torch; None if it was never measured."""
    return LAYOUTS.get(minor) or OLDER_LAYOUTS.get(minor)


def difference(
    built: Mapping[str, int], runs: Mapping[str, int]
) -> tuple[tuple[str, int, int], ...]:
    """(field, value in `built`, value in `runs`) of each harmful difference; -1 if missing."""
    names = [*FIELDS, *sorted(set(built) - set(FIELDS))]
    return tuple(
        (name, built.get(name, -1), runs.get(name, -1))
        for name in names
        if name not in HARMLESS and built.get(name) != runs.get(name)
    )


def minors_with(names: Iterable[str]) -> frozenset[tuple[int, int]]:
    """The measured minors that have all these symbols; symbols not in `SYMBOLS` do not count."""
    ranges = [_ranges()[name] for name in names if name in _ranges()]
    return frozenset(m for m in LAYOUTS if all(first <= m <= last for first, last in ranges))


def surely_lacks(minor: tuple[int, int], name: str) -> bool:
    """Whether no torch of a minor has a symbol.

    A minor that is older than the measured ones lacks what the oldest of them lacks and a later
    one has; a newer one lacks what went before the newest. Of other symbols nothing is known.
    """
    minors = symbol_range(name)
    if minors is None:
        return False
    first, last = minors
    if minor < min(LAYOUTS):
        return first > min(LAYOUTS)
    if minor > max(LAYOUTS):
        return last < max(LAYOUTS)
    return not first <= minor <= last


def symbol_range(name: str) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """The first and the last measured minor that have a symbol of `SYMBOLS`; None for others."""
    return _ranges().get(name)


@cache
def _ranges() -> Mapping[str, tuple[tuple[int, int], tuple[int, int]]]:
    """The first and the last minor that have each symbol of `SYMBOLS`, by the symbol."""
    rows = read_table(__package__, SYMBOLS).get("ranges", ())
    return {name: ((2, first), (2, last)) for first, last, names in rows for name in names}
