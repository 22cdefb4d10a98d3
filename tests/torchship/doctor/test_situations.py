"""The situations out of public threads: what is stored is theirs, and keeps what is promised."""

from __future__ import annotations

import re
from typing import Any

import pytest

from measurements import storage
from measurements.environments.situations import read

SITUATIONS = {one.name: one for one in read()}


def _findings() -> list[dict[str, Any]]:
    document: Any = storage.load(storage.RESULTS / "situations.json")
    findings: list[dict[str, Any]] = document["findings"]
    return findings


def test_every_situation_says_its_cause_and_who_can_mend_it() -> None:
    for one in SITUATIONS.values():
        assert bool(one.cause) != one.works, one.name
        assert bool(one.reach) != one.works, one.name
        assert one.command, one.name
        if one.thread:
            assert re.fullmatch(
                r"https://(github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+|(?!github)\S+)", one.thread
            )


def test_most_commands_within_reach_of_pypi_mend() -> None:
    newest = {one["name"]: one for one in _findings()}
    tried = [
        one["cure"]
        for one in newest.values()
        if SITUATIONS[one["name"]].reach == "pypi" and one["cure"] in ("mends", "mends nothing")
    ]
    assert tried.count("mends") >= 0.9 * len(tried)


def test_each_half_was_measured_whole() -> None:
    halves = [one["when"][:6] for one in _findings()]
    assert halves.count("first ") == sum(one.half == 1 for one in SITUATIONS.values()) == 33
    assert halves.count("second") == sum(one.half == 2 for one in SITUATIONS.values()) == 32


def test_no_situation_came_out_otherwise_than_it_is_written_down() -> None:
    for one in _findings():
        assert one["works"] == SITUATIONS[one["name"]].works, one["name"]


@pytest.mark.parametrize(
    ("when", "half", "count"),
    [
        ("new, as they came", 3, 20),
        ("drawn by a seed, as they came", 4, 30),
        ("of kinds in no draw, as they came", 5, 12),
    ],
)
def test_those_that_were_drawn_later_were_measured_whole(when: str, half: int, count: int) -> None:
    names = {one["name"] for one in _findings() if one["when"].startswith(when)}
    assert names == {one.name for one in SITUATIONS.values() if one.half == half}
    assert len(names) == count


def test_none_that_fails_is_called_working_and_none_that_works_is_refused() -> None:
    newest = {one["name"]: one for one in _findings()}
    for one in newest.values():
        assert (one["exit"] == 0) == one["works"], one["name"]
