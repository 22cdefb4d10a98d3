"""Every step of every workflow is run here, on every occasion: measurements/rehearsal."""

from __future__ import annotations

import copy
from argparse import ArgumentParser
from collections.abc import Mapping
from dataclasses import replace

import pytest

pytest.importorskip("rattler")
pytest.importorskip("twine")

import shutil

from release_places import REPO

from measurements import storage
from measurements.rehearsal import actions, stand_ins
from measurements.rehearsal.expressions import (
    ExpressionError,
    Scope,
    evaluate,
    fill_in,
)
from measurements.rehearsal.faults import KINDS, Kind, inject
from measurements.rehearsal.forge import Occasion
from measurements.rehearsal.mutations import Change, Mutator
from measurements.rehearsal.occasions import occasions
from measurements.rehearsal.rehearsal import WORKFLOWS, Rehearsed, Theatre
from measurements.rehearsal.workflow import (
    Workflow,
    WorkflowError,
    load_document,
    order_of,
    parse_document,
    read_workflow,
)
from torchship.release import conda_worker
from torchship.release.manifest import parse as parse_manifest

if shutil.which("jq") is None:
    pytest.skip("jq is not on this machine; GitHub's have it", allow_module_level=True)

OCCASIONS = occasions("v0.1.0")
#: Those that only `.ci/run` rehearses: the releases that go wrong, and the try of one.
SLOW = [o for o in OCCASIONS if o.file == "release.yml" and (o.failing or not o.tag)]
RESULTS = storage.RESULTS / "rehearsal.json"


@pytest.fixture(scope="session")
def theatre(tmp_path_factory) -> Theatre:
    return Theatre(tmp_path_factory.mktemp("theatre"))


@pytest.fixture(scope="session")
def rehearsals(theatre) -> dict[str, Rehearsed]:
    """What was rehearsed so far, by the titles of the occasions."""
    return {}


def marked(value: object, title: str, *, is_slow: bool) -> object:
    return pytest.param(value, id=title, marks=[pytest.mark.slow] if is_slow else [])


@pytest.mark.parametrize("occasion", [marked(o, o.title, is_slow=o in SLOW) for o in OCCASIONS])
def test_a_workflow_does_what_others_count_on(
    theatre: Theatre, rehearsals: dict[str, Rehearsed], occasion: Occasion
) -> None:
    rehearsed = theatre.rehearse(read_workflow(WORKFLOWS / occasion.file), occasion)
    rehearsals[occasion.title] = rehearsed
    assert rehearsed.wrong == []


@pytest.mark.parametrize(
    "file",
    [
        marked(file, file, is_slow=file == "release.yml")
        for file in sorted({occasion.file for occasion in OCCASIONS})
    ],
)
def test_every_step_is_executed_on_some_occasion(
    theatre: Theatre, rehearsals: dict[str, Rehearsed], file: str
) -> None:
    workflow = read_workflow(WORKFLOWS / file)
    steps = {(job.name, step.number) for job in workflow.jobs.values() for step in job.steps}
    for occasion in (occasion for occasion in OCCASIONS if occasion.file == file):
        if not steps:
            break
        if occasion.title not in rehearsals:
            rehearsals[occasion.title] = theatre.rehearse(workflow, occasion)
        steps -= {*rehearsals[occasion.title].report.steps}
    assert steps == set()


def test_continuous_integration_runs_every_step_by_stand_ins() -> None:
    cases = [
        case
        for test in (
            test_a_workflow_does_what_others_count_on,
            test_every_step_is_executed_on_some_occasion,
        )
        for mark in test.pytestmark  # type: ignore[attr-defined]
        for case in mark.args[1]
    ]
    assert {mark.name for case in cases for mark in case.marks} == {"slow"}
    assert "scripts/test.sh --slow" in (REPO / ".ci" / "run").read_text(encoding="utf-8")


def test_every_workflow_has_an_occasion() -> None:
    assert {path.name for path in WORKFLOWS.glob("*.yml")} == {o.file for o in OCCASIONS}


