"""The reported environments, judged again from what is stored of their files' headers."""

from __future__ import annotations

import pytest

from measurements.environments import outcomes
from measurements.environments.headers import Headers, load
from torchship.judge import judge

HEADERS = load()


@pytest.mark.parametrize("headers", HEADERS, ids=lambda headers: headers.case)
def test_the_verdict_is_the_stored_one(headers: Headers) -> None:
    verdict = judge(headers.binary, headers.runtime)
    state = "works" if verdict.accepted else "fails" if verdict.rejection else "unknown"
    assert (state, str((verdict.cause and verdict.cause.code) or "")) == (
        headers.state,
        headers.code,
    )


def test_the_stored_verdicts_are_those_of_the_environments() -> None:
    stored = {outcome.name: outcome for outcome in outcomes.load().outcomes}
    for headers in HEADERS:
        outcome = stored[headers.case]
        assert (outcome.state, outcome.code) == (headers.state, headers.code)
    assert len(HEADERS) >= 30
