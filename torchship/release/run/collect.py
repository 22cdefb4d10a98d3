"""Makes the manifest from the outcomes of a run."""

import hashlib
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
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
from ..steps.pack.distributions import agreeing
from ..steps.step import NOTHING, Part, Step
from .manifest import Artefact, Binary, CellEntry, HostFacts, Kind, Manifest, Run, State, ToolEntry
from .shell import redacted
from .store import commit, digest
from .tasks import GOOD, Outcome, Status, Task

NO_GPU = "its CUDA kernels were compiled and checked, but not run, because no run had a GPU"
# What a file of a tool is.
TOOL_KINDS: dict[str, Kind] = {".whl": "pure", ".conda": "noarch", ".pyz": "zipapp"}


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
        tasks = [task for task in self.plan.tasks.values() if subject in task.cells]
        return {task.name: self.parts[task.name] for task in tasks}

    def whole(self, kind: Kind) -> list[Path]:
        """The files of a kind that belong to no single cell."""
        wholes = [part.whole for part in self.parts.values() if part.whole]
        return [path for path, own_kind in wholes if own_kind == kind]


def collect(finished: Finished) -> Manifest:
    """The manifest of a run."""
    settings = finished.settings
    host = host_facts(finished.plan.host)
    host_key = hashlib.sha256(host.model_dump_json().encode()).hexdigest()[:8]
    every_cell = all_cells(settings.matrix)
    names = [cell.name for cell in every_cell]
    cells = _cells(finished, host_key)
    tools = _tools(finished, host_key)
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
        missing=missing(names, cells),
        optional=[cell.name for cell in every_cell if cell.optional],
        cells=cells,
        tools=tools,
        binaries=_binaries(finished),
        artefacts=_artefacts_of(finished, cells, tools),
        facts=_facts(finished),
        hosts={host_key: host, **_earlier_hosts(finished, [*cells.values(), *tools.values()])},
    )


def _cells(finished: Finished, host: str) -> dict[str, CellEntry]:
    """The entries of this run's cells, and of those that it kept, in the order of the matrix."""
    every_cell = all_cells(finished.settings.matrix)
    wheels = {
        name: finished.settings.dist / str(entry.wheel) for name, entry in finished.kept.items()
    }
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
    cells |= {name: finished.kept[name] for name in agreeing(wheels, finished.whole("fat"))}
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
    files = [path.relative_to(dist).as_posix() for part in parts.values() for path in part.files]
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


def missing(order: Sequence[str], cells: Mapping[str, CellEntry]) -> dict[str, str]:
    """The reasons why the fat wheel lacks cells of `order`, by the cells' names."""
    reasons: dict[str, str] = {}
    for name in order:
        if name not in cells:
            reasons[name] = "not selected"
        elif not cells[name].packed:
            reasons[name] = cells[name].reason or "not built"
    return reasons


def _artefacts_of(
    finished: Finished, cells: Mapping[str, CellEntry], tools: Mapping[str, ToolEntry]
) -> list[Artefact]:
    """The artefacts of a run; none if the checkout changed, as their sources are not known."""
    if finished.changed:
        return []
    return artefacts(
        cells,
        finished.settings.dist,
        sdists=finished.whole("sdist"),
        fat_wheels=finished.whole("fat"),
        tools=tools,
    )


def artefacts(
    cells: Mapping[str, CellEntry],
    dist: Path,
    *,
    sdists: Sequence[Path],
    fat_wheels: Sequence[Path],
    tools: Mapping[str, ToolEntry],
) -> list[Artefact]:
    """The artefacts in the folder `dist`, without conda packages that somebody deleted after an
    earlier run.
    """
    packed = sorted(name for name, cell in cells.items() if cell.packed)
    result = [_artefact(path, dist, "sdist", []) for path in sdists]
    result += [_artefact(path, dist, "fat", packed) for path in fat_wheels]
    for name, cell in cells.items():
        if cell.wheel:
            result.append(_artefact(dist / cell.wheel, dist, "thin", [name]))
        if cell.conda and (dist / cell.conda).is_file():
            result.append(_artefact(dist / cell.conda, dist, "conda", [name]))
    for tool in tools.values():
        paths = [dist / name for name in tool.files if (dist / name).is_file()]
        result += [_artefact(path, dist, TOOL_KINDS[path.suffix], []) for path in paths]
    return result


def _artefact(path: Path, dist: Path, kind: Kind, cells: list[str]) -> Artefact:
    return Artefact(
        path=path.relative_to(dist).as_posix(),
        kind=kind,
        sha256=digest(path),
        size=path.stat().st_size,
        cells=cells,
    )


def _entry(cell: Cell, finished: Finished, host: str) -> CellEntry:
    """The manifest's entry of a cell; also joins the logs of the cell's steps in its log."""
    steps = _Steps.of(cell.name, finished)
    parts = finished.parts_of(cell.name)
    dist = finished.settings.dist
    wheels = [part.wheel.relative_to(dist).as_posix() for part in parts.values() if part.wheel]
    packages = [part.conda.relative_to(dist).as_posix() for part in parts.values() if part.conda]
    wheel = next(iter(wheels), None)
    return CellEntry(
        state=_state(steps.unfinished, is_packed=wheel is not None),
        reason=steps.reason,
        torch=cell.torch.release,
        binaries=cell.files,
        wheel=wheel,
        conda=next(iter(packages), None),
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
        steps = [task.name for task in finished.plan.tasks.values() if name in task.cells]
        return cls([finished.outcomes[step] for step in steps])

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
        tools=dict(sorted({tool.name: tool.version for tool in distributions()}.items())),
    )
