"""What a step is: a task that says when it is planned, and what the manifest says of it.

Each step of a cell is a class with a function `plan`, which adds the step to the plan and returns
it, or says why the cell lacks it and returns None. A plan has each step once, whoever asks for it:
what several cells share has one name.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from ..matrix.cells import Cell
from ..matrix.schema import Tool
from ..matrix.settings import Settings
from ..plan.plan import Plan
from ..run.manifest import Binary, Kind, Run
from ..run.tasks import Made, Task


@dataclass(frozen=True, kw_only=True)
class Part:
    """What the manifest says of a finished step.

    `wheel` and `conda` are the files of a cell, `files` those of a tool, `whole` a file of no
    single cell with its kind. `facts` is what only the step knows; every entry that the step
    serves keeps it under the step's name, and a merge keeps it, too.
    """

    wheel: Path | None = None
    conda: Path | None = None
    files: tuple[Path, ...] = ()
    whole: tuple[Path, Kind] | None = None
    runs: tuple[Run, ...] = ()
    binaries: Mapping[str, Binary] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


NOTHING = Part()


class Step(Task[Made]):
    """A task whose part of the manifest is its own."""

    #: The first word of the step's name, such as `wheel` of `wheel/stable210-cpu`.
    kind: ClassVar[str]

    def part(self, made: Made, settings: Settings) -> Part:
        """What the manifest says if the step was done, with these outputs."""
        return NOTHING

    def part_without(self, reason: str) -> Part:
        """What the manifest says if it was not done."""
        return NOTHING


class CellStep(Step[Made]):
    """A step that cells have."""

    @classmethod
    @abstractmethod
    def plan(cls, cell: Cell, plan: Plan) -> "CellStep[Made] | None":
        """The step of a cell in a plan; None if the cell has none, for the reason in the plan."""


class ToolStep(Step[Made]):
    """A step that tools have."""

    @classmethod
    @abstractmethod
    def plan(cls, tool: Tool, plan: Plan) -> "ToolStep[Made] | None":
        """The step of a tool in a plan; None if the tool has none."""
