"""A workflow's YAML as records. A key that the runner does not know is an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ruamel.yaml import YAML

_WORKFLOW_KEYS = {"name", "on", "permissions", "concurrency", "jobs"}
_JOB_KEYS = {
    "name",
    "needs",
    "if",
    "runs-on",
    "timeout-minutes",
    "continue-on-error",
    "container",
    "environment",
    "permissions",
    "strategy",
    "env",
    "outputs",
    "steps",
}
_STEP_KEYS = {"id", "if", "uses", "with", "run", "env"}


class WorkflowError(ValueError):
    """A workflow that the runner does not understand."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step: a script (`run`), or else an action (`uses`, without its commit) with its inputs."""

    number: int
    id: str = ""
    condition: str = ""
    uses: str = ""
    inputs: Mapping[str, object] = field(default_factory=dict)
    run: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job. `matrix` is text if it is an expression."""

    name: str
    needs: tuple[str, ...] = ()
    condition: str = ""
    runs_on: str
    container: str = ""
    environment: str = ""
    continue_on_error: bool = False
    permissions: Mapping[str, str] = field(default_factory=dict)
    matrix: str | Mapping[str, object] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    steps: Sequence[Step] = ()


@dataclass(frozen=True, kw_only=True)
class Workflow:
    """A workflow file: the events that start it, and its jobs by name."""

    file: str
    events: Mapping[str, object]
    jobs: Mapping[str, Job]


def read_workflow(path: Path) -> Workflow:
    return parse_document(path.name, load_document(path))


def load_document(path: Path) -> dict[str, object]:
    """The YAML of a workflow, as `parse_document` takes it."""
    document = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    return dict(_mapping(document, path.name))


def parse_document(file: str, content: object) -> Workflow:
    """The records of a workflow's YAML. Raises WorkflowError."""
    document = _mapping(content, file, _WORKFLOW_KEYS)
    jobs = {
        name: _job(name, _mapping(entry, f"{file}: {name}", _JOB_KEYS))
        for name, entry in _mapping(document["jobs"], file).items()
    }
    for job in jobs.values():
        if unknown := {*job.needs} - jobs.keys():
            raise WorkflowError(f"{file}: {job.name} needs {', '.join(unknown)}, which is no job")
    return Workflow(file=file, events=_mapping(document["on"], file), jobs=jobs)


def order_of(jobs: Mapping[str, Job]) -> list[Job]:
    """The jobs in an order that their `needs` allow, of those the least kind: what the last job
    does not wait for comes after it, as it may on a busy day."""
    ordered: dict[str, Job] = {}

    def visit(job: Job, waiting: tuple[str, ...]) -> None:
        if job.name in waiting:
            raise WorkflowError(f"{' -> '.join([*waiting, job.name])}: jobs wait for each other")
        for name in job.needs:
            visit(jobs[name], (*waiting, job.name))
        ordered.setdefault(job.name, job)

    for job in reversed(list(jobs.values())):
        visit(job, ())
    return list(ordered.values())


def _job(name: str, entry: Mapping[str, object]) -> Job:
    needs = entry.get("needs", ())
    strategy = _mapping(entry.get("strategy", {}), f"{name}: strategy", {"fail-fast", "matrix"})
    matrix = strategy.get("matrix", {})
    steps = entry["steps"]
    if not isinstance(steps, Sequence) or isinstance(steps, str):
        raise WorkflowError(f"{name}: its steps are no list")
    return Job(
        name=name,
        needs=(needs,) if isinstance(needs, str) else tuple(map(str, _sequence(needs, name))),
        condition=str(entry.get("if", "")),
        runs_on=str(entry["runs-on"]),
        container=str(entry.get("container", "")),
        environment=str(entry.get("environment", "")),
        continue_on_error=entry.get("continue-on-error", False) is True,
        permissions=_texts(entry.get("permissions", {}), f"{name}: permissions"),
        matrix=matrix if isinstance(matrix, str) else _mapping(matrix, f"{name}: matrix"),
        env=_texts(entry.get("env", {}), f"{name}: env"),
        outputs=_texts(entry.get("outputs", {}), f"{name}: outputs"),
        steps=[_step(number, step, name) for number, step in enumerate(steps, 1)],
    )


def _step(number: int, entry: object, job: str) -> Step:
    place = f"{job}: step {number}"
    keys = _mapping(entry, place, _STEP_KEYS)
    if ("run" in keys) == ("uses" in keys):
        raise WorkflowError(f"{place}: needs one of `run` and `uses`")
    return Step(
        number=number,
        id=str(keys.get("id", "")),
        condition=str(keys.get("if", "")),
        uses=str(keys.get("uses", "")).partition("@")[0],
        inputs=_mapping(keys.get("with", {}), f"{place}: with"),
        run=str(keys["run"]) if "run" in keys else None,
        env=_texts(keys.get("env", {}), f"{place}: env"),
    )


def _mapping(value: object, place: str, allowed: set[str] | None = None) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise WorkflowError(f"{place}: needs a mapping, got {value!r}")
    if allowed is not None and (unknown := {*map(str, value)} - allowed):
        raise WorkflowError(f"{place}: this runner does not know {', '.join(sorted(unknown))}")
    return {str(key): entry for key, entry in value.items()}


def _texts(value: object, place: str) -> dict[str, str]:
    texts = {}
    for key, entry in _mapping(value, place).items():
        texts[key] = str(entry).lower() if isinstance(entry, bool) else str(entry)
    return texts


def _sequence(value: object, place: str) -> Sequence[object]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise WorkflowError(f"{place}: needs a list, got {value!r}")
    return value
