"""The tasks of a cell's conda package."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from release import REPO, conda_steps, pack_steps, verify_steps
from release.cells import Cell
from release.paths import ENVS, LINKED
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


def linked_channel(
    plan: Plan, cell: Cell, env: str, package: str, groups: tuple[str, ...]
) -> tuple[str, tuple[str, ...]]:
    """The URL of a channel with a pytorch for the cell's package, and what it lasts on.

    Stable glue is compiled against the bootstrap channel's torch, which may have no CUDA or another
    one. A package with CUDA kernels is installed beside a torch of their major, which is fetched
    once there is a package to install.
    """
    if cell.stable and cell.cuda_major:
        env = plan.stable_torch(cell, package, groups) or env
    name = env.split("/")[1]
    folder = LINKED / name
    python = plan.host.python_minor
    task = Task(
        f"linked/{name}",
        partial(conda_steps.link, env=env, folder=folder, python=python),
        needs=(env,),
        inputs=(TOOL / "conda_linked.py", TOOL / "conda_stubs.py"),
        facts={**plan.python_facts(), "where": str(ENVS / name)},
        groups=groups,
    )
    return folder.as_uri(), (plan.add(task), env)


def add(
    plan: Plan,
    cell: Cell,
    env: str,
    binaries: tuple[str, ...],
    checked: str,
    groups: tuple[str, ...],
) -> None:
    """Package, its tests, and a prefix in which it runs.

    Args:
        plan: gets the tasks.
        cell: what is packed.
        env: the task that made the torch which its glue was compiled against.
        binaries: the tasks that made what is in it.
        checked: the task that audited them.
        groups: the cells for whose sake it is done.
    """
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
    channels = (channel,)
    # The bootstrap channel's own pytorch is the one that stable glue is built with.
    if base and not (cell.stable and cell.cuda_major is None):
        linked, more = linked_channel(plan, cell, env, made, groups)
        channels, base = (linked, channel), (*more, *base)
    tests = Task(
        f"conda-test/{cell.name}",
        partial(conda_steps.package_tests, cell=cell, binaries=binaries, channels=channels),
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
            channels=channels,
            python=plan.host.python_minor,
        ),
        needs=(made, *base),
        inputs=(*CONDA_CODE, TOOL / "conda_stubs.py", verify_steps.SMOKE),
        facts=plan.python_facts(),
        groups=groups,
    )
    plan.add(prefix)
