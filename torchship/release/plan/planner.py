"""Plans a run: the steps of each cell and tool, in the order of a release.

A step says itself when it is planned and what it needs, so a further one is its class in `steps`
and a line in a list here. A step plans what it needs: with `Audit` come the objects that it checks,
and with them their toolkits and their torch. Who asks first adds a step, the others get that one.
"""

from typing import Any

from ..matrix.schema import Tool
from ..run.tasks import Task
from ..steps.compile.audit import Audit
from ..steps.conda.packages import BuildPackage, InstallPackage, TestPackage
from ..steps.pack.distributions import JoinWheels, PackedCell, PackWheel
from ..steps.step import CellStep, ToolStep
from ..steps.tools.packing import (
    AuditTool,
    BuildNoarch,
    InstallNoarch,
    InstallTool,
    PackTool,
    PackZipapp,
    RunZipapp,
)
from ..steps.verify.runs import InstallWheel, RunExample, RunFatWheel
from .plan import Plan

#: What every cell gets, with what is compiled for it; and what it gets if packages are made.
COMPILING: tuple[type[CellStep[Any]], ...] = (Audit,)
PACKING: tuple[type[CellStep[Any]], ...] = (
    PackWheel,
    InstallWheel,
    RunExample,
    BuildPackage,
    TestPackage,
    InstallPackage,
)
#: The runs of a thin wheel that decide whether its binaries go into the fat wheel.
DECIDING: tuple[type[CellStep[Any]], ...] = (InstallWheel, RunExample)
#: What a cell gets once there is a fat wheel.
AFTER_THE_FAT_WHEEL: tuple[type[CellStep[Any]], ...] = (RunFatWheel,)
OF_TOOLS: tuple[type[ToolStep[Any]], ...] = (
    PackTool,
    AuditTool,
    PackZipapp,
    RunZipapp,
    BuildNoarch,
)


def fill(plan: Plan) -> Plan:
    """Adds the steps of a new plan's cells and tools; returns the plan."""
    for cell in plan.cells:
        for step in (*COMPILING, *(PACKING if plan.pack else ())):
            step.plan(cell, plan)
    if plan.cells and plan.pack:
        _add_fat_wheel(plan)
    for tool in plan.tools if plan.pack else ():
        _add_tool(tool, plan)
    return plan


def _add_fat_wheel(plan: Plan) -> None:
    packed = []
    for cell in plan.cells:
        runs: list[Task[Any] | None] = [step.plan(cell, plan) for step in DECIDING]
        packed.append(
            PackedCell(
                name=cell.name,
                wheel=PackWheel.plan(cell, plan),
                runs=tuple(run for run in runs if run),
            )
        )
    JoinWheels.plan(packed, plan)
    for cell in plan.cells:
        for step in AFTER_THE_FAT_WHEEL:
            step.plan(cell, plan)


def _add_tool(tool: Tool, plan: Plan) -> None:
    for step in OF_TOOLS:
        step.plan(tool, plan)
    for extra in ("", *tool.extras):
        InstallTool.plan(tool, extra, plan)
        InstallNoarch.plan(tool, extra, plan)
