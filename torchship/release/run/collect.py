"""Makes the manifest from the outcomes of a run."""

import hashlib
import os
import platform
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, NamedTuple

from ...builder.sources import source_date
from ...judge.machine.driver_probe import probe_devices
from ..matrix.cells import Cell, all_cells
from ..matrix.schema import Tool
from ..matrix.settings import Settings
from ..paths import write_atomically
from ..plan.machine import Host
from ..plan.plan import Plan
from ..steps.step import NOTHING, File, Part, Step
from .manifest import (
    Artefact,
    Binary,
    CellEntry,
    HostFacts,
    Manifest,
    Run,
    State,
    ToolEntry,
    wrong_files,
)
from .shell import redacted
from .store import commit, digest
from .tasks import GOOD, Outcome, Status, Task

NO_GPU = "its CUDA kernels were compiled and checked, but not run, because no run had a GPU"


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A finished run, with the cells and the tools that it kept from the `previous` run.

    `sources` identifies the checkout before the run, and `changed` is what changed in it
    meanwhile; it was `clean` if it had no changes that are not committed.
    """

    plan: Plan
    outcomes: Mapping[str, Outcome]
    skipped: Mapping[str, str]
    kept: Mapping[str, CellEntry]
    kept_tools: Mapping[str, ToolEntry]
    previous: Manifest | None
    clean: bool
    changed: str
    sources: str
    shard: str | None
    seconds: float

    @property
    def settings(self) -> Settings:
        return self.plan.settings

    @cached_property
    def parts(self) -> dict[str, Part]:
        """What the manifest says of each step, by the steps' names."""
        return {name: self._part(task) for name, task in self.plan.tasks.items()}

    def _part(self, task: Task[Any]) -> Part:
        if not isinstance(task, Step) or task.name not in self.outcomes:
            return NOTHING
        outcome = self.outcomes[task.name]
        if outcome.status not in GOOD:
            return task.part_without(outcome.reason)
        return task.part(task.made(outcome.outputs), self.settings)

    def parts_of(self, subject: str) -> dict[str, Part]:
        """The parts of the steps that serve a cell or a tool, by the steps' names."""
        return {task.name: self.parts[task.name] for task in self.plan.tasks_of(subject)}

    @property
    def fat(self) -> File | None:
        """The fat wheel of this run."""
        files = (file for part in self.parts.values() for file in part.files)
        return next((file for file in files if file.kind == "fat"), None)


def collect(finished: Finished) -> Manifest:
    """The manifest of a run."""
    settings = finished.settings
    host = host_facts(finished.plan.host)
    host_key = hashlib.sha256(host.model_dump_json().encode()).hexdigest()[:8]
    every_cell = all_cells(settings.matrix)
    names = [cell.name for cell in every_cell]
    cells = _cells(finished, host_key)
    tools = _tools(finished, host_key)
    artefacts = _artefacts(finished, cells, tools)
    channel = finished.plan.channel
    return Manifest(
        package=settings.project.distribution,
        version=settings.project.version,
        commit=commit(settings),
        clean=finished.clean,
        changed=finished.changed,
        sources=finished.sources,
        source_date=source_date(settings.project, os.environ),
        base_channel=redacted(channel) if channel else None,
        shard=finished.shard,
        made=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        seconds=finished.seconds,
        total=len(every_cell),
        missing=missing(names, cells, artefacts),
        optional=[cell.name for cell in every_cell if cell.optional],
        cells=cells,
        tools=tools,
        binaries=_binaries(finished),
        # The sources of what a changed checkout made are not known.
        artefacts=[] if finished.changed else artefacts,
        facts=_facts(finished),
        hosts={host_key: host, **_earlier_hosts(finished, [*cells.values(), *tools.values()])},
    )


def _cells(finished: Finished, host: str) -> dict[str, CellEntry]:
    """The entries of this run's cells, and of those that it kept, in the order of the matrix."""
    every_cell = all_cells(finished.settings.matrix)
    cells = {
        cell.name: CellEntry(
            state="skipped",
            reason=finished.skipped[cell.name],
            torch=cell.torch.release,
            host=host,
        )
        for cell in every_cell
        if cell.name in finished.skipped
    }
    fat = finished.fat
    for name, entry in finished.kept.items():
        # The fat wheel leaves out what does not agree with the cells of this run.
        if fat is None or name in fat.cells:
            cells[name] = entry
    cells |= {cell.name: _entry(cell, finished, host) for cell in finished.plan.cells}
    return {cell.name: cells[cell.name] for cell in every_cell if cell.name in cells}


