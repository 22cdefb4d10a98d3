"""The tasks of a cell's conda package."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from release import REPO, conda_steps, pack_steps, verify_steps
from release.cells import Cell
from release.store import sources
from release.tasks import Task
from release.variants import VARIANTS_FILE

if TYPE_CHECKING:
    from release.planner import Plan

TOOL = REPO / "scripts" / "release"
RECIPE = tuple(path for path in sources(REPO, "recipe/*") if path != VARIANTS_FILE)
BOOTSTRAP_CODE = (TOOL / "bootstrap.py", TOOL / "rattler_tools.py")
CONDA_CODE = (TOOL / "conda_worker.py", TOOL / "rattler_tools.py", TOOL / "conda_solver.py")


def base_channel(plan: Plan, groups: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The base channel's URL and the tasks that make it; one channel for all cells."""
    if plan.options.channel:
        return plan.options.channel, ()
    stable = plan.matrix.torch[plan.matrix.stable.built_with].release
    torch = plan.host.torch
    if torch and torch.is_release and torch.version.startswith(stable):
        stable = torch.version.split("+")[0]
    wheelhouse = Task(
        "wheelhouse",
        partial(conda_steps.download, release=stable),
        facts={**plan.python_facts(), "torch": stable},
        groups=groups,
    )
    channel = Task(
        "bootstrap-channel",
        partial(conda_steps.bootstrap, python=plan.host.python),
        needs=(plan.add(wheelhouse),),
        inputs=BOOTSTRAP_CODE,
        facts=plan.python_facts(),
        groups=groups,
    )
    return conda_steps.BOOTSTRAP.as_uri(), (plan.add(channel),)


def add(
    plan: Plan, cell: Cell, binaries: tuple[str, ...], checked: str, groups: tuple[str, ...]
) -> None:
    """Package, its tests, and a prefix in which it runs."""
    channel, base = base_channel(plan, groups)
    package = Task(
        f"conda/{cell.name}",
        partial(
            conda_steps.package,
            cell=cell,
            matrix=plan.matrix,
            binaries=binaries,
            channel=channel,
        ),
        needs=(*base, checked, *binaries),
        inputs=(*RECIPE, *CONDA_CODE, TOOL / "variants.py", *pack_steps.package_sources()),
        facts={"channel": channel},
        groups=groups,
    )
    made = plan.add(package)
    tests = Task(
        f"conda-test/{cell.name}",
        partial(conda_steps.package_tests, cell=cell, binaries=binaries, channel=channel),
        needs=(made, *base, *binaries),
        inputs=CONDA_CODE,
        groups=groups,
    )
    plan.add(tests)
    prefix = Task(
        f"prefix/{cell.name}",
        partial(
            conda_steps.prefix,
            cell=cell,
            matrix=plan.matrix,
            channel=channel,
            python=plan.host.python_minor,
        ),
        needs=(made, *base),
        inputs=(*CONDA_CODE, TOOL / "conda_stubs.py", verify_steps.SMOKE),
        facts=plan.python_facts(),
        groups=groups,
    )
    plan.add(prefix)
