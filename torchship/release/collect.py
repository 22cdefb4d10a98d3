"""Makes the manifest from the outcomes of a run."""

import hashlib
import json
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import NamedTuple

from ..builder.sources import source_date
from ..judge.binary import read_binary
from ..judge.driver_probe import probe_devices
from .cells import Cell, all_cells
from .host import Host
from .manifest import Artefact, Binary, CellEntry, HostFacts, Kind, Manifest, Run, State, ToolEntry
from .pack_steps import agreeing
from .paths import write_atomically
from .planner import Plan
from .schema import Tool
from .settings import Settings
from .shell import redacted
from .store import commit, digest
from .tasks import GOOD, Outcome, Status
from .tools import paths_of

NO_GPU = "its CUDA kernels were compiled and checked, but not run, because no run had a GPU"
# The facts of a smoke test's report that the manifest keeps, besides the project's version.
FACTS = (
    "torch",
    "python",
    "devices",
    "variant",
    "binaries",
    "openmp",
    "gradcheck",
    "pytorch",
)


# What a file of a tool is.
TOOL_KINDS: dict[str, Kind] = {".whl": "pure", ".conda": "noarch", ".pyz": "zipapp"}


class Finished(NamedTuple):
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

    def outputs(self, task: str) -> tuple[Path, ...]:
        return self.outcomes[task].outputs if task in self.outcomes else ()


def collect(run: Finished) -> Manifest:
    """The manifest of a run."""
    settings = run.settings
    host = host_facts(run.plan.host)
    host_key = hashlib.sha256(host.model_dump_json().encode()).hexdigest()[:8]
    every_cell = all_cells(settings.matrix)
    names = [cell.name for cell in every_cell]
    cells = _cells(run, host_key)
    tools = _tools(run, host_key)
    channel = run.plan.channel
    return Manifest(
        package=settings.project.distribution,
        version=settings.project.version,
        commit=commit(settings),
        clean=run.clean,
        changed=run.changed,
        sources=run.sources,
        source_date=source_date(settings.project, os.environ),
        base_channel=redacted(channel) if channel else None,
        shard=run.shard,
        made=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        seconds=run.seconds,
        total=len(every_cell),
        missing=missing(names, cells),
        optional=[cell.name for cell in every_cell if cell.optional],
        cells=cells,
        tools=tools,
        binaries=_binaries(run),
        artefacts=_artefacts_of(run, cells, tools),
        hosts={host_key: host, **_earlier_hosts(run, [*cells.values(), *tools.values()])},
    )


def _cells(run: Finished, host: str) -> dict[str, CellEntry]:
    """The entries of this run's cells, and of those that it kept, in the order of the matrix."""
    every_cell = all_cells(run.settings.matrix)
    wheels = {name: run.settings.dist / str(entry.wheel) for name, entry in run.kept.items()}
    cells = {
        cell.name: CellEntry(
            state="skipped",
            reason=run.skipped[cell.name],
            torch=cell.torch.release,
            host=host,
        )
        for cell in every_cell
        if cell.name in run.skipped
    }
    cells |= {name: run.kept[name] for name in agreeing(wheels, run.outputs("fat-wheel"))}
    cells |= {cell.name: _entry(cell, run, host) for cell in run.plan.cells}
    return {cell.name: cells[cell.name] for cell in every_cell if cell.name in cells}


def _tools(run: Finished, host: str) -> dict[str, ToolEntry]:
    """The entries of this run's tools, and of those that it kept, in the order of the matrix."""
    entries = {
        **run.kept_tools,
        **{tool.name: _tool_entry(tool, run, host) for tool in run.plan.tools},
    }
    return {
        tool.name: entries[tool.name] for tool in run.settings.matrix.tools if tool.name in entries
    }


def _tool_entry(tool: Tool, run: Finished, host: str) -> ToolEntry:
    """The manifest's entry of a tool; also joins the logs of the tool's steps in its log."""
    steps = _Steps.of(tool.name, run)
    dist = run.settings.dist
    files = [path for path in paths_of(tool, run.settings) if dist / path in steps.outputs]
    state = _state(steps.unfinished, is_packed=bool(files))
    return ToolEntry(
        state=state,
        reason=steps.reason,
        files=[] if state == "failed" else files,  # nobody gets what a failed tool packed
        steps=steps.seconds,
        log=steps.write_log(tool.name, run.settings),
        host=host,
    )


