"""The patterns by which torch-doctor knows a message, for the site's search."""

from __future__ import annotations

from torchship.judge import messages


def patterns() -> list[dict[str, str]]:
    """For each message: its pattern as JavaScript writes it, and the page of its code."""
    return [
        {
            "pattern": message.pattern.replace("(?P<", "(?<"),
            "page": f"fails/codes/{message.code.lower()}.html",
            "title": f"{message.code}: {message.code.heading}",
        }
        for message in messages.MESSAGES
        if not message.also  # the search knows one line
    ]
