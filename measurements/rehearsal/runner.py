"""Runs the jobs of a workflow one after the other, and each step as it stands."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from . import actions
from .expressions import (
    ExpressionError,
    Scope,
    evaluate,
    fill_in,
    fill_in_text,
    is_true,
    names_status,
)
from .forge import REPOSITORY, RUN_ID, TOKEN, Forge, Refused
from .machine import Machine
from .occasions import Occasion
from .workflow import Job, Step, Workflow, order_of

STEP_LIMIT = 3600  # seconds
FAILED = "failure"
SKIPPED = "skipped"
SUCCEEDED = "success"
#: How many of the last lines of a failed step are shown.
TAIL = 25


@dataclass(kw_only=True)
class Report:
    """What came of a run: the result of each job, what went wrong, and which steps were done.

    `steps` has each step that was done as its job and its number.
    """

    results: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    steps: list[tuple[str, int]] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        return not self.problems


def rehearse(
    workflow: Workflow, occasion: Occasion, *, source: Path, forge: Forge, machines: Path
) -> Report:
    """Runs a workflow; each job clones `source`, and works in a new folder below `machines`.

    What fails in a job with `continue-on-error` is no problem of the report. Raises WorkflowError
    for a workflow that GitHub would not start.
    """
    run = _Run(occasion=occasion, source=source, forge=forge, machines=machines)
    for job in order_of(workflow.jobs):
        run.do_job(job)
    return run.report


@dataclass(kw_only=True)
class _Run:
    """A workflow that is running."""

    occasion: Occasion
    source: Path
    forge: Forge
    machines: Path
    report: Report = field(default_factory=Report)
    needs: dict[str, dict[str, object]] = field(default_factory=dict)

    def do_job(self, job: Job) -> None:
        """Runs a job for every entry of its matrix, if what it needs allows it."""
        results = {str(self.needs[name]["result"]) for name in job.needs}
        state = FAILED if results - {SUCCEEDED} else SUCCEEDED
        problems: list[str] = []
        ended: list[str] = []
        outputs: dict[str, str] = {}
        try:
            scope = self.scope(job, {}, {}, state)
            if not _holds(job.condition, scope):
                self.report.results[job.name] = SKIPPED
                self.needs[job.name] = {"result": SKIPPED, "outputs": {}}
                return
            entries = list(_entries(job, scope))
            if not entries:
                problems.append(f"{job.name}: its matrix is empty, with which GitHub fails")
            for number, entry in enumerate(entries):
                one = _JobRun(self, job, entry=entry, number=number, problems=problems)
                ended.append(one.run())
                outputs = one.outputs or outputs
        except ExpressionError as error:
            problems.append(f"{job.name}: {error}")
            ended.append(FAILED)
        result = SUCCEEDED if {*ended} == {SUCCEEDED} else FAILED
        self.report.results[job.name] = result
        if not job.continue_on_error:
            self.report.problems += problems
        passed_on = SUCCEEDED if job.continue_on_error else result
        self.needs[job.name] = {"result": passed_on, "outputs": outputs}

    def github(self) -> dict[str, object]:
        occasion = self.occasion
        commit = subprocess.run(
            ["git", "-C", str(self.source), "rev-parse", "HEAD"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        return {
            "event_name": occasion.event,
            "ref": occasion.ref,
            "ref_name": occasion.ref_name,
            "ref_type": "tag" if occasion.tag else "branch",
            "repository": REPOSITORY,
            "repository_owner": REPOSITORY.partition("/")[0],
            "run_id": RUN_ID,
            "server_url": self.forge.server.as_uri(),
            "sha": commit,
        }

    def scope(
        self, job: Job, entry: Mapping[str, object], steps: Mapping[str, object], state: str
    ) -> Scope:
        event = {"release": {"tag_name": self.occasion.tag}}
        contexts = {
            "github": {
                **self.github(),
                "token": TOKEN,
                "workflow": "rehearsal",
                "event": event if self.occasion.event == "release" else {},
            },
            "matrix": entry,
            "needs": {name: self.needs[name] for name in job.needs},
            "steps": steps,
        }
        functions = {
            "always": lambda: True,
            "failure": lambda: state == FAILED,
            "success": lambda: state == SUCCEEDED,
        }
        return Scope(contexts, functions)


class _JobRun:
    """A job on one entry of its matrix."""

    def __init__(
        self, run: _Run, job: Job, *, entry: Mapping[str, object], number: int, problems: list[str]
    ) -> None:
        self._run = run
        self._entry = entry
        self._problems = problems
        self._place = job.name if not entry else f"{job.name} {dict(entry)}"
        self._state = SUCCEEDED
        self._steps: dict[str, dict[str, object]] = {}
        self.outputs: dict[str, str] = {}
        self._job = job
        scope = self._scope()
        self._job = replace(
            job,
            runs_on=fill_in_text(job.runs_on, scope),
            container=fill_in_text(job.container, scope),
        )
        folder = run.machines / f"{job.name}-{number}"
        self._machine = Machine(job=self._job, folder=folder, source=run.source, forge=run.forge)

    def run(self) -> str:
        """Runs the steps; returns the job's result."""
        self._machine.start()
        env = _filled(self._job.env, self._scope())
        for step in self._job.steps:
            self._do_step(step, env)
        if self._state == SUCCEEDED:
            self.outputs = _filled(self._job.outputs, self._scope())
        return self._state

    def _do_step(self, step: Step, job_env: Mapping[str, str]) -> None:
        place = f"{self._place}: step {step.number}"
        scope = self._scope()
        try:
            if not _holds(step.condition, scope):
                return
            self._run.report.steps.append((self._job.name, step.number))
            if step.run is None:
                inputs = _filled(_texts(step.inputs), scope)
                outputs = actions.perform(step.uses, inputs, self._machine)
            else:
                env = {**job_env, **_filled(step.env, scope)}
                outputs = self._run_script(step, env)
        except (ExpressionError, Refused, _StepFailed) as problem:
            self._problems.append(f"{place}: {problem}")
            self._state = FAILED
        else:
            if step.id:
                self._steps[step.id] = {"outputs": outputs}

    def _run_script(self, step: Step, env: Mapping[str, str]) -> dict[str, str]:
        """Runs a script as GitHub does; returns the outputs that it writes. Raises _StepFailed."""
        machine = self._machine
        script = machine.folder / "tmp" / f"step-{step.number}.sh"
        script.write_text(step.run or "")
        output = script.with_suffix(".output")
        output.touch()
        github = {**self._run.github(), "workspace": machine.workspace, "output": output}
        try:
            result = subprocess.run(
                ["bash", "-e", str(script)],
                cwd=machine.workspace,
                env={**machine.variables(github), **machine.fit(env)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=STEP_LIMIT,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise _StepFailed(f"took longer than {STEP_LIMIT} s") from error
        if result.returncode:
            lines = result.stdout.splitlines()[-TAIL:]
            raise _StepFailed("\n    ".join([f"exit code {result.returncode}", *lines]))
        return dict(line.split("=", 1) for line in output.read_text().splitlines())

    def _scope(self) -> Scope:
        return self._run.scope(self._job, self._entry, self._steps, self._state)


class _StepFailed(Exception):
    """A script did not end with 0."""


def _holds(condition: str, scope: Scope) -> bool:
    """Whether a condition of a job or a step holds; without one, nothing may have failed."""
    succeeded = is_true(evaluate("success()", scope))
    if not condition:
        return succeeded
    value = fill_in(condition, scope) if "${{" in condition else evaluate(condition, scope)
    return is_true(value) and (names_status(condition) or succeeded)


def _filled(texts: Mapping[str, str], scope: Scope) -> dict[str, str]:
    return {name: fill_in_text(value, scope) for name, value in texts.items()}


def _texts(inputs: Mapping[str, object]) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in inputs.items()
    }


def _entries(job: Job, scope: Scope) -> Iterator[Mapping[str, object]]:
    """The entries of a job's matrix; one without values if it has none."""
    matrix: object = job.matrix
    if isinstance(matrix, str):
        matrix = fill_in(matrix, scope)
    if not isinstance(matrix, Mapping):
        raise ExpressionError(f"the matrix of {job.name} is {matrix!r}, needs a mapping")
    if "include" in matrix:
        if len(matrix) > 1:
            raise ExpressionError(f"{job.name}: a matrix with include and other keys")
        yield from _list_of(matrix["include"], job)
        return
    values = [_list_of(entries, job) for entries in matrix.values()]
    for combination in itertools.product(*values):
        yield dict(zip(matrix, combination, strict=True))


def _list_of(value: object, job: Job) -> Sequence[dict[str, object]]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise ExpressionError(f"the matrix of {job.name} has {value!r}, needs a list")
    return value
