"""Lists the cells, and shows what a run would do."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table

from release import FOREIGN, PLATFORM
from release.cells import Cell
from release.host import Host, host_cell, obstacle, toolchain
from release.paths import STAMPS
from release.planner import Plan
from release.schema import Matrix
from release.store import Store


def list_cells(cells: Sequence[Cell], host: Host, matrix: Matrix, console: Console) -> None:
    how = f"native, {host.compiler or 'no compiler'}"
    if FOREIGN:
        how = f"cross, {host.compiler or 'no compiler'}, run by {host.emulator or 'nothing'}"
    table = Table(title=f"cells of build_matrix.yaml for {PLATFORM} ({how})")
    for name in ("cell", "torch", "C++", "ABI", "kernels", "buildable here"):
        table.add_column(name, no_wrap=name != "buildable here", overflow="fold")
    for facts in map(partial(cell_facts, host=host, matrix=matrix), cells):
        name = f"{facts['cell']} (host)" if facts["fits_host"] else facts["cell"]
        name += " (optional)" if facts["optional"] else ""
        using = f"yes, {facts['toolchain']}" if facts["toolchain"] else "yes"
        verdict = using if facts["buildable"] else f"no: {facts['reason']}"
        kernels = ", ".join(facts["kernels"])
        row = (name, facts["torch"], str(facts["cxx"]), str(facts["abi"]), kernels, verdict)
        table.add_row(*row)
    console.print(table)


def cell_facts(cell: Cell, *, host: Host, matrix: Matrix) -> dict[str, Any]:
    reason = obstacle(cell, host, matrix)
    compiled_by = None if reason else toolchain(str(cell.variant.kernels), host, matrix)
    return {
        "cell": cell.name,
        "glue": cell.glue,
        "kernels": list(cell.kernels),
        "device": cell.device,
        "torch": cell.torch.release,
        "pythons": list(cell.torch.pythons),
        "cxx": cell.torch.cxx,
        "abi": cell.cxx11_abi,
        "optional": cell.optional,
        "buildable": reason is None,
        "reason": reason,
        "toolchain": str(compiled_by) if compiled_by else None,
        "fits_host": not FOREIGN and cell.name == host_cell(matrix, host).name,
    }


def json_list(cells: Sequence[Cell], host: Host, matrix: Matrix) -> str:
    facts = [cell_facts(cell, host=host, matrix=matrix) for cell in cells]
    compiler = str(host.compiler) if host.compiler else None
    return json.dumps({"compiler": compiler, "python": host.python_minor, "cells": facts}, indent=1)


def github(cells: Sequence[Cell], host: Host, matrix: Matrix) -> str:
    """The cells that can be built here, as the `matrix:` of a GitHub workflow, in one line."""
    wanted = ("cell", "glue", "device", "torch")
    facts = [cell_facts(cell, host=host, matrix=matrix) for cell in cells]
    include = [{name: cell[name] for name in wanted} for cell in facts if cell["buildable"]]
    return json.dumps({"include": include})


def show_plan(plan: Plan, skipped: Mapping[str, str], console: Console) -> None:
    """The tasks in order, and how many compilations the cells share."""
    store = Store(STAMPS)
    for task in plan.tasks.values():
        state = "made before" if store.read(task.name) else "to make"
        console.print(f"{task.name:44} {state:12} for {', '.join(task.cells)}", markup=False)
    for name, reason in skipped.items():
        console.print(f"skipped {name}: {reason}", markup=False)
    each = [own.binaries for own in plan.of.values()]
    compiled = {task for binaries in each for task in binaries}
    console.print(
        f"{len(plan.cells)} cells, {len(plan.tasks)} tasks; {len(compiled)} binaries are compiled "
        f"(without sharing: {sum(map(len, each))})"
    )
