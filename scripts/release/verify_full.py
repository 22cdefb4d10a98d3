"""`--verify full`: runs the fat wheel with every torch, on every Python that has a wheel of it.

Environments of one torch share a cache of about 12 GB, which is deleted before the next torch.
Results are kept in build/verify-full and are valid for one wheel, so an interrupted run continues.
"""

import platform
import shutil
import time
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache, partial
from itertools import product
from pathlib import Path

from rich.console import Console

from release import DIST, PLATFORM, REPO, SMOKE, ReleaseError, evidence
from release.evidence import Environment, Evidence
from release.interpreters import interpreters, python_facts
from release.manifest import parse
from release.paths import MANIFEST
from release.progress import Reporter
from release.run import only_run
from release.runner import run_tasks
from release.schema import FIRST, Matrix
from release.store import Store, digest
from release.tasks import Outcome, Task
from release.verify_cells import verify_cells
from release.verify_one import CACHE, WORK, Target, environment
from release.wheels import commits, read_wheel

# The cache of one torch with its CUDA libraries, plus the files that its environments do not share.
DISK_NEEDED = 15_000_000_000


class Verify(str, Enum):
    ONE = "one"
    FULL = "full"


@cache
def _interpreter(python: str) -> str | None:
    return next(interpreters(python), None)


def targets(matrix: Matrix, given: Sequence[Path] = ()) -> list[Target]:
    """Every environment for which PyPI has a torch, newest torch first.

    Free-threaded ones where this machine has that Python; only those of `given`, if there are any.
    """
    named = {python_facts(str(path))["minor"]: str(path) for path in given}
    for python, path in named.items():
        if python not in matrix.every_python():
            known = ", ".join(matrix.every_python())
            raise ReleaseError(f"{path} is Python {python}; name one of {known}")
    return [
        Target(minor, torch.release, python, named.get(python) or _interpreter(python))
        for minor, torch in reversed([(minor, matrix.torch[minor]) for minor in matrix.minors()])
        for python in torch.every_python
        if (python in named if named else python in torch.pythons or _interpreter(python))
    ]


def verify_built(matrix: Matrix, console: Console, jobs: int, given: Sequence[Path]) -> int:
    """Runs :func:`verify` with the fat wheel that dist/manifest.json names."""
    manifest = parse(MANIFEST) if MANIFEST.exists() else None
    made = manifest.fat if manifest else None
    if manifest is None or made is None:
        raise ReleaseError(f"{MANIFEST}: names no fat wheel; the run above says why none was made")
    with only_run(console):
        if PLATFORM != FIRST:
            return verify_cells(manifest, matrix, console)
        wanted = targets(matrix, given)
        return verify(DIST / made.path, wanted, matrix, console, jobs, join=bool(given))


def verify(
    wheel: Path,
    wanted: Sequence[Target],
    matrix: Matrix,
    console: Console,
    jobs: int = 1,
    *,
    join: bool = False,
) -> int:
    """Runs the wanted environments that have no result yet; returns the exit code.

    Stores all results when none is missing; with `join`, beside those that are stored.
    """
    read_wheel(wheel)  # raises if it is not a wheel
    console.print(f"{wheel.name} ({digest(wheel)[:12]}): {len(wanted)} environments")
    tasks = {
        target: Task(
            f"verify/{target.name}",
            partial(environment, target=target, wheel=wheel),
            inputs=(wheel, SMOKE),
        )
        for target in wanted
    }
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
    found: dict[Target, Environment] = {}  # without those that could not be installed
    for target, task in tasks.items():
        for path in outcomes[task.name].outputs:
            found[target] = Environment.model_validate_json(path.read_text(encoding="utf-8"))
            _show(target, found[target], console)
    console.print(f"{len(wanted)} environments in {time.monotonic() - begun:.0f} s")
    _save(wheel, matrix, wanted, found, console, join)
    return 0 if [seen.state for seen in found.values()] == ["ran"] * len(wanted) else 1


def _check_space() -> None:
    WORK.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(WORK).free
    if free < DISK_NEEDED:
        text = f"{WORK}: {free / 1e9:.1f} GB are free, {DISK_NEEDED / 1e9:.0f} GB are needed"
        raise ReleaseError(f"{text}; free some and run the same again: what was done is kept")


def _show(target: Target, seen: Environment, console: Console) -> None:
    style = "green" if seen.state == "ran" else "bold red"
    text = f"[{style}]{seen.state:9}[/] torch {seen.torch_version or target.release}"
    text += f", Python {seen.python_version or target.python}: {seen.variant or '-'}"
    console.print(f"{text} ({seen.seconds:.0f} s)")
    if seen.reason:
        console.print(f"        {seen.reason}", markup=False, soft_wrap=True)


def _save(
    wheel: Path,
    matrix: Matrix,
    wanted: Sequence[Target],
    found: Mapping[Target, Environment],
    console: Console,
    join: bool,
) -> None:
    every = wanted if join else targets(matrix)
    known = [found[target] for target in every if target in found]
    place, old = evidence.RESULTS.relative_to(REPO), evidence.load() if join else None
    if len(known) < len(every):
        text = f"{len(every) - len(known)} of {len(every)} environments have no result in this run"
        console.print(f"{text}: {place} is left as it was")
    else:
        evidence.save(joined(old, wheel, known) if old else gathered(wheel, matrix, known))
        console.print(f"stored in {place}; now run:")
        console.print("scripts/build_all.sh --write-generated")


def joined(stored: Evidence, wheel: Path, known: Sequence[Environment]) -> Evidence:
    """What is stored, with these results in place of older ones; each says of which wheel."""
    origin = {"wheel": wheel.name, "commit": " ".join(commits(read_wheel(wheel)))}
    rows = {(row.torch, row.python): row for row in stored.environments}
    rows |= {(row.torch, row.python): row.model_copy(update=origin) for row in known}
    return stored.model_copy(update={"environments": list(rows.values())})


def gathered(wheel: Path, matrix: Matrix, known: Sequence[Environment]) -> Evidence:
    """The results, and a line for every Python of the matrix for which a torch has no wheel."""
    date = max(result.date for result in known)
    found = {(result.torch, result.python): result for result in known}
    rows = []
    for minor, python in product(matrix.minors(), matrix.every_python()):
        if python in matrix.torch[minor].free_threaded and (minor, python) not in found:
            continue
        reason = f"PyPI has no wheel of torch {minor} for Python {python}"
        absent = {"torch": minor, "python": python, "state": "unsupported", "reason": reason}
        rows.append(found.get((minor, python)) or Environment(date=date, **absent))
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
