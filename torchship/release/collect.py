"""Makes the manifest from the outcomes of a run."""

import hashlib
import json
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, NamedTuple

from ..builder.sources import source_date
from ..doctor.binary import read_binary
from ..doctor.driver_probe import probe_devices
from . import DIST, PROJECT
from .cells import Cell, all_cells
from .host import Host
from .manifest import Artefact, Binary, CellEntry, HostFacts, Kind, Manifest, Run, State
from .pack_steps import agreeing
from .paths import CELL_LOGS, write_atomically
from .planner import Plan
from .shell import redacted
from .store import commit, digest
from .tasks import GOOD, Outcome, Status

NO_GPU = "its CUDA kernels were compiled and judged, but not run: no run had a GPU"
FACTS = (PROJECT.distribution, "torch", "python", "devices", "variant", "binaries", "openmp")
FACTS += ("gradcheck", "pytorch")


class Finished(NamedTuple):
    """A finished run, with the cells that it kept from the `previous` run."""

    plan: Plan
    outcomes: Mapping[str, Outcome]
    skipped: Mapping[str, str]
    kept: Mapping[str, CellEntry]
    previous: Manifest | None

    def outputs(self, task: str) -> tuple[Path, ...]:
        return self.outcomes[task].outputs if task in self.outcomes else ()


def collect(run: Finished, host: Host, **about: Any) -> Manifest:
    """The manifest of a run; `about` has the fields that do not follow from `run`."""
    facts = host_facts(host)
    key = hashlib.sha256(facts.model_dump_json().encode()).hexdigest()[:8]
    fat = run.outputs("fat-wheel")
    wheels = {name: DIST / str(cell.wheel) for name, cell in run.kept.items()}
    every = all_cells(run.plan.matrix)
    cells = {
        cell.name: CellEntry(state="skipped", reason=reason, torch=cell.torch.release, host=key)
        for cell in every
        if (reason := run.skipped.get(cell.name))
    }
    cells |= {name: run.kept[name] for name in agreeing(wheels, fat)}
    cells |= {cell.name: _entry(cell, run, key) for cell in run.plan.cells}
    order = [cell.name for cell in every]
    cells = {name: cells[name] for name in order if name in cells}
    used = {cell.host for cell in cells.values()}
    before = run.previous.hosts.items() if run.previous else ()
    channel, sdist = run.plan.channel, run.outputs("sdist")
    return Manifest(
        package=PROJECT.distribution,
        version=PROJECT.version,
        commit=commit(),
        source_date=source_date(PROJECT, os.environ),
        base_channel=channel and redacted(channel),
        made=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        total=len(every),
        missing=missing(order, cells),
        optional=[cell.name for cell in every if cell.optional],
        cells=cells,
        binaries=dict(sorted(_binaries(run).items())),
        artefacts=[] if about["changed"] else artefacts(cells, sdist, fat),
        hosts={key: facts} | {name: found for name, found in before if name in used},
        **about,
    )


def missing(order: Sequence[str], cells: Mapping[str, CellEntry]) -> dict[str, str]:
    """The reasons why the fat wheel lacks cells of `order`, by the cells' names."""
    why = {name: cell.reason or "not built" for name, cell in cells.items()}
    packed = {name for name, cell in cells.items() if cell.packed}
    return {name: why.get(name, "not selected") for name in order if name not in packed}


def artefacts(
    cells: Mapping[str, CellEntry], sdist: Sequence[Path], fat: Sequence[Path]
) -> list[Artefact]:
    """The artefacts in DIST, without conda packages that somebody deleted after an earlier run."""
    packed = sorted(name for name, cell in cells.items() if cell.packed)
    found = [_artefact(path, "sdist", []) for path in sdist]
    found += [_artefact(path, "fat", packed) for path in fat]
    for name, cell in cells.items():
        if cell.wheel:
            found.append(_artefact(DIST / cell.wheel, "thin", [name]))
        if cell.conda and (DIST / cell.conda).is_file():
            found.append(_artefact(DIST / cell.conda, "conda", [name]))
    return found


