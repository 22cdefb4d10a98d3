"""What a run shows: lines for a log, a bar for a person, the end of a log where a step failed."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from steps import Step

from torchship.release import __main__
from torchship.release.matrix import cibuildwheel
from torchship.release.run.collect import log_of
from torchship.release.run.listing import Reporter
from torchship.release.run.shell import TAIL
from torchship.release.run.tasks import Outcome, Status


def show(outcomes, *, terminal: bool = False, verbose: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, width=120, force_terminal=terminal, color_system=None)
    tasks = [Step(name=outcome.task, act=lambda _context: []) for outcome in outcomes]
    with Reporter(console, tasks, verbose=verbose) as reporter:
        for task, outcome in zip(tasks, outcomes, strict=True):
            reporter.started(task)
            if terminal:
                reporter._bar.refresh()
            reporter.finished(task, outcome)
    return out.getvalue()


@pytest.fixture
def failed(tmp_path) -> Outcome:
    log = tmp_path / "glue.log"
    log.write_text("".join(f"line {number}\n" for number in range(200)))
    return Outcome("glue/x", Status.FAILED, 2.0, reason="no compiler; install one", log=log)


def test_a_log_gets_plain_lines() -> None:
    output = show(
        [Outcome("wheel/a", Status.DONE, 1.25), Outcome("wheel/b", Status.UNCHANGED, 0.0)]
    )
    assert "\x1b" not in output and "\r" not in output
    assert output.splitlines() == [
        "           wheel/a ...",
        "[  1/2]  done         1.2 s  wheel/a",
        "           wheel/b ...",
        "[  2/2]  unchanged           wheel/b",
    ]


def test_a_person_sees_what_is_running_and_how_far_it_is() -> None:
    output = show([Outcome("wheel/a", Status.DONE, 1.25)], terminal=True)
    assert "━" in output and "0/1" in output and "wheel/a" in output and "\x1b" in output
    assert "wheel/a ..." not in output


@pytest.mark.parametrize("terminal", [True, False])
def test_a_failure_shows_its_reason_and_the_end_of_its_log(failed, terminal) -> None:
    output = show([failed], terminal=terminal)
    assert "no compiler; install one" in output and str(failed.log) in output.replace("\n", "")
    assert "| line 199" in output and f"| line {200 - TAIL}" in output
    assert f"| line {200 - TAIL - 1}\n" not in output


def test_verbose_shows_the_whole_log(failed) -> None:
    assert "| line 0\n" in show([failed], verbose=True)


def test_what_is_skipped_says_why() -> None:
    output = show([Outcome("wheel/a", Status.SKIPPED, 0.0, reason="needs an nvcc 12.8")])
    assert "skipped" in output and "needs an nvcc 12.8" in output


def test_a_cell_has_one_log_of_all_its_steps(tmp_path) -> None:
    step = tmp_path / "step.log"
    step.write_text("compiler says\n")
    bad = Outcome("wheel/a", Status.FAILED, 1.0, reason="no wheel")
    log = "".join(map(log_of, [Outcome("glue/x", Status.DONE, 1.0, log=step), bad]))
    assert log.startswith("=== glue/x: done, 1.0 s\ncompiler says\n\n=== wheel/a: FAILED")
    assert "no wheel" in log


@pytest.mark.parametrize("console", [cibuildwheel.console, __main__.console])
def test_no_message_becomes_an_emoji(console: Console) -> None:
    with console.capture() as capture:
        console.print("a path such as C:x:y", markup=False)
        console.print("a compiler says [bold] :warning:", markup=False)
    assert capture.get() == "a path such as C:x:y\na compiler says [bold] :warning:\n"


def test_names_of_tasks_are_no_markup() -> None:
    outcome = Outcome("glue/[bold]", Status.DONE, 1.0)
    assert "glue/[bold]" in show([outcome])
    assert "glue/[bold]" in show([outcome], terminal=True)
