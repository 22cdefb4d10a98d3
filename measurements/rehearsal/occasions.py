"""When GitHub starts a workflow: one occasion for each event that the workflow names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch

from .workflow import Workflow

MAIN = "refs/heads/main"


@dataclass(frozen=True)
class Occasion:
    """Why a workflow runs: an event, and the ref for which it happened."""

    event: str
    ref: str = MAIN

    @property
    def ref_name(self) -> str:
        return self.ref.split("/", 2)[2]

    @property
    def tag(self) -> str:
        """The tag; "" for a branch."""
        return self.ref_name if self.ref.startswith("refs/tags/") else ""

    def __str__(self) -> str:
        return f"{self.event} of {self.ref_name}"


def occasions_of(workflow: Workflow, tag: str) -> list[Occasion]:
    """The occasions of a workflow; those of the tag that is released come last."""
    occasions = [
        occasion
        for event, settings in workflow.events.items()
        for occasion in _of_event(event, settings, tag)
    ]
    return sorted(occasions, key=lambda occasion: bool(occasion.tag))


def _of_event(event: str, settings: object, tag: str) -> Iterator[Occasion]:
    ref_of_tag = f"refs/tags/{tag}"
    if event == "release":
        yield Occasion(event, ref_of_tag)
    elif event != "push":
        yield Occasion(event)
    else:
        filters = settings if isinstance(settings, Mapping) else {}
        if "tags" not in filters or "branches" in filters:
            yield Occasion(event)
        if any(fnmatch(tag, str(pattern)) for pattern in filters.get("tags", [])):
            yield Occasion(event, ref_of_tag)
