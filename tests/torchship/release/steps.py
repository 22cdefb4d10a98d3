"""Steps whose work is a function of the test, for runs that build nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchship.release.run.tasks import Context, Task


@dataclass(frozen=True, eq=False, kw_only=True)
class Step(Task):
    """A step that calls `act`; only `flag` decides whether an earlier result is reused."""

    act: Callable[[Context], Sequence[Path]]
    flag: object = None

    @property
    def own_fields(self) -> dict[str, object]:
        return {"flag": self.flag}

    def run(self, context: Context) -> Sequence[Path]:
        return self.act(context)


class Silent:
    """Hears of tasks and says nothing."""

    def started(self, task: Task) -> None: ...

    def finished(self, task: Task, outcome: object) -> None: ...
