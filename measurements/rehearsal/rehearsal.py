"""A whole rehearsal: workflows on their occasions, with a world made for each."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from measurements.release_accidents import REPO

from . import occasions
from .forge import REPOSITORY, Forge, Occasion
from .prebuilt import Prebuilt, load_platforms
from .runner import Report, rehearse
from .stand_ins import Fault, World
from .workflow import Workflow, WorkflowError, read_workflow

WORKFLOWS = REPO / ".github" / "workflows"


@dataclass(frozen=True, kw_only=True)
class Rehearsed:
    """What came of a workflow on an occasion; `wrong` has a sentence for each fault."""

    occasion: Occasion
    report: Report
    wrong: Sequence[str]


@dataclass
class Theatre:
    """Where workflows are rehearsed: prebuilt artefacts, made once, and a folder."""

    folder: Path
    repo: Path = REPO
    #: The real cyclonedx-py; None if a stand-in is to list the components.
    cyclonedx: Path | None = None
    prebuilt: Prebuilt = field(init=False)
    _played: int = 0
    _made: int = 0
    _released: Forge | None = None

    def __post_init__(self) -> None:
        self.prebuilt = Prebuilt(self.folder / "prebuilt", load_platforms(self.repo))

    @property
    def tag(self) -> str:
        version = self.prebuilt.settings["linux-x86_64"].project.version
        return f"v{version}"

    @property
    def occasions(self) -> list[Occasion]:
        return occasions.occasions(self.tag)

    def rehearse(self, workflow: Workflow, occasion: Occasion) -> Rehearsed:
        """Rehearses a workflow on an occasion, in the world that it would find then.

        Raises WorkflowError for a workflow that GitHub would not start.
        """
        if occasion.file == "publish.yml":
            if self._released is None:
                self._released = self._release()
            forge = replace(
                self._released,
                index={},
                artefacts=dict(self._released.artefacts),
                kept_days=dict(self._released.kept_days),
            )
        else:
            forge = self.make_forge()
        rehearsed = self.play(workflow, occasion, forge)
        if self._released is None and self._is_release(workflow, rehearsed):
            self._released = forge
        elif occasion.file != "publish.yml":
            shutil.rmtree(forge.folder)
        return rehearsed

    def _is_release(self, workflow: Workflow, rehearsed: Rehearsed) -> bool:
        """Whether the true workflow has made a release of the tag, with nothing missing."""
        occasion = rehearsed.occasion
        is_plain = bool(occasion.tag) and not occasion.failing and not rehearsed.wrong
        return is_plain and workflow == read_workflow(WORKFLOWS / "release.yml")

    def play(
        self, workflow: Workflow, occasion: Occasion, forge: Forge, fault: Fault | None = None
    ) -> Rehearsed:
        """Rehearses a workflow on an occasion, in this state of the world, which it changes."""
        machines = forge.folder / f"machines-{self._played}"
        self._played += 1
        world = World(
            repo=self.repo,
            forge=forge,
            occasion=occasion,
            prebuilt=self.prebuilt,
            fault=fault,
            cyclonedx=self.cyclonedx,
        )
        report = rehearse(workflow, world, machines)
        wrong = occasions.look_at(occasion, report, forge)
        shutil.rmtree(machines, ignore_errors=True)
        return Rehearsed(occasion=occasion, report=report, wrong=wrong)

    def build_really(self, workflow: Workflow, cell: str) -> tuple[Rehearsed, Forge]:
        """Runs a workflow that builds a cell with the real release tool; takes minutes."""
        forge = self.make_forge()
        world = World(
            repo=self.repo,
            forge=forge,
            occasion=Occasion(
                title="a cell", file=workflow.file, event="pull_request", ref=occasions.MAIN
            ),
            prebuilt=self.prebuilt,
            real_cell=cell,
        )
        report = rehearse(workflow, world, forge.folder / "machines")
        rehearsed = Rehearsed(occasion=world.occasion, report=report, wrong=report.problems)
        return rehearsed, forge

    def make_forge(self) -> Forge:
        """A world in which nothing has been released, and the site shows earlier versions."""
        folder = self.folder / "worlds" / str(self._made)
        folder.mkdir(parents=True)
        self._made += 1
        forge = Forge(
            folder=folder,
            settings=self.prebuilt.settings,
            version=self.tag.removeprefix("v"),
            commit=self.prebuilt.commit,
            server=folder / "server",
        )
        _make_pages(forge.server / REPOSITORY, folder / "pages")
        return forge

    def _release(self) -> Forge:
        """A world in which the tag was released by the workflow as it is."""
        forge = self.make_forge()
        workflow = read_workflow(WORKFLOWS / "release.yml")
        ref = f"refs/tags/{self.tag}"
        release = Occasion(title="a release", file="release.yml", event="push", ref=ref)
        rehearsed = self.play(workflow, release, forge)
        if rehearsed.wrong:
            raise WorkflowError(f"release.yml makes no release: {rehearsed.wrong[0]}")
        return forge


def read_workflows() -> dict[str, Workflow]:
    """All workflows of this repository, by the names of their files."""
    return {path.name: read_workflow(path) for path in sorted(WORKFLOWS.glob("*.yml"))}


def _make_pages(repository: Path, scratch: Path) -> None:
    """A repository whose branch gh-pages shows the versions that were there before."""
    for version in occasions.SHOWN_BEFORE:
        for name in ("index.html", "start/index.html"):
            page = scratch / version / name
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(f"{name} of {version}")
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    for command in (
        ["init", "--quiet", "--bare", "--initial-branch=gh-pages", str(repository)],
        ["init", "--quiet", "--initial-branch=gh-pages", str(scratch)],
        ["-C", str(scratch), "add", "--all"],
        ["-C", str(scratch), *identity, "commit", "--quiet", "--message", "Earlier versions"],
        ["-C", str(scratch), "push", "--quiet", str(repository), "gh-pages"],
    ):
        subprocess.run(["git", *command], check=True)