def _tools(finished: Finished, host: str) -> dict[str, ToolEntry]:
    """The entries of this run's tools, and of those that it kept, in the order of the matrix."""
    entries = {
        **finished.kept_tools,
        **{tool.name: _tool_entry(tool, finished, host) for tool in finished.plan.tools},
    }
    return {
        tool.name: entries[tool.name]
        for tool in finished.settings.matrix.tools
        if tool.name in entries
    }


def _tool_entry(tool: Tool, finished: Finished, host: str) -> ToolEntry:
    """The manifest's entry of a tool; also joins the logs of the tool's steps in its log."""
    steps = _Steps.of(tool.name, finished)
    parts = finished.parts_of(tool.name)
    dist = finished.settings.dist
    files = [
        file.path.relative_to(dist).as_posix() for part in parts.values() for file in part.files
    ]
    state = _state(steps.unfinished, is_packed=bool(files))
    return ToolEntry(
        state=state,
        reason=steps.reason,
        files=[] if state == "failed" else files,  # nobody gets what a failed tool packed
        steps=steps.seconds,
        log=steps.write_log(tool.name, finished.settings),
        host=host,
        facts={step: dict(part.facts) for step, part in parts.items() if part.facts},
    )


def _earlier_hosts(
    finished: Finished, entries: Sequence[CellEntry | ToolEntry]
) -> dict[str, HostFacts]:
    """The hosts of earlier runs that made what is still there."""
    hosts = finished.previous.hosts if finished.previous else {}
    used = {entry.host for entry in entries}
    return {key: host for key, host in hosts.items() if key in used}


def missing(
    order: Sequence[str], cells: Mapping[str, CellEntry], artefacts: Iterable[Artefact]
) -> dict[str, str]:
    """The reasons why the fat wheel among `artefacts` lacks cells of `order`, by their names."""
    held = {name for artefact in artefacts if artefact.kind == "fat" for name in artefact.cells}
    reasons: dict[str, str] = {}
    for name in order:
        if name not in cells:
            reasons[name] = "not selected"
        elif name not in held:
            reasons[name] = cells[name].reason or "the fat wheel was not made"
    return reasons


def _artefacts(
    finished: Finished, cells: Mapping[str, CellEntry], tools: Mapping[str, ToolEntry]
) -> list[Artefact]:
    """What users get of this run, and what it kept of the run before it."""
    plan = finished.plan
    failed = [tool.name for tool in plan.tools if tools[tool.name].state == "failed"]
    # Nobody gets what a failed tool packed.
    lost = {task.name for tool in failed for task in plan.tasks_of(tool)}
    files = (f for name, part in finished.parts.items() if name not in lost for f in part.files)
    kept = {artefact.path: artefact for artefact in _kept(finished, cells)}
    made = {artefact.path: artefact for artefact in describe(files, finished.settings.dist)}
    return in_order({**kept, **made}.values())


def _kept(finished: Finished, cells: Mapping[str, CellEntry]) -> Iterator[Artefact]:
    """The artefacts of the previous run that are still there, and are those of this run, too.

    A run that has cells makes what serves all of them; one for tools alone keeps it.
    """
    previous = finished.previous
    if previous is None or previous.sources != finished.sources:
        return
    of_tools = {path for tool in previous.tools.values() for path in tool.files}
    of_kept_tools = {path for tool in finished.kept_tools.values() for path in tool.files}
    kept_cells = finished.kept.keys() & cells.keys()
    for artefact in previous.artefacts:
        serves_all = artefact.kind == "fat" or not artefact.cells
        if artefact.path in of_tools:
            is_kept = artefact.path in of_kept_tools
        else:
            is_kept = {*artefact.cells} <= kept_cells and not (serves_all and finished.plan.cells)
        if is_kept and not wrong_files([artefact], finished.settings.dist):
            yield artefact


def describe(files: Iterable[File], dist: Path) -> list[Artefact]:
    """The manifest's entries of files in the folder `dist`."""
    return [
        Artefact(
            path=file.path.relative_to(dist).as_posix(),
            kind=file.kind,
            sha256=digest(file.path),
            size=file.path.stat().st_size,
            goes_to=list(file.goes_to),
            cells=list(file.cells),
        )
        for file in files
    ]


def in_order(artefacts: Iterable[Artefact]) -> list[Artefact]:
    """The artefacts in one order, however many runs have made them."""
    return sorted(artefacts, key=lambda artefact: artefact.path)


