"""Rehearses the workflows of a repository: a clone, each occasion in turn, and what came of it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .forge import Forge
from .occasions import Occasion, occasions_of
from .runner import Report, rehearse
from .source import Source
from .workflow import Workflow, read_workflow

WORKFLOWS = Path(".github", "workflows")


@dataclass(frozen=True)
class Rehearsed:
    """What came of a workflow on an occasion."""

    workflow: Workflow
    occasion: Occasion
    report: Report
    seconds: float


@dataclass
class Theatre:
    """A repository that is rehearsed in a new folder, with a forge that keeps what jobs make."""

    source: Source
    folder: Path
    _played: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.forge("").make()

    def forge(self, ref: str) -> Forge:
        return Forge(self.folder / "forge", ref)

    def workflows(self) -> list[Workflow]:
        """The workflows; those that another one's release starts come last."""
        paths = sorted((self.source.root / WORKFLOWS).glob("*.y*ml"))
        return sorted(map(read_workflow, paths), key=lambda workflow: "release" in workflow.events)

    def play_all(self, files: Collection[str] = ()) -> Iterator[Rehearsed]:
        """Each of these workflows on each of its occasions; without `files`, every workflow."""
        for workflow in self.workflows():
            if not files or workflow.file in files:
                for occasion in occasions_of(workflow, f"v{self.source.version}"):
                    yield self.play(workflow, occasion)

    def play(self, workflow: Workflow, occasion: Occasion) -> Rehearsed:
        """One run of a workflow, which finds no artefact of an earlier one."""
        begin = time.monotonic()
        forge = self.forge(occasion.ref)
        shutil.rmtree(forge.artefacts)
        forge.artefacts.mkdir()
        machines = self.folder / f"machines-{self._played}"
        self._played += 1
        report = rehearse(
            workflow, occasion, source=self.source.root, forge=forge, machines=machines
        )
        if report.is_right:
            shutil.rmtree(machines, ignore_errors=True)
        return Rehearsed(workflow, occasion, report, time.monotonic() - begin)
