"""Gathers what is to be looked up for a verdict: symbols and libraries, as the linker finds them.

In come the record of a file and a runtime; out goes the runtime with the facts of that file, and
never a finding. What was not looked up stays unknown, and the rules that need it say so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..budget import Budget, BudgetSpentError
from ..machine import runtime_probe, torch_probe
from ..project import Record
from ..reading.elf import ElfBoundError, ElfError
from ..reading.layouts import surely_lacks
from ..records import (
    NOWHERE,
    OK,
    BinaryRecord,
    Runtime,
    TorchInstall,
)
from ..rules import RULES
from ..rules.libraries import may_come_with_torch, needs_cuda
from ..text import printable

if TYPE_CHECKING:
    from ..linking.process import NotLinked, Opening

#: Symbols of a missing GPU library say nothing about torch's version.
_OF_DEVICES = r"cuda|CUDA|hip|HIP|xpu|XPU"


class Gathered(Record, kw_only=True):
    """The facts for the verdict on one object."""

    runtime: Runtime
    missing_libraries: tuple[str, ...] = ()
    #: The libraries of its package that load with it, and need torch.
    package_libraries: tuple[Path, ...] = ()


def gather(
    binary: BinaryRecord, runtime: Runtime, *, light: bool = False, opened: Path | None = None
) -> Gathered:
    """The facts of an object: as part of its distribution, if the doctor has set its `owner`; else,
    by its file alone.

    An import of the package is `light`: it looks up only what its own rules need. `opened` is the
    object that needs this one; None for the one that is opened itself. Raises BudgetSpentError.
    """
    if _is_settled(binary, runtime):
        return Gathered(runtime=runtime)
    torch = runtime.torch
    try:
        if torch is not None and torch.root == NOWHERE:
            return _by_version(binary, runtime, torch, opened, light=light)
        if light:
            return Gathered(runtime=_for_import(binary, runtime))
        return _linked(binary, runtime, opened)
    except ElfBoundError as error:
        raise BudgetSpentError(f"reading a library of torch with {error}") from None
    except (ElfError, OSError) as error:
        return Gathered(runtime=_beside_damaged(runtime, error))


def _is_settled(binary: BinaryRecord, runtime: Runtime) -> bool:
    """Whether a rule ends the verdict, so that nothing need be looked up."""
    findings = (rule.ask(binary, runtime) for rule in RULES if rule.ends)
    return any(finding is not None and finding.status != OK for finding in findings)


def _beside_damaged(runtime: Runtime, error: Exception) -> Runtime:
    """The runtime where a library of torch cannot be read."""
    problem = printable(f"its libraries cannot be read ({error})")
    torch = runtime.torch._replace(problems=(problem,)) if runtime.torch else None
    return runtime._replace(torch=torch)


def _by_version(
    binary: BinaryRecord, runtime: Runtime, torch: TorchInstall, opened: Path | None, *, light: bool
) -> Gathered:
    """For a torch that is not installed, only `symbols.json` tells its symbols. The libraries that
    do not come with any torch are looked for all the same. Raises BudgetSpentError, and ElfError or
    OSError."""
    lacking = tuple(
        name for name in binary.torch_symbols if surely_lacks(torch.version_tuple, name)
    )
    if lacking:
        runtime = _with_symbols(binary, runtime, lacking)
    if light:
        return Gathered(runtime=runtime)
    from ..linking import after_torch

    links = after_torch.link(runtime.target, binary, None, opened=opened)
    missing = tuple(name for name in links.opening.missing if not may_come_with_torch(name))
    key = str(binary.path)
    opening = links.opening._replace(missing=missing, symbols={}, brought_in=None, is_bound=False)
    runtime = runtime._replace(openings={**runtime.openings, key: opening})
    if missing:
        libraries = {**runtime.missing_libraries, key: missing}
        runtime = runtime._replace(missing_libraries=libraries)
    return Gathered(
        runtime=runtime,
        missing_libraries=missing,
        package_libraries=tuple(links.package_libraries),
    )


def _with_symbols(binary: BinaryRecord, runtime: Runtime, missing: tuple[str, ...]) -> Runtime:
    return runtime._replace(missing_symbols={**runtime.missing_symbols, str(binary.path): missing})


def _for_import(binary: BinaryRecord, runtime: Runtime) -> Runtime:
    """What an import of the package looks up for one of its own files."""
    key = str(binary.path)
    if binary.kind == "glue" and runtime.torch and key not in runtime.missing_symbols:
        missing = torch_probe.missing_in_process(binary, runtime.torch)
        runtime = _with_symbols(binary, runtime, missing)
    if needs_cuda(binary) and key not in runtime.missing_libraries:
        from ..linking.after_torch import missing_libraries  # an ordinary import does not need it

        libraries = missing_libraries(runtime.target, binary, runtime.torch)
        runtime = runtime._replace(missing_libraries={**runtime.missing_libraries, key: libraries})
    return runtime


def _linked(binary: BinaryRecord, runtime: Runtime, opened: Path | None) -> Gathered:
    """What the dynamic linker would do with an object. Raises BudgetSpentError, and ElfError or
    OSError if a library of torch cannot be read."""
    from ..linking import after_torch

    budget = runtime.target.budget

    torch = runtime.torch
    whole = torch if torch is not None and not torch.problems else None
    links = after_torch.link(runtime.target, binary, whole, opened=opened)
    if links.libstdcxx is not None:
        runtime = runtime._replace(
            libstdcxx=runtime_probe.defined_versions(links.libstdcxx, budget)
        )
    opening = links.opening
    unresolved = opening.symbols.get(binary.path, ())
    if whole is not None and (opening.missing or unresolved):
        # Also where the linker's answer stands: only here a damaged torch shows.
        of_torch = torch_probe.missing_symbols(binary, whole, budget)
        if opening.missing:
            unresolved = tuple(name for name in of_torch if not re.search(_OF_DEVICES, name))
    if whole is not None and not opening.missing:
        unlinked = _not_linked(binary.path, unresolved, whole, budget)
        in_torch = {name for part in unlinked for name in part.names}
        unresolved = tuple(name for name in unresolved if name not in in_torch)
        opening = _as_not_linked(opening, unlinked, whole, budget)
    key = str(binary.path)
    return Gathered(
        runtime=_with_symbols(binary, runtime, unresolved)._replace(
            missing_libraries={**runtime.missing_libraries, key: opening.missing},
            openings={**runtime.openings, key: opening},
        ),
        missing_libraries=opening.missing,
        package_libraries=tuple(links.package_libraries),
    )


def _not_linked(
    file: Path, symbols: Sequence[str], torch: TorchInstall, budget: Budget
) -> tuple[NotLinked, ...]:
    """For each library of torch, the symbols that it defines and that `file` does not find, since
    it does not name the library. Raises BudgetSpentError."""
    from ..linking.process import NotLinked

    libraries = torch_probe.defining_libraries(symbols, torch, budget)
    names: dict[Path, list[str]] = {}
    for symbol, library in libraries.items():
        names.setdefault(library, []).append(symbol)
    return tuple(
        NotLinked(file=file, library=library, names=tuple(symbols_of_library))
        for library, symbols_of_library in names.items()
    )


def _as_not_linked(
    opening: Opening, of_object: tuple[NotLinked, ...], torch: TorchInstall, budget: Budget
) -> Opening:
    """The opening, where a library that lacks only what torch has is not linked with torch, as the
    object itself may be. Raises BudgetSpentError."""
    not_linked = [*of_object]
    symbols: dict[Path, tuple[str, ...]] = {}
    for path, names in opening.symbols.items():
        if path == opening.files[0]:
            symbols[path] = names
            continue
        parts = _not_linked(path, names, torch, budget)
        if sum(len(part.names) for part in parts) == len(names):
            not_linked += parts
        else:
            symbols[path] = names
    return opening._replace(symbols=symbols, not_linked=tuple(not_linked))
