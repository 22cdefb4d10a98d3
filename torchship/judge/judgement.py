"""`judge` compares given facts; `judge_file` looks up the facts of a file and calls `judge`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from . import checks, codes, runtime_probe, torch_probe
from .binary import read_binary
from .elf import ElfBoundError, ElfError
from .fixes import ours
from .layouts import surely_lacks
from .project import Record
from .records import (
    NOWHERE,
    UNKNOWN,
    BinaryRecord,
    Finding,
    LinkFault,
    Runtime,
    TorchInstall,
    Verdict,
)
from .text import printable

if TYPE_CHECKING:
    from .budget import Budget


def judge(binary: BinaryRecord, runtime: Runtime) -> Verdict:
    """Compare a binary with a runtime in every dimension that applies.

    The function opens only `symbols.json` and `support.json`. Facts from other files
    (missing symbols, missing libraries) are part of the runtime, which need not describe
    this process. The verdict is `accepted` if no finding is rejected or unknown, since an
    unknown fact could crash the process or falsify a result.
    """
    of_the_file = tuple(checks.host.check_whole_file(binary, runtime))
    verdict = Verdict(binary, of_the_file)
    # The other dimensions need a file that was read, and a whole one of this release.
    if verdict.rejection or binary.too_large:
        return verdict
    findings = (check(binary, runtime) for check in checks.ALL)
    return Verdict(binary, (*of_the_file, *filter(None, findings)))


def judge_file(
    binary: BinaryRecord | Path | str,
    runtime: Runtime,
    *,
    light: bool = False,
    budget: Budget | None = None,
) -> Verdict:
    """Judge a shared object of any package by itself: a file, or the `BinaryRecord` of it.

    Symbols and libraries are looked up only if no cheaper dimension has rejected the
    object. For an object of another package, only the file, platform and package count as
    cheaper. `light` is passed to `read_binary`; if it is set, the libraries of an object of
    the project are looked up only if the object needs libcudart or cuBLAS. `budget` is that
    of a whole run, and the file has one of its own; if either is spent, the verdict is that
    nothing can be told.
    """
    if not isinstance(binary, BinaryRecord):
        binary = read_binary(binary, light=light)
    if light and ours(binary, runtime):
        return judge_ours(binary, runtime, None, light=True)
    # An import of the package judges only the package's own files.
    from . import mounts
    from .budget import Budget, BudgetSpentError

    binary = binary._replace(noexec=mounts.forbidding_mount(binary.path))
    budget = Budget.for_file(binary.size, outer=budget)
    try:
        budget.check_time()
        if ours(binary, runtime):
            return judge_ours(binary, runtime, budget, light=light)
        verdict = without_links(binary, runtime)
        if verdict is not None:
            return verdict
        try:
            return judge(binary, look_up_links(binary, runtime, budget).runtime)
        except UnreadTorchError as error:
            return beside_unread(binary, runtime, error)
    except BudgetSpentError as error:
        return cannot_be_told(binary, str(error))


def cannot_be_told(binary: BinaryRecord, cost: str) -> Verdict:
    """The verdict on a binary whose judgement costs more than its budget, or than any."""
    unknown = Finding(
        dimension="budget",
        status=UNKNOWN,
        code=codes.BUDGET_SPENT,
        observed=cost,
        needed="a check within the time limit",
        why=f"to check {binary.file} takes {cost}, so it was given up",
    )
    return Verdict(binary, (unknown,))


class UnreadTorchError(RuntimeError):
    """A library of torch cannot be read; the cause says why."""

    def __init__(self, torch: TorchInstall, cause: ElfError | OSError) -> None:
        super().__init__(str(cause))
        self.torch = torch
        self.cause = cause


def beside_unread(binary: BinaryRecord, runtime: Runtime, error: UnreadTorchError) -> Verdict:
    """The verdict where a library of torch cannot be read."""
    if isinstance(error.cause, ElfBoundError):
        return cannot_be_told(binary, f"reading a library of torch with {error}")
    return judge(binary, _damaged(runtime, error.torch, error.cause))


def judge_ours(
    binary: BinaryRecord, runtime: Runtime, budget: Budget | None, *, light: bool
) -> Verdict:
    """Judge an object of the project. Raises BudgetSpentError."""
    verdict = judge(binary, runtime)
    if verdict.rejection or binary.too_large:
        return verdict
    if runtime.torch and runtime.torch.root == NOWHERE:
        return _judge_by_version(binary, runtime)
    key = str(binary.path)
    facts = runtime
    if binary.kind == "glue" and runtime.torch and key not in runtime.missing_symbols:
        try:
            missing = torch_probe.missing_symbols(binary, runtime.torch, budget)
        except (ElfError, OSError) as error:
            return beside_unread(binary, runtime, UnreadTorchError(runtime.torch, error))
        facts = facts._replace(missing_symbols={**facts.missing_symbols, key: missing})
    unsure = any(f.status == UNKNOWN and f.dimension == "libraries" for f in verdict.findings)
    if key not in runtime.missing_libraries and (unsure or not light):
        from . import linking  # not needed by an ordinary import of the package

        libraries = linking.missing_libraries(binary, runtime.torch, budget)
        facts = facts._replace(missing_libraries={**facts.missing_libraries, key: libraries})
    return verdict if facts is runtime else judge(binary, facts)


class Linked(Record, kw_only=True):
    """What the dynamic linker would do with an object."""

    runtime: Runtime  #: with the facts that were looked up
    missing_libraries: tuple[str, ...]
    siblings: list[Path]  #: the libraries of its package that load with it


def without_links(binary: BinaryRecord, runtime: Runtime) -> Verdict | None:
    """The verdict for which no symbol of an object of another package need be looked up, or of
    which none can be; None where they are to be."""
    # Before its symbols are looked up, this verdict is only to stop at what cannot be linked.
    verdict = judge(binary, runtime)
    if verdict.rejection and verdict.rejection.dimension in ("file", "platform", "package"):
        return verdict
    if binary.too_large:
        return verdict
    if runtime.torch is not None and runtime.torch.root == NOWHERE:
        return _judge_by_version(binary, runtime)
    return None


def look_up_links(
    binary: BinaryRecord, runtime: Runtime, budget: Budget, opened: Path | None = None
) -> Linked:
    """The facts of an object that is linked as part of the distribution that owns it.

    `opened` is the object that needs this one; None for the one that is opened itself. Raises
    BudgetSpentError and UnreadTorchError.
    """
    from . import linking

    torch = runtime.torch
    whole = torch if torch is not None and not torch.problems else None
    links = linking.link(binary, whole, budget, opened=opened)
    if links.libstdcxx is not None:
        runtime = runtime._replace(libstdcxx=runtime_probe.defined_versions(links.libstdcxx))
    unresolved = links.missing_symbols
    if whole is not None and (links.missing_libraries or unresolved):
        # Also where the linker's answer stands: only here a damaged torch shows.
        try:
            of_torch = torch_probe.missing_symbols(binary, whole, budget)
        except (ElfError, OSError) as error:
            raise UnreadTorchError(whole, error) from None
        if links.missing_libraries:
            # Symbols of a missing GPU library say nothing about torch's version.
            device = re.compile(r"cuda|CUDA|hip|HIP|xpu|XPU")
            unresolved = tuple(name for name in of_torch if not device.search(name))
    faults = links.faults
    if whole is not None and not links.missing_libraries:
        unlinked = _unlinked(binary.path, unresolved, whole, budget)
        in_torch = {name for fault in unlinked for name in fault.names}
        unresolved = tuple(name for name in unresolved if name not in in_torch)
        faults = (*unlinked, *_of_libraries(links.faults, whole, budget))
    key = str(binary.path)
    facts = runtime._replace(
        missing_symbols={**runtime.missing_symbols, key: unresolved},
        missing_libraries={**runtime.missing_libraries, key: links.missing_libraries},
        link_faults={**runtime.link_faults, key: faults},
    )
    return Linked(runtime=facts, missing_libraries=links.missing_libraries, siblings=links.siblings)


def _unlinked(
    file: Path, symbols: Sequence[str], torch: TorchInstall, budget: Budget
) -> tuple[LinkFault, ...]:
    """For each library of torch, the symbols that it defines and that `file` does not find, since
    it does not name the library. Raises BudgetSpentError."""
    libraries = torch_probe.defining_libraries(symbols, torch, budget)
    names: dict[Path, list[str]] = {}
    for symbol, library in libraries.items():
        names.setdefault(library, []).append(symbol)
    return tuple(
        LinkFault(kind="unlinked", file=file, library=library, names=tuple(symbols_of_library))
        for library, symbols_of_library in names.items()
    )


def _of_libraries(
    faults: Sequence[LinkFault], torch: TorchInstall, budget: Budget
) -> Iterator[LinkFault]:
    """The faults, where a library that needs only what torch has is not linked with it. Raises
    BudgetSpentError."""
    for fault in faults:
        unlinked: tuple[LinkFault, ...] = ()
        if fault.kind == "symbols":
            unlinked = _unlinked(fault.file, fault.names, torch, budget)
        if unlinked and sum(len(part.names) for part in unlinked) == len(fault.names):
            yield from unlinked
        else:
            yield fault


def _damaged(runtime: Runtime, torch: TorchInstall, error: Exception) -> Runtime:
    problem = printable(f"its libraries cannot be read ({error})")
    return runtime._replace(torch=torch._replace(problems=(problem,)))


def _judge_by_version(binary: BinaryRecord, runtime: Runtime) -> Verdict:
    """Judge for a torch that is not installed: only `symbols.json` tells its symbols."""
    minor = runtime.torch.version_tuple if runtime.torch else (0, 0)
    missing = tuple(name for name in binary.torch_symbols if surely_lacks(minor, name))
    facts = (
        {**runtime.missing_symbols, str(binary.path): missing}
        if missing
        else runtime.missing_symbols
    )
    return judge(binary, runtime._replace(missing_symbols=facts))
