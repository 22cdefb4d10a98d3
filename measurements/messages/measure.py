"""Asks the doctor for each message of the corpus, and counts what it answers.

    python -m measurements.messages.measure [--half 1|2] [--list]

`corpus.json` holds short messages as their threads have them, without paths and names of persons,
each with the codes that are right by what the thread found out. A seed dealt them into two halves:
the table of messages was mended for the first, and the second was measured before that.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torchship.doctor.reasons import meaning
from torchship.judge.target import Target
from torchship.judge.words import codes

CORPUS = Path(__file__).with_name("corpus.json")


@dataclass(frozen=True)
class Message:
    """A message of the corpus."""

    thread: str
    text: str
    codes: tuple[str, ...]
    """The codes that are right."""
    half: int


@dataclass(frozen=True)
class Counts:
    """What was answered."""

    messages: int
    right: int
    wrong: int
    unknown: int


def read(path: Path = CORPUS) -> list[Message]:
    rows = json.loads(path.read_text(encoding="utf-8"))["messages"]
    return [
        Message(row["thread"], "\n".join(row["message"]), tuple(row["codes"]), row["half"])
        for row in rows
    ]


def answer(message: Message) -> str:
    """The code that the doctor gives, on a machine of which it knows nothing."""
    return meaning.diagnose(Target(), message.text, None).code


def mistakes(messages: list[Message]) -> Iterator[tuple[Message, str]]:
    for message in messages:
        code = answer(message)
        if code not in message.codes:
            yield message, code


def count(messages: list[Message]) -> Counts:
    failed = [code for _, code in mistakes(messages)]
    unknown = failed.count(codes.MESSAGE_UNKNOWN)
    right = len(messages) - len(failed)
    return Counts(len(messages), right, wrong=len(failed) - unknown, unknown=unknown)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--half", type=int, choices=(1, 2))
    parser.add_argument("--list", action="store_true", help="name each mistake")
    options = parser.parse_args()
    for half in (1, 2):
        if options.half in (None, half):
            messages = [message for message in read() if message.half == half]
            print(f"half {half}: {count(messages)}")
            for message, code in mistakes(messages) if options.list else ():
                print(f"  {message.thread}\n    {code}, not {' or '.join(message.codes)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
