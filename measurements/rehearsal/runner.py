"""Runs the jobs of a workflow on this machine, one after the other, and each step as it stands.

A script runs unchanged under `bash -e`, as on GitHub. Its trace (`-x`) tells what was executed.
What a stand-in refuses is kept as a problem even where the script goes on.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from . import actions, own_programs, programs, stand_ins
from .expressions import (
    ExpressionError,
    ExpressionSyntaxError,
    Scope,
    evaluate,
    fill_in,
    fill_in_text,
    is_true,
    names_status,
)
from .forge import OWNER, REPOSITORY, RUN, TOKEN
from .machine import Answer, Call, Machine, Refused, Switchboard, open_switchboard
from .stand_ins import World
from .workflow import Job, Step, Workflow, WorkflowError, order_of

#: What GitHub's machines have before a step runs; in a container there is less.
ON_GITHUB = ("docker", "gh", "git", "sha256sum")
IN_CONTAINERS = ("git", "sha256sum")
STEP_LIMIT = 900  # seconds
LIMIT_OF_BUILD = 3600  # seconds, of a step of a cell that is really built
#: What tells the tools of a real build where packages come from.
OF_INDEXES = ("PIP_", "UV_", "SSL_", "REQUESTS_")
FAILED = "failure"
SKIPPED = "skipped"
SUCCEEDED = "success"

assert own_programs and programs  # their import registers the stand-ins


@dataclass(kw_only=True)
class Report:
    """What came of a run: the result of each job, what was wrong, and what was executed.

    `steps` has each step that was done, as its job and its number, as often as it was; `output`
    what the failed scripts of a job printed.
    """

    results: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    steps: list[tuple[str, int]] = field(default_factory=list)
    output: dict[str, list[str]] = field(default_factory=dict)


@dataclass(kw_only=True)
class _Progress:
    """How far a job is: its result so far, and the outputs of its steps."""

    result: str = SUCCEEDED
    steps: dict[str, dict[str, object]] = field(default_factory=dict)


def rehearse(workflow: Workflow, world: World, folder: Path) -> Report:
    """Runs a workflow on an occasion; `folder` is new, and gets the machines of its jobs.

    Raises WorkflowError for a workflow that GitHub would not start.
    """
    report = Report()

    def answer(call: Call) -> Answer:
        try:
            return stand_ins.respond(call, world)
        except Refused as refusal:
            report.problems.append(str(refusal))
            return Answer(code=1)
        except (Exception, SystemExit) as error:  # no caller may be left waiting
            report.problems.append(f"{call}: {type(error).__name__}: {error}")
            return Answer(code=1)

    if world.occasion.event not in workflow.events:
        report.problems.append(f"{workflow.file} does not start on {world.occasion.event}")
        return report
    with open_switchboard(answer) as switchboard:
        run = _Run(world=world, folder=folder, switchboard=switchboard, report=report)
        for job in order_of(workflow.jobs):
            run.do_job(job)
    names = {str(folder): "MACHINES", str(world.forge.folder): "WORLD"}
    report.trace = [_without_places(line, names) for line in report.trace]
    report.problems = [_without_places(line, names) for line in report.problems]
    return report


def _without_places(line: str, names: Mapping[str, str]) -> str:
    """A line that is the same wherever the rehearsal takes place."""
    for place, name in names.items():
        line = line.replace(place, name)
    return line


@dataclass(kw_only=True)
class _Run:
    """A workflow that is running."""

    world: World
    folder: Path
    switchboard: Switchboard
    report: Report
    needs: dict[str, dict[str, object]] = field(default_factory=dict)

    def do_job(self, job: Job) -> None:
        """Runs a job for every entry of its matrix, if what it needs allows it."""
        if self.world.fault and self.world.fault.before == job.name:
            self.world.fault.strike()
        results = [str(self.needs[name]["result"]) for name in job.needs]
        scope = self._scope(job, {}, {}, FAILED if {*results} - {SUCCEEDED} else SUCCEEDED)
        outputs: dict[str, str] = {}
        try:
            if not _holds(job.condition, scope):
                self._end(job, SKIPPED, outputs)
                return
            entries = list(_entries(job, scope))
            if self.world.real_cell:
                entries = [
                    one for one in entries if one.get("cell") in (None, self.world.real_cell)
                ]
        except ExpressionSyntaxError as error:
            raise WorkflowError(f"{job.name}: {error}") from error
        except ExpressionError as error:
            self.report.problems.append(f"{job.name}: {error}")
            self._end(job, FAILED, outputs)
            return
        ended = []
        for number, entry in enumerate(entries):
            result, outputs = self._do_entry(job, entry, number)
            ended.append(result)
        self._end(job, FAILED if FAILED in ended or not ended else SUCCEEDED, outputs)

    def _end(self, job: Job, result: str, outputs: Mapping[str, str]) -> None:
        self.report.results[job.name] = result
        self.report.trace.append(f"{job.name}: {result}")
        if result == FAILED and job.continue_on_error:
            result = SUCCEEDED
        self.needs[job.name] = {"result": result, "outputs": dict(outputs)}

    def _do_entry(
        self, job: Job, entry: Mapping[str, object], number: int
    ) -> tuple[str, dict[str, str]]:
        """Runs the steps of a job on a fresh machine; returns its result and its outputs."""
        progress = _Progress()
        outputs: dict[str, str] = {}
        try:
            machine = self._start_machine(job, entry, number)
            env = _filled(job.env, self._scope(job, entry, progress.steps, progress.result))
        except ExpressionError as error:
            self.report.problems.append(f"{job.name}: {error}")
            return FAILED, outputs
        for step in job.steps:
            self._do_step(step, machine, entry, _Surroundings(env, progress))
        scope = self._scope(job, entry, progress.steps, progress.result)
        if progress.result == SUCCEEDED:
            try:
                outputs = _filled(job.outputs, scope)
            except ExpressionError as error:
                self.report.problems.append(f"{job.name}: {error}")
                return FAILED, outputs
        return progress.result, outputs

    def _start_machine(self, job: Job, entry: Mapping[str, object], number: int) -> Machine:
        scope = self._scope(job, entry, {}, SUCCEEDED)
        machine = Machine(
            job=replace(job, runs_on=fill_in_text(job.runs_on, scope)),
            name=f"{job.name}-{number}",
            container=fill_in_text(job.container, scope),
            folder=self.folder / f"{job.name}-{number}",
            switchboard=self.switchboard,
        )
        self.switchboard.add(machine)
        for name in IN_CONTAINERS if job.container else ON_GITHUB:
            machine.provide(name)
        return machine

    def _do_step(
        self,
        step: Step,
        machine: Machine,
        entry: Mapping[str, object],
        surroundings: _Surroundings,
    ) -> None:
        progress = surroundings.progress
        place = f"{machine.name}: step {step.number}"
        scope = self._scope(machine.job, entry, progress.steps, progress.result)
        try:
            if not _holds(step.condition, scope):
                return
            self.report.steps.append((machine.job.name, step.number))
            env = {**surroundings.env, **_filled(step.env, scope)}
            if step.run is None:
                outputs = self._act(step, machine, scope, place)
            else:
                outputs = self._run_script(step.run, machine, env, place)
        except ExpressionSyntaxError as error:
            raise WorkflowError(f"{place}: {error}") from error
        except (ExpressionError, Refused) as problem:
            self.report.problems.append(f"{place}: {problem}")
            progress.result = FAILED
        except _StepFailed as failure:
            self.report.trace.append(f"{place}: failed")
            self.report.output.setdefault(machine.job.name, []).extend(failure.lines)
            progress.result = FAILED
        else:
            if step.id:
                progress.steps[step.id] = {"outputs": outputs}

    def _act(self, step: Step, machine: Machine, scope: Scope, place: str) -> dict[str, str]:
        inputs = _filled(
            {
                name: str(value).lower() if isinstance(value, bool) else str(value)
                for name, value in step.inputs.items()
            },
            scope,
        )
        self.report.trace.append(f"{place}: {step.uses} {sorted(inputs.items())}")
        return actions.perform(step.uses, inputs, machine, self.world)

    def _run_script(
        self, script: str, machine: Machine, env: Mapping[str, str], place: str
    ) -> dict[str, str]:
        """Runs a script; returns the outputs that it writes. Raises _StepFailed."""
        self.report.trace.append(f"{place}: {sorted(env.items())}")
        file = machine.temporary / f"{place.rpartition(' ')[2]}.sh"
        file.write_text(script)
        output = machine.temporary / f"{file.stem}.output"
        output.touch()
        variables = {**self._variables(machine), **env, "GITHUB_OUTPUT": str(output)}
        result = subprocess.run(
            ["bash", "-e", "-x", str(file)],
            cwd=machine.workspace,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_OF_BUILD if self.world.real_cell else STEP_LIMIT,
            check=False,
        )
        commands = [line for line in result.stderr.splitlines() if line.startswith("+")]
        self.report.trace += [f"{place}: {line}" for line in commands]
        if result.returncode:
            raise _StepFailed(f"{result.stdout}{result.stderr}")
        return dict(line.split("=", 1) for line in output.read_text().splitlines())

    def _variables(self, machine: Machine) -> dict[str, str]:
        github = {
            f"GITHUB_{name.upper()}": str(value)
            for name, value in self._github(machine).items()
            if name not in ("event", "token")
        }
        indexes: dict[str, str] = {}
        home = str(machine.home)
        if self.world.real_cell:
            indexes = {k: v for k, v in os.environ.items() if k.startswith(OF_INDEXES)}
            home = os.environ.get("HOME", home)
        return {
            **indexes,
            **github,
            "CI": "true",
            "HOME": home,
            "LANG": "C.UTF-8",
            "PATH": machine.path_variable,
            "TMPDIR": str(machine.temporary),
        }

    def _github(self, machine: Machine | None) -> dict[str, object]:
        occasion = self.world.occasion
        return {
            "event": {"release": {"tag_name": occasion.tag}} if occasion.event == "release" else {},
            "event_name": occasion.event,
            "ref": occasion.ref,
            "ref_name": occasion.ref_name,
            "ref_type": occasion.ref_type,
            "repository": REPOSITORY,
            "repository_owner": OWNER,
            "run_id": RUN,
            "server_url": self.world.forge.server.as_uri(),
            "sha": self.world.forge.commit,
            "token": TOKEN,
            "workspace": str(machine.workspace) if machine else "",
        }

    def _scope(
        self,
        job: Job,
        entry: Mapping[str, object],
        steps: Mapping[str, object],
        result: str,
    ) -> Scope:
        needs = {name: self.needs[name] for name in job.needs}
        contexts = {
            "github": self._github(None),
            "matrix": entry,
            "needs": needs,
            "steps": steps,
        }
        functions = {
            "always": lambda: True,
            "failure": lambda: result == FAILED,
            "success": lambda: result == SUCCEEDED,
        }
        return Scope(contexts, functions)


@dataclass(frozen=True)
class _Surroundings:
    """What a step finds: its job's variables, and how far the job is."""

    env: Mapping[str, str]
    progress: _Progress


class _StepFailed(Exception):
    """A script ended with another exit code than 0, after it had printed this."""

    @property
    def lines(self) -> list[str]:
        return [line for line in str(self).splitlines() if line and not line.startswith("+")]


def _holds(condition: str, scope: Scope) -> bool:
    """Whether a condition of a job or a step holds; without one, nothing may have failed."""
    if not condition:
        return is_true(evaluate("success()", scope))
    value = fill_in(condition, scope) if "${{" in condition else evaluate(condition, scope)
    return is_true(value) and (names_status(condition) or is_true(evaluate("success()", scope)))


def _filled(texts: Mapping[str, str], scope: Scope) -> dict[str, str]:
    return {name: fill_in_text(value, scope) for name, value in texts.items()}


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
