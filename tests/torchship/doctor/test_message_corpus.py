"""The corpus of messages out of public threads: what is promised of them, and how it is kept."""

from __future__ import annotations

import re

import pytest

from measurements.messages import measure
from torchship.judge.rules import CODES

MESSAGES = measure.read()


@pytest.mark.parametrize("half", [1, 2])
def test_most_messages_are_explained_rightly_and_hardly_one_wrongly(half: int) -> None:
    counts = measure.count([message for message in MESSAGES if message.half == half])
    assert counts.messages >= 50
    assert counts.right >= 0.85 * counts.messages
    assert counts.wrong <= 0.02 * counts.messages


def test_every_message_names_its_thread_and_codes_that_exist() -> None:
    for message in MESSAGES:
        assert re.match(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+", message.thread)
        assert {*message.codes} <= CODES.keys()
        assert len(message.text) < 800