def _entry(cell: Cell, finished: Finished, host: str) -> CellEntry:
    """The manifest's entry of a cell; also joins the logs of the cell's steps in its log."""
    steps = _Steps.of(cell.name, finished)
    parts = finished.parts_of(cell.name)
    dist = finished.settings.dist
    paths = {
        file.kind: file.path.relative_to(dist).as_posix()
        for part in parts.values()
        for file in part.files
    }
    wheel = paths.get("thin")
    return CellEntry(
        state=_state(steps.unfinished, is_packed=wheel is not None),
        reason=steps.reason,
        torch=cell.torch.release,
        binaries=cell.files,
        wheel=wheel,
        conda=paths.get("conda"),
        runs=list(_runs(cell, parts)),
        steps=steps.seconds,
        log=steps.write_log(cell.name, finished.settings),
        host=host,
        facts={step: dict(part.facts) for step, part in parts.items() if part.facts},
    )


class _Steps(NamedTuple):
    """How the steps of one cell, or of one tool, ended."""

    outcomes: Sequence[Outcome]

    @classmethod
    def of(cls, name: str, finished: Finished) -> "_Steps":
        return cls([finished.outcomes[task.name] for task in finished.plan.tasks_of(name)])

    @property
    def unfinished(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.status not in GOOD]

    @property
    def reason(self) -> str:
        """Why steps are unfinished, a line for each cause; "" if none is."""
        unfinished = self.unfinished
        causes = [outcome for outcome in unfinished if not outcome.blocked] or unfinished[:1]
        return "\n".join(f"{outcome.task}: {outcome.reason}" for outcome in causes)

    @property
    def seconds(self) -> dict[str, float]:
        """The durations of the finished steps."""
        return {o.task: round(o.seconds, 2) for o in self.outcomes if o.status in GOOD}

    def write_log(self, name: str, settings: Settings) -> str:
        """Joins the logs of the steps; returns the path of the log in `dist`."""
        log = settings.cell_logs / f"{name}.log"
        write_atomically(log, "".join(map(log_of, self.outcomes)))
        return log.relative_to(settings.dist).as_posix()


def _state(unfinished: Sequence[Outcome], *, is_packed: bool) -> State:
    """The state of a cell with these steps that are not done."""
    if not unfinished:
        return "done"
    if any(outcome.status is Status.FAILED for outcome in unfinished):
        return "failed"
    return "partial" if is_packed else "skipped"


def log_of(outcome: Outcome) -> str:
    """The part of a cell's log for one step."""
    lines = [f"=== {outcome.task}: {outcome.status.value}, {outcome.seconds:.1f} s"]
    if outcome.reason:
        lines.append(outcome.reason)
    if outcome.log is not None and outcome.log.exists():
        lines.append(outcome.log.read_text(encoding="utf-8", errors="replace").rstrip())
    return "\n".join(lines) + "\n\n"


def _runs(cell: Cell, parts: Mapping[str, Part]) -> Iterator[Run]:
    """The runs of a cell, in the order of its steps."""
    runs = [run for part in parts.values() for run in part.runs]
    yield from runs
    used_gpu = any("cuda" in run.facts.get("devices", []) for run in runs)
    if cell.cuda_major is not None and not used_gpu:
        yield Run(kind="gpu", ran=False, why_not=NO_GPU)


def _binaries(finished: Finished) -> dict[str, Binary]:
    """The binaries of this run, and those of kept cells from the previous run, by name."""
    kept = {name for cell in finished.kept.values() for name in cell.binaries}
    earlier = finished.previous.binaries if finished.previous else {}
    binaries = {name: binary for name, binary in earlier.items() if name in kept}
    for part in finished.parts.values():
        binaries |= part.binaries
    return dict(sorted(binaries.items()))


def _facts(finished: Finished) -> dict[str, dict[str, Any]]:
    """What steps that serve no single cell or tool know, by the steps' names."""
    whole = [task.name for task in finished.plan.tasks.values() if not task.cells]
    return {name: dict(finished.parts[name].facts) for name in whole if finished.parts[name].facts}


def host_facts(host: Host) -> HostFacts:
    """The facts about this machine, without its name."""
    libc = " ".join(platform.libc_ver())
    return HostFacts(
        system=f"{platform.system()} {platform.release()} {platform.machine()}, {libc}"
        + (f"; runs under {host.emulator}" if host.emulator else ""),
        image=os.environ.get("RELEASE_IMAGE", ""),
        python=host.python_minor,
        compiler=str(host.compiler),
        processors=os.cpu_count() or 1,
        gpus=[device.name for device in probe_devices()] if host.driver else [],
        tools=_installed_tools(),
    )


@cache
def _installed_tools() -> dict[str, str]:
    """The versions of what is installed beside the release tool, by name."""
    return dict(sorted({tool.name: tool.version for tool in distributions()}.items()))
