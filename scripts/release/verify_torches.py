"""Environments of `--verify full`, one torch after the other.

Those of one torch share a cache of about 12 GB, which is deleted before the next torch. Results are
kept in build/verify-full and are valid for one wheel, so an interrupted run continues.
"""

import shutil
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from release import SMOKE, ReleaseError
from release.evidence import Environment
from release.progress import Reporter
from release.runner import run_tasks
from release.store import Store, digest
from release.tasks import Outcome, Task
from release.verify_one import CACHE, WORK, Target, environment
from release.wheels import read_wheel

# The cache of one torch with its CUDA libraries, plus the files that its environments do not share.
DISK_NEEDED = 15_000_000_000


def tried(
    wheel: Path, wanted: Sequence[Target], console: Console, jobs: int
) -> dict[Target, Environment | None]:
    """Runs the environments that have no result yet; None for what could not be installed."""
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
    found = {target: _result(outcomes[tasks[target].name]) for target in wanted}
    for target, seen in found.items():
        if seen:
            _show(target, seen, console)
    console.print(f"{len(wanted)} environments in {time.monotonic() - begun:.0f} s")
    return found


def _check_space() -> None:
    WORK.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(WORK).free
    if free < DISK_NEEDED:
        text = f"{WORK}: {free / 1e9:.1f} GB are free, {DISK_NEEDED / 1e9:.0f} GB are needed"
        raise ReleaseError(f"{text}; free some and run the same again: what was done is kept")


def _result(outcome: Outcome) -> Environment | None:
    """The result of an environment; None if it could not be installed."""
    texts = (path.read_text(encoding="utf-8") for path in outcome.outputs)
    return next(map(Environment.model_validate_json, texts), None)


def _show(target: Target, seen: Environment, console: Console) -> None:
    style = "green" if seen.state == "ran" else "bold red"
    text = f"[{style}]{seen.state:9}[/] torch {seen.torch_version or target.release}"
    text += f", Python {seen.python_version or target.python}: {seen.variant or '-'}"
    console.print(f"{text} ({seen.seconds:.0f} s)")
    if seen.reason:
        console.print(f"        {seen.reason}", markup=False, soft_wrap=True)