def _earlier_hosts(run: Finished, entries: Sequence[CellEntry | ToolEntry]) -> dict[str, HostFacts]:
    """The hosts of earlier runs that made what is still there."""
    hosts = run.previous.hosts if run.previous else {}
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
    run: Finished, cells: Mapping[str, CellEntry], tools: Mapping[str, ToolEntry]
) -> list[Artefact]:
    """The artefacts of a run; none if the checkout changed, as their sources are not known."""
    if run.changed:
        return []
    return artefacts(
        cells,
        run.settings.dist,
        sdists=run.outputs("sdist"),
        fat_wheels=run.outputs("fat-wheel"),
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


def _entry(cell: Cell, run: Finished, host: str) -> CellEntry:
    """The manifest's entry of a cell; also joins the logs of the cell's steps in its log."""
    steps = _Steps.of(cell.name, run)
    wheel = _first_output(run, f"wheel/{cell}")
    return CellEntry(
        state=_state(steps.unfinished, is_packed=wheel is not None),
        reason=steps.reason,
        torch=cell.torch.release,
        binaries=cell.files,
        wheel=wheel,
        conda=_first_output(run, f"conda/{cell}"),
        runs=list(_runs(cell, run)),
        steps=steps.seconds,
        log=steps.write_log(cell.name, run.settings),
        host=host,
    )


class _Steps(NamedTuple):
    """How the steps of one cell, or of one tool, ended."""

    outcomes: Sequence[Outcome]

    @classmethod
    def of(cls, name: str, run: Finished) -> "_Steps":
        steps = [task.name for task in run.plan.tasks.values() if name in task.cells]
        return cls([run.outcomes[step] for step in steps])

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

    @property
    def outputs(self) -> set[Path]:
        return {path for outcome in self.outcomes for path in outcome.outputs}

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


def _first_output(run: Finished, task: str) -> str | None:
    """The path of a task's first output in the folder `dist`; None if there is none."""
    for path in run.outputs(task):
        return path.relative_to(run.settings.dist).as_posix()
    return None


def log_of(outcome: Outcome) -> str:
    """The part of a cell's log for one step."""
    lines = [f"=== {outcome.task}: {outcome.status.value}, {outcome.seconds:.1f} s"]
    if outcome.reason:
        lines.append(outcome.reason)
    if outcome.log is not None and outcome.log.exists():
        lines.append(outcome.log.read_text(encoding="utf-8", errors="replace").rstrip())
    return "\n".join(lines) + "\n\n"


def _runs(cell: Cell, run: Finished) -> Iterator[Run]:
    """The runs of a cell; the last output of a successful step is the smoke test's report."""
    used_gpu = False
    steps = {"venv": f"venv/{cell}", "fat": f"fat-run/{cell.glue}", "conda": f"prefix/{cell}"}
    for kind, step in steps.items():
        if step not in run.outcomes or cell.name not in run.plan.tasks[step].cells:
            continue
        outcome = run.outcomes[step]
        if outcome.status not in GOOD:
            yield Run(kind=kind, ran=False, why_not=outcome.reason)
            continue
        report = json.loads(outcome.outputs[-1].read_text(encoding="utf-8"))
        names = (run.settings.project.distribution, *FACTS)
        facts = {name: report[name] for name in names if name in report}
        facts["comparisons"] = len(report["comparisons"])
        facts["failed"] = report["failed"]
        used_gpu = used_gpu or "cuda" in report.get("devices", [])
        yield Run(kind=kind, ran=True, facts=facts)
    if cell.cuda_major is not None and not used_gpu:
        yield Run(kind="gpu", ran=False, why_not=NO_GPU)


def _binaries(run: Finished) -> dict[str, Binary]:
    """The binaries of this run, and those of kept cells from the previous run, by name."""
    kept = {name for cell in run.kept.values() for name in cell.binaries}
    earlier = run.previous.binaries if run.previous else {}
    binaries = {name: binary for name, binary in earlier.items() if name in kept}
    for step in run.plan.tasks:
        if step.startswith(("glue/", "kernels/")):
            binaries |= {path.name: describe(path) for path in run.outputs(step)}
    return dict(sorted(binaries.items()))


def describe(path: Path) -> Binary:
    binary = read_binary(path)
    return Binary(
        sha256=digest(path),
        size=binary.size,
        record=json.loads(binary.record.text) if binary.record else {},
        needed=list(binary.needed),
        versions={name: ".".join(map(str, v)) for name, v in binary.floors.items()},
    )


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
