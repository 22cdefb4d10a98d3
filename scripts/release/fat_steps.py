"""The fat wheel: every variant that was built, each shared object once."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from release import DIST, REPO, ReleaseError
from release.cells import Cell, all_cells
from release.pack_steps import true_tag
from release.paths import ENVS, TEMPORARY, fresh, publish, tool
from release.shell import Log
from release.tasks import Context, SkipTask, Task
from release.verify_steps import run_installed
from release.wheels import join, read_wheel

if TYPE_CHECKING:
    from release.planner import Plan

TOOL = REPO / "scripts" / "release"

LIMIT = 20_000_000  # bytes; what we promise, so that a download stays a matter of seconds


# What runs a cell's wheel: where one of these failed, the cell was packed but is no good.
RUNS = ("venv", "digits")


def add(plan: Plan, cells: Sequence[Cell]) -> None:
    """The tasks that follow those of all cells: the fat wheel and its runs."""
    names = [cell.name for cell in cells]
    packed = [name for name in (f"wheel/{cell}" for cell in names) if name in plan.tasks]
    if not packed:
        return
    runs = [name for c in names for r in RUNS if (name := f"{r}/{c}") in plan.tasks]
    carried = plan.options.carried
    facts = {"carried": sorted(carried), "total": len(all_cells(plan.matrix))}
    made = partial(fat_wheel, cells=names, total=facts["total"], carried=carried)
    inputs = (TOOL / "wheels.py", TOOL / "pack_steps.py", *carried.values())
    task = Task("fat-wheel", made, wants=tuple(packed), heeds=tuple(runs), inputs=inputs)
    fat = plan.add(replace(task, facts=facts))
    site = plan.add(Task("fat-site", fat_site, needs=(fat,)))
    seen: set[str] = set()
    for cell in cells:
        venv = f"venv/{cell.name}"
        # Torches that are not kept meet the fat wheel in `--verify full`.
        kept = venv in plan.tasks and not plan.tasks[venv].sheds
        if cell.glue not in seen and kept:
            seen.add(cell.glue)
            run = partial(fat_run, cell=cell)
            smoke = (TOOL / "smoke.py", TOOL / "verify_steps.py")
            task = Task(f"fat-run/{cell.glue}", run, (site, venv), inputs=smoke)
            plan.add(replace(task, groups=(cell.name,)))


def fat_wheel(
    context: Context, *, cells: Sequence[str], total: int, carried: Mapping[str, Path]
) -> Sequence[Path]:
    """Joins the thin wheels of this run's cells, and of those that an earlier run built.

    Args:
        context: holds `wheel/<cell>` for every cell that could be packed; a cell that does not
            run stays out.
        cells: the cells of this run.
        total: how many cells the matrix has.
        carried: thin wheels of other cells, built from the same sources.
    """
    wheels: dict[str, Path] = {}
    for cell in cells:
        made = context.made.get(f"wheel/{cell}")
        if made and not context.failed & {f"{run}/{cell}" for run in RUNS}:
            (wheels[cell],) = made
    for cell, path in agreeing(carried, wheels).items():
        wheels[cell] = path
    if not wheels:
        raise SkipTask("no variant was built, so there is nothing to pack")
    made_now = make_fat_wheel(context.log, wheels, total)
    final = publish(made_now, DIST / made_now.name)
    forget_others(final)
    return [final]


def agreeing(carried: Mapping[str, Path], wheels: Mapping[str, Path]) -> dict[str, Path]:
    """Those of an earlier run whose binaries are still the same: another compiler makes others."""
    now = {n: data for path in wheels.values() for n, data in read_wheel(path).binaries.items()}
    return {
        cell: path
        for cell, path in carried.items()
        if all(now.get(n, data) == data for n, data in read_wheel(path).binaries.items())
    }


def make_fat_wheel(log: Log, wheels: Mapping[str, Path], total: int) -> Path:
    """The joined wheel in a temporary folder, its tag found true and its size within the limit."""
    work = fresh(TEMPORARY / "fat-wheel")
    local = None if len(wheels) == total else partial_version(len(wheels), total)
    joined = join(dict(sorted(wheels.items())), local=local)
    for name, data in joined.binaries.items():
        log.write(f"{name}: {len(data)} bytes")
    given = {Path(name).name: data for name, data in joined.binaries.items()}
    (work / "joined").mkdir()
    tagged = true_tag(log, joined.write(work / "joined"), given, fresh(work / "repaired"))
    final = tagged.write(fresh(work / "final"))
    if final.stat().st_size > LIMIT:
        text = f"{final.name}: {final.stat().st_size} bytes, at most {LIMIT} are allowed"
        raise ReleaseError(f"{text}; build for fewer architectures or find what grew (the log)")
    return final


def partial_version(count: int, total: int) -> str:
    """What the local version of a wheel says that lacks variants: `partial.3of21`."""
    return f"partial.{count}of{total}"


def forget_others(final: Path) -> None:
    """One fat wheel lies in dist/, so that `pip install dist/lltm-*.whl` means it."""
    for path in DIST.glob("lltm-*.whl"):
        if path != final:
            path.unlink()


def fat_site(context: Context) -> Sequence[Path]:
    """The fat wheel, installed without what it needs: environments with a torch look there."""
    folder = fresh(ENVS / "fat-site")
    command = [tool("uv"), "pip", "install", "--no-deps", "--no-index", "--python", sys.executable]
    context.log.run([*command, "--target", folder, context.only("fat-wheel")])
    return [folder]


def fat_run(context: Context, *, cell: Cell) -> Sequence[Path]:
    """The fat wheel beside the torch that a glue was built for; that glue must be chosen."""
    venv, site = context.made[f"venv/{cell.name}"][0], context.only("fat-site")
    report = run_installed(
        context.log, venv / "bin" / "python", venv, f"{cell.glue}-fat", site=site, glue=cell.glue
    )
    return [report]
