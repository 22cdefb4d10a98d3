"""What there is to build, and what a run would do."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from release.cells import Cell
from release.host import Host, host_cell, obstacle
from release.paths import STAMPS
from release.planner import Plan
from release.schema import Matrix
from release.store import Store


def list_cells(cells: Sequence[Cell], host: Host, matrix: Matrix, console: Console) -> None:
    """A table of every cell and whether this machine can build it."""
    table = Table(title=f"cells of build_matrix.yaml on {host.compiler or 'no compiler'}")
    for name in ("cell", "torch", "C++", "ABI", "kernels", "buildable here"):
        table.add_column(name, no_wrap=name != "buildable here", overflow="fold")
    fits = host_cell(matrix, host).name
    for cell in cells:
        reason = obstacle(cell, host, matrix)
        name = f"{cell.name} (host)" if cell.name == fits else cell.name
        torch, kernels = cell.torch, ", ".join(cell.kernels)
        verdict = f"no: {reason}" if reason else "yes"
        table.add_row(name, torch.release, str(torch.cxx), str(cell.cxx11_abi), kernels, verdict)
    console.print(table)


def show_plan(plan: Plan, cells: Sequence[Cell], skipped: dict[str, str], console: Console) -> None:
    """The tasks in order, and how many compilations the cells share."""
    store = Store(STAMPS)
    for task in plan.tasks.values():
        state = "made before" if store.read(task.name) else "to make"
        console.print(f"{task.name:44} {state:12} for {', '.join(task.groups)}", markup=False)
    for name, reason in skipped.items():
        console.print(f"skipped {name}: {reason}", markup=False)
    compiled = [name for name in plan.tasks if name.split("/")[0] in ("glue", "kernels")]
    unshared = sum(1 + len(cell.kernels) for cell in cells)
    console.print(
        f"{len(cells)} cells, {len(plan.tasks)} tasks; {len(compiled)} binaries are compiled "
        f"(without sharing: {unshared})"
    )
