"""What a run is to do: tasks by their names, and why a cell lacks a step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from ...builder.sources import build_inputs
from ..matrix.cells import Cell
from ..matrix.schema import Tool
from ..matrix.settings import Settings
from ..run.store import TORCHSHIP, commit, source_epoch, sources
from ..run.tasks import Task
from ..steps.pack.sources import package_sources
from .machine import Host

AnyTask = TypeVar("AnyTask", bound=Task[Any])


@dataclass(frozen=True)
class Inputs:
    """The files of the checkout that steps read."""

    settings: Settings

    @cached_property
    def csrc(self) -> tuple[Path, ...]:
        """What objects are compiled from."""
        repo = self.settings.repo
        return (
            *sources(repo, "csrc/**/*"),
            *sources(TORCHSHIP, "include/**/*"),
            *build_inputs(self.settings.project, repo / "csrc"),
        )

    @cached_property
    def epoch(self) -> int:
        """The date of the sources, in seconds since 1970."""
        return source_epoch(self.settings)

    @cached_property
    def commit(self) -> str:
        return commit(self.settings)

    @cached_property
    def package(self) -> tuple[Path, ...]:
        """What a distribution may hold."""
        return package_sources(self.settings.repo)

    @cached_property
    def recipe(self) -> tuple[Path, ...]:
        paths = sources(self.settings.repo, "recipe/*")
        return tuple(path for path in paths if not path.stem.startswith("variants"))


@dataclass
class Plan:
    """All tasks of a run, in an order in which they can run.

    Without a `channel`, they make a bootstrap channel. `carried` are thin wheels of other
    cells, which an earlier run made from the same sources. Without `pack`, nothing is
    packed or run. `tools` are packed beside the cells. `absent` has the reasons of steps that are
    not planned, by their names.
    """

    settings: Settings
    host: Host
    cells: Sequence[Cell] = ()
    channel: str | None = None
    carried: Mapping[str, Path] = field(default_factory=dict)
    pack: bool = True
    tools: Sequence[Tool] = ()
    tasks: dict[str, Task[Any]] = field(default_factory=dict, init=False)
    absent: dict[str, str] = field(default_factory=dict, init=False)

    @cached_property
    def inputs(self) -> Inputs:
        return Inputs(self.settings)

    def add(self, task: AnyTask, subject: Cell | Tool | None = None) -> AnyTask:
        """Adds a task, or finds the same one; notes that it serves the cell or the tool.

        Raises ValueError if the plan has another task of this name.
        """
        planned = self.tasks.setdefault(task.name, task)
        if not isinstance(planned, type(task)):
            raise ValueError(f"{task.name}: got {type(task)}, the plan has {type(planned)}")
        if differing := planned.differs(task):
            raise ValueError(
                f"{task.name}: is in the plan with another {', '.join(differing)}; what differs "
                "needs another name"
            )
        if subject and subject.name not in planned.cells:
            planned.cells.append(subject.name)
        return planned

    def leave_out(self, step: str, subject: Cell | Tool, reason: str) -> None:
        """Notes why a cell or a tool lacks a step."""
        self.absent[f"{step}/{subject.name}"] = reason