def changed(file: str, job: str, number: int, old: str, new: str) -> Workflow:
    """A workflow with another text in the script of a step."""
    document = copy.deepcopy(load_document(WORKFLOWS / file))
    step = document["jobs"][job]["steps"][number - 1]  # type: ignore[index]
    assert old in step["run"]
    step["run"] = step["run"].replace(old, new)
    return parse_document(file, document)


def build_optional_cells(theatre: Theatre, workflow: Workflow) -> list[str]:
    """The problems of the job that builds the optional cells of a release."""
    jobs = {name: workflow.jobs[name] for name in ("shards", "optional")}
    return theatre.rehearse(replace(workflow, jobs=jobs), theatre.occasions[-2]).report.problems


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("PYTHONPATH=.", "PYTHONPATH=scripts:."),
        ("torchship.release.conda_worker", "release.conda_worker"),
        ("install build/torch", """install '{"prefix": "build/torch"}'"""),
    ],
    ids=["path", "module", "JSON"],
)
def test_a_dead_call_for_the_optional_cells_is_found(theatre: Theatre, old: str, new: str) -> None:
    """For three days none of them could be built, and `continue-on-error` hid it."""
    workflow = changed("release.yml", "optional", 3, old, new)
    assert "conda_worker" in build_optional_cells(theatre, workflow)[0]


def test_the_optional_cells_are_built_without_a_problem(theatre: Theatre) -> None:
    assert build_optional_cells(theatre, read_workflow(WORKFLOWS / "release.yml")) == []


def test_a_program_that_no_longer_understands_a_workflow_is_found(
    theatre: Theatre, monkeypatch
) -> None:
    """As when the worker took one argument in JSON, and the workflow stayed as it was."""

    def make_parser() -> ArgumentParser:
        parser = ArgumentParser(prog="conda_worker")
        parser.add_argument("function")
        parser.add_argument("arguments")
        return parser

    monkeypatch.setattr(conda_worker, "make_parser", make_parser)
    problems = build_optional_cells(theatre, read_workflow(WORKFLOWS / "release.yml"))
    assert "unrecognized arguments" in problems[0]


def stored_changes() -> list[Mapping[str, object]]:
    document = storage.load(RESULTS)
    assert isinstance(document, dict)
    return list(document["changes"])


def test_nine_of_ten_stored_changes_were_found() -> None:
    changes = stored_changes()
    assert len(changes) >= 10
    assert sum(bool(change["found"]) for change in changes) >= 0.9 * len(changes)


@pytest.mark.rehearsal
def test_the_stored_changes_are_found_again(theatre: Theatre) -> None:
    """By `python measurements/rehearse.py --prove 10`, which draws them."""
    mutator = Mutator(theatre)
    verdicts = []
    for stored in stored_changes():
        path = tuple(stored["path"])
        change = Change(stored["file"], path, stored["start"], stored["old"], stored["new"])
        verdicts.append(mutator.try_change(change))
    is_found = [verdict is not None and verdict.is_found for verdict in verdicts]
    assert sum(is_found) >= 0.9 * len(is_found)


@pytest.mark.rehearsal
def test_a_pull_request_really_builds_a_cell(theatre: Theatre) -> None:
    """Its steps, with the release tool itself: no stand-in but of the actions."""
    workflow = read_workflow(WORKFLOWS / "pull-request.yml")
    jobs = {name: workflow.jobs[name] for name in ("cells", "cell")}
    rehearsed, forge = theatre.build_really(replace(workflow, jobs=jobs), "stable210-cpu")
    assert rehearsed.report.results == {"cells": "success", "cell": "success"}, rehearsed.report
    report = forge.artefacts["report-stable210-cpu"]
    made = parse_manifest(report / "dist" / "manifest.json").cells["stable210-cpu"]
    assert made.state == "done"
    assert {run.kind for run in made.runs if run.ran} >= {"venv", "conda"}


@pytest.mark.rehearsal
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_fault_between_the_jobs_is_refused(theatre: Theatre, kind: Kind) -> None:
    workflows = {path.name: read_workflow(path) for path in WORKFLOWS.glob("*.yml")}
    outcome = inject(kind, 7, theatre, workflows)
    assert outcome.wrong == ""


