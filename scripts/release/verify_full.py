"""`--verify full`: runs the fat wheel beside every torch and Python that has a wheel of that torch.

Environments of one torch share a cache of about 12 GB, which is deleted before the next torch.
Results lie below build/verify-full and are valid for one wheel, so an interrupted run goes on where
it stopped. When every environment has a result, all of them are stored in
benchmarks/results/environments.json, and the support tables show them.
"""

from __future__ import annotations

import platform
import shutil
import time
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache, partial
from pathlib import Path

from rich.console import Console

from release import DIST, REPO, SMOKE, ReleaseError, evidence
from release.evidence import Environment, Evidence
from release.interpreters import interpreters
from release.manifest import parse
from release.paths import MANIFEST
from release.progress import Reporter
from release.run import only_run
from release.runner import run_tasks
from release.schema import Matrix
from release.store import Store, digest
from release.tasks import Outcome, Task
from release.verify_one import CACHE, WORK, Target, environment
from release.wheels import commits, read_wheel

# One torch with its CUDA libraries in the cache, and what four environments do not share.
DISK_NEEDED = 15_000_000_000
STYLES = {"ran": "green", "judged": "cyan"}


class Verify(str, Enum):
    """How much is run of what was built."""

    ONE = "one"
    FULL = "full"


@cache
def _interpreter(python: str) -> str | None:
    return next(interpreters(python), None)


def targets(matrix: Matrix) -> list[Target]:
    """Every environment for which PyPI has a torch, newest torch first."""
    return [
        Target(minor, matrix.torch[minor].release, python, _interpreter(python))
        for minor in reversed(matrix.minors())
        for python in matrix.torch[minor].pythons
    ]


def verify_built(matrix: Matrix, console: Console, jobs: int) -> int:
    """`verify` with the fat wheel that dist/manifest.json names.

    Raises:
        ReleaseError: it names none.
    """
    made = parse(MANIFEST).fat if MANIFEST.exists() else None
    if made is None:
        raise ReleaseError(f"{MANIFEST}: names no fat wheel; the run above says why none was made")
    with only_run(console):
        return verify(DIST / made.path, targets(matrix), matrix, console, jobs)


def verify(
    wheel: Path, wanted: Sequence[Target], matrix: Matrix, console: Console, jobs: int = 1
) -> int:
    """Runs the wanted environments that have no result yet; returns the exit code.

    Stores all results when none is missing.

    Raises:
        ReleaseError: `wheel` is not a readable wheel, or the disk is too small.
    """
    read_wheel(wheel)
    console.print(f"{wheel.name} ({digest(wheel)[:12]}): {len(wanted)} environments")
    tasks = {target: _task(target, wheel) for target in wanted}
    outcomes: dict[str, Outcome] = {}
    begun, store = time.monotonic(), Store(WORK / "stamps")
    with Reporter(console, list(tasks.values())) as reporter:
        for minor in dict.fromkeys(target.torch for target in wanted):
            first, *others = (tasks[target] for target in wanted if target.torch == minor)
            _check_space()
            # The first one fetches what all of them share.
            try:
                for group in ([first], others):
                    outcomes |= run_tasks(group, store, WORK / "logs", reporter, jobs)
            finally:
                shutil.rmtree(CACHE, ignore_errors=True)
    found = {target: result(outcomes[tasks[target].name]) for target in wanted}
    for target, seen in found.items():
        if seen:
            _show(target, seen, console)
    console.print(f"{len(wanted)} environments in {time.monotonic() - begun:.0f} s")
    _save(wheel, matrix, found, console)
    return 0 if all(seen and seen.state in STYLES for seen in found.values()) else 1


def _task(target: Target, wheel: Path) -> Task:
    step = partial(environment, target=target, wheel=wheel)
    return Task(f"verify/{target.name}", step, inputs=(wheel, SMOKE))


def _check_space() -> None:
    WORK.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(WORK).free
    if free < DISK_NEEDED:
        text = f"{WORK}: {free / 1e9:.1f} GB are free, {DISK_NEEDED / 1e9:.0f} GB are needed"
        raise ReleaseError(f"{text}; free some and run the same again: what was done is kept")


def result(outcome: Outcome) -> Environment | None:
    """The result of an environment; None if it could not be installed."""
    if not outcome.outputs:
        return None
    return Environment.model_validate_json(outcome.outputs[0].read_text(encoding="utf-8"))


def _show(target: Target, seen: Environment, console: Console) -> None:
    style = STYLES.get(seen.state, "bold red")
    text = f"[{style}]{seen.state:9}[/] torch {seen.torch_version or target.release}"
    text += f", Python {seen.python_version or target.python}: {seen.variant or '-'}"
    console.print(f"{text} ({seen.seconds:.0f} s)")
    if seen.reason:
        console.print(f"        {seen.reason}", markup=False, soft_wrap=True)


def _save(
    wheel: Path, matrix: Matrix, found: Mapping[Target, Environment | None], console: Console
) -> None:
    """Stores the results if every environment has one."""
    every = targets(matrix)
    known = [seen for target in every if (seen := found.get(target))]
    place = evidence.RESULTS.relative_to(REPO)
    if len(known) < len(every):
        text = f"{len(every) - len(known)} of {len(every)} environments have no result in this run"
        console.print(f"{text}: {place} is left as it was")
    else:
        evidence.save(gathered(wheel, matrix, known))
        console.print(f"stored in {place}; now run:")
        console.print("scripts/build_all.sh --write-generated")


def gathered(wheel: Path, matrix: Matrix, known: Sequence[Environment]) -> Evidence:
    """The results, and a line for every Python of the matrix for which a torch has no wheel."""
    date = max(result.date for result in known)
    absent = [
        Environment(
            torch=minor,
            python=python,
            state="unsupported",
            reason=f"PyPI has no wheel of torch {minor} for Python {python}",
            date=date,
        )
        for minor in matrix.minors()
        for python in matrix.package.pythons
        if python not in matrix.torch[minor].pythons
    ]
    order = {minor: index for index, minor in enumerate(matrix.minors())}
    rows = sorted(
        [*known, *absent],
        key=lambda e: (order[e.torch], matrix.package.pythons.index(e.python)),
    )
    packed = read_wheel(wheel)
    return Evidence(
        wheel=wheel.name,
        sha256=digest(wheel),
        binaries=sorted(Path(name).name for name in packed.binaries),
        commit=" ".join(commits(packed)),
        smoke=digest(SMOKE),
        date=date,
        machine=f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}",
        command="scripts/build_all.sh --verify full",
        environments=rows,
    )
