"""The environments of public reports: what is stored keeps what is promised."""

from __future__ import annotations

import re

import pytest

from measurements.environments import outcomes
from measurements.environments.cases import read
from measurements.environments.outcomes import Counts

CASES = read()


@pytest.fixture(scope="module")
def counts() -> Counts:
    return outcomes.count(outcomes.load().outcomes, CASES)


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


def test_most_stored_cases_taught_the_doctor_nothing() -> None:
    stored = {outcome.name: outcome for outcome in outcomes.load().outcomes}
    others = [case for case in CASES if case.name in stored and not case.is_mended_for]
    assert len(others) >= 30
    # Where the doctor of before was wrong, and is right now, it was changed for the case.
    for case in others:
        outcome = stored[case.name]
        is_right = outcome.state == ("works" if outcome.works else "fails")
        assert outcome.state_before == outcome.state or not is_right, case.name


def test_no_environment_is_accepted_that_fails(counts: Counts) -> None:
    assert counts.accepted_that_fail == 0


def test_few_environments_are_refused_that_work(counts: Counts) -> None:
    assert counts.refused_that_work <= 0.02 * counts.working
    assert counts.unknown_that_work <= 0.1 * counts.working


def test_of_few_failing_environments_nothing_can_be_told(counts: Counts) -> None:
    assert counts.unknown_that_fail <= 0.1 * counts.failing


def test_causes_are_those_of_the_reports(counts: Counts) -> None:
    assert counts.right_causes >= 0.95 * counts.refused


def test_commands_are_given_and_mend(counts: Counts) -> None:
    assert counts.with_command >= 0.8 * counts.failing
    assert counts.mended >= 0.9 * counts.carried_out