def _artefact(path: Path, kind: Kind, cells: list[str]) -> Artefact:
    name, size = path.relative_to(DIST).as_posix(), path.stat().st_size
    return Artefact(path=name, kind=kind, sha256=digest(path), size=size, cells=cells)


def _entry(cell: Cell, run: Finished, host: str) -> CellEntry:
    """The manifest's entry of a cell; also joins the logs of the cell's steps in its log."""
    steps = [task.name for task in run.plan.tasks.values() if cell.name in task.cells]
    outcomes = [run.outcomes[step] for step in steps]
    bad = [o for o in outcomes if o.status not in GOOD]
    causes = [o for o in bad if not o.blocked]
    wheel, conda = (
        next((path.relative_to(DIST).as_posix() for path in run.outputs(f"{kind}/{cell}")), None)
        for kind in ("wheel", "conda")
    )
    state: State = "done"
    if bad:
        failed = any(o.status is Status.FAILED for o in bad)
        state = "failed" if failed else "partial" if wheel else "skipped"
    log = CELL_LOGS / f"{cell.name}.log"
    write_atomically(log, "".join(map(said, outcomes)))
    return CellEntry(
        state=state,
        reason="\n".join(f"{o.task}: {o.reason}" for o in causes or bad[:1]),
        torch=cell.torch.release,
        binaries=cell.files,
        wheel=wheel,
        conda=conda,
        runs=list(_runs(cell, run)),
        steps={o.task: round(o.seconds, 2) for o in outcomes if o.status in GOOD},
        log=log.relative_to(DIST).as_posix(),
        host=host,
    )


def said(outcome: Outcome) -> str:
    """The part of a cell's log for one step."""
    lines = [f"=== {outcome.task}: {outcome.status.value}, {outcome.seconds:.1f} s"]
    lines += [outcome.reason] if outcome.reason else []
    if outcome.log is not None and outcome.log.exists():
        lines.append(outcome.log.read_text(encoding="utf-8", errors="replace").rstrip())
    return "\n".join(lines) + "\n\n"


def _runs(cell: Cell, run: Finished) -> Iterator[Run]:
    """The runs of a cell; the last output of a successful step is the smoke test's report."""
    gpu = False
    steps = {"venv": f"venv/{cell}", "fat": f"fat-run/{cell.glue}", "conda": f"prefix/{cell}"}
    for kind, step in steps.items():
        if step not in run.outcomes or cell.name not in run.plan.tasks[step].cells:
            continue
        outcome = run.outcomes[step]
        if outcome.status not in GOOD:
            yield Run(kind=kind, ran=False, why_not=outcome.reason)
            continue
        found: dict[str, Any] = json.loads(outcome.outputs[-1].read_text(encoding="utf-8"))
        facts = {name: found[name] for name in FACTS if name in found}
        counts = {"comparisons": len(found["comparisons"]), "failed": found["failed"]}
        gpu = gpu or "cuda" in found.get("devices", [])
        yield Run(kind=kind, ran=True, facts={**facts, **counts})
    if cell.cuda_major is not None and not gpu:
        yield Run(kind="gpu", ran=False, why_not=NO_GPU)


def _binaries(run: Finished) -> dict[str, Binary]:
    kept = {name for cell in run.kept.values() for name in cell.binaries}
    old = run.previous.binaries if run.previous else {}
    steps = [name for name in run.plan.tasks if name.startswith(("glue/", "kernels/"))]
    made = {path.name: describe(path) for step in steps for path in run.outputs(step)}
    return {name: binary for name, binary in old.items() if name in kept} | made


def describe(path: Path) -> Binary:
    found = read_binary(path)
    return Binary(
        sha256=digest(path),
        size=found.size,
        record=json.loads(found.record.text) if found.record else {},
        needed=list(found.needed),
        versions={name: ".".join(map(str, v)) for name, v in found.floors.items()},
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
        tools=dict(sorted({found.name: found.version for found in distributions()}.items())),
    )