def test_the_stored_rehearsal_was_right_and_every_fault_refused() -> None:
    document = storage.load(RESULTS)
    assert isinstance(document, dict)
    assert document["wrong"] == 0
    assert {fault["fault"] for fault in document["faults"]} == {kind.name for kind in KINDS}
    titles = {(record["file"], record["occasion"]) for record in document["occasions"]}
    assert titles == {(occasion.file, occasion.title) for occasion in OCCASIONS}


def test_a_change_of_a_comment_is_none(theatre: Theatre) -> None:
    """Only what changes what is executed is drawn."""
    path = ("jobs", "pages", "steps", 1, "run")
    document = load_document(WORKFLOWS / "docs.yml")
    script = document["jobs"]["pages"]["steps"][1]["run"]  # type: ignore[index]
    change = Change("docs.yml", path, script.index("visitor"), "visitor", "")
    assert Mutator(theatre).try_change(change) is None


def test_every_action_of_a_workflow_has_a_stand_in() -> None:
    used = {
        step.uses
        for occasion in OCCASIONS
        for job in read_workflow(WORKFLOWS / occasion.file).jobs.values()
        for step in job.steps
        if step.uses
    }
    assert used == actions.ACTIONS.keys()


def test_every_stand_in_says_what_it_does() -> None:
    purposes = [entry.purpose for entry in stand_ins.registered()]
    purposes += [action.purpose for action in actions.ACTIONS.values()]
    assert all(purposes)


def test_the_scripts_that_stand_ins_replace_are_there() -> None:
    programs = {entry.program for entry in stand_ins.registered()}
    ours = [program for program in programs if program.startswith((".ci/", "scripts/"))]
    assert ours and all((REPO / program).is_file() for program in ours)


# The runner itself.

SCOPE = Scope(
    {"github": {"ref": "refs/tags/v1", "ref_type": "tag"}, "matrix": {"n": 2, "flag": True}},
    {"always": lambda: True},
)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("github.ref_type == 'tag'", True),
        ("github.ref_type != 'tag'", False),
        ("!(github.ref_type == 'tag') || always()", True),
        ("matrix.flag && matrix.n", 2),
        ("'it''s'", "it's"),
        ("fromJSON('[1, 2]')", [1, 2]),
    ],
)
def test_expressions_are_evaluated_as_github_does(expression: str, value: object) -> None:
    assert evaluate(expression, SCOPE) == value


def test_a_text_that_is_one_expression_keeps_its_type() -> None:
    assert fill_in("${{ matrix.n }}", SCOPE) == 2
    assert fill_in("${{ matrix.n }} of ${{ matrix.flag }}", SCOPE) == "2 of true"


@pytest.mark.parametrize(
    "expression", ["matrix.m", "github.ref ==", "nothing()", "github.ref github.ref", "§"]
)
def test_an_expression_that_means_nothing_is_refused(expression: str) -> None:
    with pytest.raises(ExpressionError):
        evaluate(expression, SCOPE)


def parse(jobs: dict[str, dict[str, object]]) -> Workflow:
    whole = {name: {"runs-on": "ubuntu-24.04", "steps": [], **job} for name, job in jobs.items()}
    return parse_document("test.yml", {"on": {"push": None}, "jobs": whole})


def test_a_job_that_nothing_waits_for_comes_last() -> None:
    workflow = parse({"early": {}, "late": {}, "last": {"needs": "early"}})
    assert [job.name for job in order_of(workflow.jobs)] == ["early", "last", "late"]


@pytest.mark.parametrize(
    "jobs",
    [
        {"job": {"needs": "nobody"}},
        {"job": {"no-such-key": 1}},
        {"job": {"steps": [{"run": "true", "uses": "actions/checkout"}]}},
        {"job": {"steps": [{"run": "true", "shell": "python"}]}},
    ],
    ids=["unknown job", "unknown key", "two things in a step", "another shell"],
)
def test_a_workflow_that_the_runner_does_not_understand_is_refused(jobs) -> None:
    with pytest.raises(WorkflowError):
        parse(jobs)


def test_jobs_that_wait_for_each_other_are_refused() -> None:
    with pytest.raises(WorkflowError, match="wait for each other"):
        order_of(parse({"one": {"needs": "two"}, "two": {"needs": "one"}}).jobs)
