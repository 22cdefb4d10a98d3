"""The patterns by which torch-doctor knows a message, for the site's search."""

from __future__ import annotations

from torchship.judge.words import messages


def patterns() -> list[dict[str, str]]:
    """For each message: its patterns as JavaScript writes them, and the page of its code.

    They are in the order of the table, so that the first one found is the doctor's answer.
    """
    return [
        {
            "pattern": _in_javascript(message.pattern),
            "also": _in_javascript(message.also),
            "page": f"fails/codes/{message.code.lower()}.html",
            "title": f"{message.code}: {message.code.heading}",
        }
        for message in messages.MESSAGES
    ]


def _in_javascript(pattern: str) -> str:
    return pattern.replace("(?P<", "(?<")
