"""`--verify full`: runs the fat wheel with every torch, on every Python that has a wheel of it.

When every environment has a result, all of them are stored in
benchmarks/results/environments.json, and the support tables show them. `--python PATH` tries the
environments of that interpreter alone; their results are added to the stored ones. On platforms
other than the first, a run under qemu costs minutes and some torches crash there: each torch is
tried on one Python, and whatever has a result is stored.

Environments of one torch share a cache of about 12 GB, which is deleted before the next torch.
Results are kept in build/verify-full and are valid for one wheel, so an interrupted run continues.
"""

import os
import platform
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache, partial
from itertools import product
from pathlib import Path

from rich.console import Console

from release import (
    DIST,
    FOREIGN,
    MACHINE,
    PLATFORM,
    REPO,
    SMOKE,
    WRITE,
    ReleaseError,
    emulation,
    evidence,
)
from release.environments import interpreters, python_facts
from release.evidence import Environment, Evidence
from release.listing import Reporter
from release.manifest import parse
from release.paths import MANIFEST
from release.run import only_run
from release.schema import FIRST, Matrix
from release.store import digest
from release.tasks import Outcome, Task, run_tasks
from release.verify_one import CACHE, WORK, Target, environment
from release.wheels import commits, read_wheel

Results = Mapping[Target, Environment | None]
# The cache of one torch with its CUDA libraries, plus the files that its environments do not share.
DISK_NEEDED = 15_000_000_000


@cache
def _interpreter(python: str) -> str | None:
    return next(interpreters(python), None)


def targets(matrix: Matrix, given: Sequence[Path] = ()) -> list[Target]:
    """Every environment for which PyPI has a torch, newest torch first.

    Free-threaded Pythons count only if this machine has them. `given` limits the result to these
    interpreters.
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
    """Tries the fat wheel that dist/manifest.json names; returns the exit code."""
    manifest = parse(MANIFEST) if MANIFEST.exists() else None
    if manifest is None or manifest.fat is None:
        raise ReleaseError(f"{MANIFEST}: names no fat wheel; the run above says why none was made")
    with only_run(console):
        if PLATFORM != FIRST and not given:
            own = os.environ.get("RELEASE_PYTHON", sys.executable)
            given = [emulation.PYTHON if FOREIGN else Path(own)]
        wheel, wanted = DIST / manifest.fat.path, targets(matrix, given)
        return verify(wheel, wanted, matrix, console, jobs, join=bool(given))


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

    Stores all results if none is missing; with `join`, adds them to the stored ones.
    """
    found = tried(wheel, wanted, console, jobs)
    every = wanted if join else targets(matrix)
    known = [seen for target in every if (seen := found.get(target))]
    path, missing = evidence.results(PLATFORM), len(every) - len(known)
    if missing and (PLATFORM == FIRST or not known):
        text = f"{missing} of {len(every)} environments have no result in this run"
        console.print(f"{text}: {path.relative_to(REPO)} is left as it was")
    else:
        old = evidence.load(path) if join and PLATFORM == FIRST else None
        evidence.save(joined(old, wheel, known) if old else gathered(wheel, matrix, known), path)
        console.print(f"stored in {path.relative_to(REPO)}; now run:\n{WRITE}")
    return 0 if all(seen and seen.state == "ran" for seen in found.values()) else 1


def tried(wheel: Path, wanted: Sequence[Target], console: Console, jobs: int) -> Results:
    """Runs the environments that have no result yet; the result is None if one was skipped."""
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
    begun = time.monotonic()
    with Reporter(console, list(tasks.values())) as reporter:
        for minor in dict.fromkeys(target.torch for target in wanted):
            first, *others = (tasks[target] for target in wanted if target.torch == minor)
            WORK.mkdir(parents=True, exist_ok=True)
            if (free := shutil.disk_usage(WORK).free) < DISK_NEEDED:
                have, need = (
                    f"{free / 1e9:.1f} GB are free",
                    f"{DISK_NEEDED / 1e9:.0f} GB are needed",
                )
                text = "free some and run the same again: what was done is kept"
                raise ReleaseError(f"{WORK}: {have}, {need}; {text}")
            # The first environment fetches the files that all of them share.
            try:
                for group in ([first], others):
                    outcomes |= run_tasks(group, WORK, reporter, jobs)
            finally:
                shutil.rmtree(CACHE, ignore_errors=True)
    found: dict[Target, Environment | None] = {}
    for target, task in tasks.items():
        texts = (path.read_text(encoding="utf-8") for path in outcomes[task.name].outputs)
        seen = found[target] = next(map(Environment.model_validate_json, texts), None)
        if seen:
            style = "green" if seen.state == "ran" else "bold red"
            text = f"[{style}]{seen.state:9}[/] torch {seen.torch_version or target.release}"
            text += f", Python {seen.python_version or target.python}: {seen.variant or '-'}"
            console.print(f"{text} ({seen.seconds:.0f} s)")
            if seen.reason:
                console.print(f"        {seen.reason}", markup=False, soft_wrap=True)
    console.print(f"{len(wanted)} environments in {time.monotonic() - begun:.0f} s")
    return found


def joined(stored: Evidence, wheel: Path, known: Sequence[Environment]) -> Evidence:
    """The stored results, updated by these; each new row names its wheel."""
    origin = {"wheel": wheel.name, "commit": " ".join(commits(read_wheel(wheel)))}
    rows = {(row.torch, row.python): row for row in stored.environments}
    rows |= {(row.torch, row.python): row.model_copy(update=origin) for row in known}
    return stored.model_copy(update={"environments": list(rows.values())})


def gathered(wheel: Path, matrix: Matrix, known: Sequence[Environment]) -> Evidence:
    """The results, and a line for every Python of the matrix for which a torch has no wheel."""
    found = {(result.torch, result.python): result for result in known}
    date, rows, packed = max(result.date for result in known), [], read_wheel(wheel)
    for minor, python in product(matrix.minors(), matrix.every_python()):
        reason = f"PyPI has no wheel of torch {minor} for Python {python}"
        absent = {"torch": minor, "python": python, "state": "unsupported", "reason": reason}
        if (minor, python) in found:
            rows.append(found[minor, python])
        elif python not in matrix.torch[minor].every_python:
            rows.append(Environment(date=date, **absent))
    selector = how = ""
    if PLATFORM != FIRST:
        selector = f"'*-{MACHINE}' "
        how = f"; runs under {emulation.version()}" if FOREIGN else "; native"
    return Evidence(
        wheel=wheel.name,
        sha256=digest(wheel),
        binaries=sorted(Path(name).name for name in packed.binaries),
        commit=" ".join(commits(packed)),
        smoke=digest(SMOKE),
        date=date,
        machine=f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}{how}",
        command=f"scripts/build_all.sh {selector}--verify full",
        environments=rows,
    )
