"""Records: what is enforced when a program runs, and what a type checker sees."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_client import PROJECT

from torchship.judge.project import Project, Record
from torchship.judge.records import OK, Finding
from torchship.judge.verdict.selection import Selection

REPO = Path(__file__).resolve().parents[3]

WRONG_CALLS = """
from torchship.judge.records import OK, Finding

Finding("torch version", OK, "2.9", "torch 2.9")
Finding(dimension="torch version", status=OK, observed="2.9")
Finding(dimension="torch version", status=OK, observed=2.9, needed="torch 2.9")
Finding(dimension="torch version", status=OK, observed="2.9", needed="torch 2.9", reason="")
Finding(dimension="torch version", status=OK, observed="2.9", needed="torch 2.9").why = ""
Finding(dimension="torch version", status=OK, observed="2.9", needed="torch 2.9")
"""


def test_a_finding_is_made_by_keyword_alone() -> None:
    with pytest.raises(TypeError, match="4 values without a name"):
        Finding("torch version", OK, "2.9", "torch 2.9")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="Finding has the fields dimension, status"):
        Finding(dimension="torch version", status=OK, observed="2.9")  # type: ignore[call-arg]
    finding = Finding(dimension="torch version", status=OK, observed="2.9", needed="torch 2.9")
    assert finding.needed == "torch 2.9"
    assert finding.why == ""


def test_a_field_given_twice_or_unknown_is_an_error() -> None:
    class Pair(Record):
        left: int
        right: int = 0

    assert Pair(1, right=2) == Pair(left=1, right=2)
    for values, named in (
        ((1,), {"left": 1}),
        ((), {"right": 1}),
        ((1, 2, 3), {}),
        ((1,), {"x": 1}),
    ):
        with pytest.raises(TypeError, match="Pair has the fields left, right"):
            Pair(*values, **named)


def test_mypy_checks_every_call_of_a_record(tmp_path: Path) -> None:
    program = tmp_path / "wrong_calls.py"
    program.write_text(WRONG_CALLS)
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-version", "3.10", str(program)],
        capture_output=True,
        text=True,
        cwd=REPO,
    )
    errors = [line.split(":")[1] for line in run.stdout.splitlines() if ": error: " in line]
    assert errors == ["4", "5", "6", "7", "8"], run.stdout + run.stderr


def records_below(kind: type[Record]) -> Iterator[type[Record]]:
    for one in kind.__subclasses__():
        yield one
        yield from records_below(one)


def test_many_fields_are_given_by_name() -> None:
    """Two of them could be swapped unseen. `Support` is a line of a table as it stands there, and
    of an `Environment` the first field alone is given without its name."""
    judge = {one for one in records_below(Record) if one.__module__.startswith("torchship.judge")}
    by_position = {one.__name__ for one in judge if len(one._fields) > 5 and one._positional}
    assert by_position <= {"Support", "Environment"}
    assert {Project, Selection} <= judge


def test_a_package_that_says_nothing_of_it_has_no_glue_for_cuda() -> None:
    """As those that were made before there was any."""
    assert not PROJECT.has_cuda_glue
