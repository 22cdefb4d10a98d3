"""Steps whose work is a function of the test, for runs that build nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchship.release.matrix.settings import Settings
from torchship.release.run.tasks import AnyTask, Context, FileTask
from torchship.release.steps import step
from torchship.release.steps.step import NOTHING, Part
from torchship.release.steps.verify.runs import RunStep


@dataclass(frozen=True, eq=False, kw_only=True)
class Step(FileTask):
    """A step that calls `act`; only `flag` decides whether an earlier result is reused."""

    act: Callable[[Context], Sequence[Path]]
    flag: object = None

    @property
    def own_fields(self) -> dict[str, object]:
        return {"flag": self.flag}

    def run(self, context: Context) -> Sequence[Path]:
        return self.act(context)


@dataclass(frozen=True, eq=False, kw_only=True)
class PlannedStep(Step, step.Step[Path]):
    """A step of which the manifest says what `says` makes of its output."""

    kind = "fake"
    says: Callable[[Path], Part] = lambda _: NOTHING

    def part(self, made: Path, settings: Settings) -> Part:
        return self.says(made)


@dataclass(frozen=True, eq=False, kw_only=True)
class Run(Step, RunStep[Path]):
    """A step whose output is the report of a smoke test."""

    kind = "venv"
    run_kind = "venv"

    @classmethod
    def plan(cls, *_: object) -> None:
        """It is added by hand."""

    def part(self, made: Path, settings: Settings) -> Part:
        return self.part_of_report(made, settings)


class Silent:
    """Hears of tasks and says nothing."""

    def started(self, task: AnyTask) -> None: ...

    def finished(self, task: AnyTask, outcome: object) -> None: ...
