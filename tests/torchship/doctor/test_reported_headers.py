"""The reported environments, judged again from what is stored of their files' headers."""

from __future__ import annotations

from measurements.environments import outcomes
from measurements.environments.headers import Headers, load
from torchship.judge import judge

HEADERS = load()


def judged(headers: Headers) -> tuple[str, str]:
    verdict = judge(headers.binary, headers.runtime)
    state = "works" if verdict.accepted else "fails" if verdict.rejection else "unknown"
    return state, str((verdict.cause and verdict.cause.code) or "")


def test_the_verdicts_are_the_stored_ones() -> None:
    stored = {headers.case: (headers.state, headers.code) for headers in HEADERS}
    assert {headers.case: judged(headers) for headers in HEADERS} == stored


def test_the_stored_verdicts_are_those_of_the_environments() -> None:
    stored = {outcome.name: outcome for outcome in outcomes.load().outcomes}
    for headers in HEADERS:
        outcome = stored[headers.case]
        # What the headers tell is what reading tells; a look may tell more.
        looked = (outcome.state, outcome.code)
        read = (outcome.state_read, outcome.code_read) if outcome.state_read else looked
        assert read == (headers.state, headers.code)
    assert len(HEADERS) >= 30
