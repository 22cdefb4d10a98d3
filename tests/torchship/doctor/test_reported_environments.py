"""The environments of public reports: what is stored keeps what is promised."""

from __future__ import annotations

import re

from measurements.environments import outcomes
from measurements.environments.cases import read

CASES = read()


def test_every_case_names_its_report_and_its_cause() -> None:
    assert len(CASES) >= 60
    assert sum(case.is_of_new_kind for case in CASES) >= 30
    for case in CASES:
        assert re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+", case.thread)
        assert bool(case.causes) != case.works


def test_stored_outcomes_are_those_of_the_cases() -> None:
    stored = [outcome.name for outcome in outcomes.load().outcomes]
    assert stored == [case.name for case in CASES if case.name in stored]
    assert len(stored) >= 60


def test_what_is_stored_keeps_the_promise() -> None:
    counts = outcomes.count(outcomes.load().outcomes, CASES)
    assert counts.accepted_that_fail == 0
    assert counts.refused_that_work <= 0.02 * counts.working
    assert counts.unknown_that_work <= 0.1 * counts.working
    assert counts.unknown_that_fail <= 0.1 * counts.failing
    assert counts.right_causes >= 0.95 * counts.refused
    assert counts.with_command >= 0.8 * counts.failing
    assert counts.mended >= 0.9 * counts.carried_out
