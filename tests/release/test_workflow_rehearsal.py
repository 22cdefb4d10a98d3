"""The rehearsal runs the steps of workflows as GitHub would, and says what goes wrong."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from release_places import REPO

from measurements.rehearsal import actions, programs
from measurements.rehearsal.expressions import ExpressionError, Scope, evaluate, fill_in
from measurements.rehearsal.occasions import MAIN, Occasion, occasions_of
from measurements.rehearsal.rehearsal import Rehearsed, Theatre
from measurements.rehearsal.source import IDENTITY, Source
from measurements.rehearsal.workflow import Workflow, WorkflowError, order_of, parse_document

if shutil.which("jq") is None:
    pytest.skip("jq is not on this machine; GitHub's have it", allow_module_level=True)

CHECKOUT = {"uses": "actions/checkout@0", "with": {"persist-credentials": False}}


def parse(jobs: dict[str, dict[str, object]], events: object = None) -> Workflow:
    read = {"permissions": {"contents": "read"}, "runs-on": "ubuntu-24.04", "steps": []}
    whole = {name: {**read, **job} for name, job in jobs.items()}
    return parse_document("test.yml", {"on": events or {"push": None}, "jobs": whole})


@pytest.fixture
def theatre(tmp_path: Path) -> Theatre:
    """A repository with one file."""
    root = tmp_path / "project"
    root.mkdir()
    (root / "words").write_text("of the commit")
    for command in (
        ["init", "--quiet"],
        ["add", "--all"],
        [*IDENTITY, "commit", "--quiet", "--message", "First"],
    ):
        subprocess.run(["git", "-C", str(root), *command], check=True)
    return Theatre(Source.clone(root, tmp_path / "source"), tmp_path / "folder")


def play(theatre: Theatre, jobs: dict[str, dict[str, object]], occasion: str = MAIN) -> Rehearsed:
    return theatre.play(parse(jobs), Occasion("push", occasion))


def test_a_step_runs_unchanged_in_a_clean_clone(theatre: Theatre) -> None:
    (theatre.source.root / "words").write_text("not committed")
    script = 'test "$(cat words)" = "of the commit"\ntest -z "$(git status --porcelain)"'
    report = play(theatre, {"job": {"steps": [CHECKOUT, {"run": script}]}}).report
    assert report.problems == []
    assert report.steps == [("job", 1), ("job", 2)]


def test_the_python_of_a_job_has_both_names(theatre: Theatre) -> None:
    set_up = {"uses": "actions/setup-python@0", "with": {"python-version": "3.12"}}
    prefix = "-c 'import sys; print(sys.prefix)'"
    script = f'test "$(python {prefix})" = "$(python3 {prefix})"'
    assert play(theatre, {"job": {"steps": [set_up, {"run": script}]}}).report.problems == []


def test_a_step_that_fails_is_shown_with_its_last_words(theatre: Theatre) -> None:
    steps = [{"run": "echo the reason\nfalse\necho never"}, {"run": "echo later"}]
    report = play(theatre, {"job": {"steps": steps}, "after": {"needs": "job"}}).report
    assert report.results == {"job": "failure", "after": "skipped"}
    (problem,) = report.problems
    assert problem.startswith("job: step 1: exit code 1") and problem.endswith("the reason")


def test_outputs_and_artefacts_reach_the_next_job(theatre: Theatre) -> None:
    kept = {"name": "kept", "path": "made"}
    first = {
        "outputs": {"list": "${{ steps.one.outputs.list }}"},
        "steps": [
            {
                "id": "one",
                "run": "echo 'list={\"n\": [1, 2]}' >>$GITHUB_OUTPUT\nmkdir made\necho x >made/f",
            },
            {"uses": "actions/upload-artifact@0", "with": kept},
        ],
    }
    second = {
        "needs": "first",
        "strategy": {"matrix": "${{ fromJSON(needs.first.outputs.list) }}"},
        "steps": [
            {"uses": "actions/download-artifact@0", "with": kept},
            {"run": 'test "$(cat made/f)" = x && test $N -gt 0', "env": {"N": "${{ matrix.n }}"}},
        ],
    }
    report = play(theatre, {"first": first, "second": second}).report
    assert report.problems == []
    assert report.steps.count(("second", 2)) == 2


def test_an_empty_matrix_fails_as_on_github(theatre: Theatre) -> None:
    empty = {"strategy": {"matrix": "${{ fromJSON('{\"include\": []}') }}"}}
    report = play(theatre, {"job": empty}).report
    assert "its matrix is empty" in report.problems[0]


def test_what_may_fail_is_no_problem(theatre: Theatre) -> None:
    jobs = {
        "optional": {"continue-on-error": True, "steps": [{"run": "false"}]},
        "after": {"needs": "optional"},
    }
    report = play(theatre, jobs).report
    assert report.results == {"optional": "failure", "after": "success"}
    assert report.problems == []


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        ({"uses": "actions/checkout@0"}, "persist-credentials: false"),
        ({"uses": "actions/checkout@0", "with": {"persist-credential": False}}, "takes no"),
        ({"uses": "somebody/else@0"}, "nothing stands for this action"),
        (
            {"uses": "actions/download-artifact@0", "with": {"name": "x", "path": "x"}},
            "there is no artefact x",
        ),
        ({"run": "gh release download v1 --dir x"}, "GH_TOKEN"),
        (
            {
                "run": "gh release create v1 --title t --notes-file n f",
                "env": {"GH_TOKEN": "${{ github.token }}"},
            },
            "no permission `contents: write`",
        ),
        ({"run": "docker run image"}, "no command that this stand-in knows"),
    ],
)
def test_what_github_would_refuse_is_a_problem(theatre: Theatre, step, problem: str) -> None:
    (found,) = play(theatre, {"job": {"steps": [step]}}).report.problems
    assert problem in found


def test_only_what_was_signed_for_the_tag_is_verified(theatre: Theatre) -> None:
    sign = {
        "permissions": {"id-token": "write", "attestations": "write"},
        "steps": [
            {"run": "echo x >file"},
            {"uses": "actions/attest-build-provenance@0", "with": {"subject-path": "file"}},
        ],
    }
    verify = (
        "gh attestation verify file --repo owner/project --source-ref $REF "
        "--signer-workflow owner/project/.github/workflows/release.yml"
    )
    token = {"GH_TOKEN": "${{ github.token }}", "REF": "${{ github.ref }}"}
    steps = [{"run": "echo x >file"}, {"run": verify, "env": token}]
    workflow = {"sign": sign, "verify": {"needs": "sign", "steps": steps}}
    assert play(theatre, workflow, "refs/tags/v1").report.problems == []
    (problem,) = play(theatre, {"verify": {"steps": steps}}, "refs/tags/v2").report.problems
    assert "file is not signed for refs/tags/v2" in problem


@pytest.mark.parametrize(
    ("events", "occasions"),
    [
        ({"pull_request": None, "push": {"branches": ["main"]}}, ["pull_request", "push"]),
        ({"push": {"tags": ["v*"]}, "workflow_dispatch": None}, ["workflow_dispatch", "push v1"]),
        ({"push": {"branches": ["main"], "tags": ["v*"]}}, ["push", "push v1"]),
        ({"release": {"types": ["published"]}}, ["release v1"]),
        ({"schedule": [{"cron": "17 4 * * 1"}]}, ["schedule"]),
    ],
)
def test_each_event_of_a_workflow_is_an_occasion(events, occasions) -> None:
    found = occasions_of(parse({}, events), "v1")
    assert [f"{o.event} {o.tag}".strip() for o in found] == occasions


def test_every_stand_in_says_what_it_does() -> None:
    functions = [action.perform for action in actions.ACTIONS.values()]
    functions += [*programs.PROGRAMS.values(), *programs.SCRIPTS.values()]
    assert all(function.__doc__ for function in functions)


def test_every_action_of_this_repository_has_a_stand_in() -> None:
    theatre = Theatre.__new__(Theatre)
    theatre.source = Source(REPO)
    steps = [s for w in theatre.workflows() for job in w.jobs.values() for s in job.steps]
    assert {step.uses for step in steps if step.uses} == actions.ACTIONS.keys()


# Expressions, and the YAML of a workflow.

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


# This repository's own workflows.


@pytest.fixture(scope="module")
def own(tmp_path_factory) -> Theatre:
    folder = tmp_path_factory.mktemp("own")
    return Theatre(Source.clone(REPO, folder / "source"), folder / "theatre")


@pytest.mark.rehearsal
def test_the_pages_of_every_version_are_shown(own: Theatre) -> None:
    rehearsals = list(own.play_all(["docs.yml"]))
    assert [problem for r in rehearsals for problem in r.report.problems] == []
    repository = own.forge("").server / "owner" / "project"
    listed = subprocess.run(
        ["git", "-C", str(repository), "show", "gh-pages:versions.json"],
        check=True,
        capture_output=True,
        text=True,
    )
    versions = [entry["version"] for entry in json.loads(listed.stdout)]
    assert versions == ["dev", own.source.version]


@pytest.mark.rehearsal
def test_the_workflows_of_pull_requests_and_weeks_succeed(own: Theatre) -> None:
    own.source.keep_cells()
    for rehearsed in own.play_all(["pull-request.yml", "weekly.yml"]):
        assert rehearsed.report.problems == [], rehearsed
