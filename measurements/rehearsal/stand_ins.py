"""The register of stand-ins: what each of them takes, and what it does instead of the real thing.

A stand-in of a program is declared by the command lines that it takes, word by word: `<name>` is
any one word, `<name...>` one or more, `[name...]` any number. What no declaration takes is refused,
and so is what a stand-in finds wrong: an unknown image, a missing token, a file that is not there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .forge import Forge, Occasion
from .machine import Answer, Call, Refused
from .prebuilt import Prebuilt


@dataclass(frozen=True)
class Fault:
    """Something that happens before a job begins."""

    before: str
    strike: Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class World:
    """What a stand-in may look at: this checkout, the rest of the world, why the workflow runs,
    and prebuilt files.

    `real_cell` names a cell that is really built, by a clone of this checkout without stand-ins of
    its scripts; it is then the only one of the matrix. `cyclonedx` is the real cyclonedx-py, which
    then lists the components of wheels that are really installed.
    """

    repo: Path
    forge: Forge
    occasion: Occasion
    prebuilt: Prebuilt
    fault: Fault | None = None
    real_cell: str = ""
    cyclonedx: Path | None = None


@dataclass(frozen=True)
class Places:
    """The words of a call that stand in the places of a declaration."""

    single: Mapping[str, str]
    several: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> str:
        return self.single[name]


Action = Callable[[Call, Places, World], Answer | None]


@dataclass(frozen=True)
class StandIn:
    """A stand-in of a program: the command line that it takes, and what it then does."""

    usage: str
    action: Action

    @property
    def program(self) -> str:
        return self.usage.split()[0]

    @property
    def purpose(self) -> str:
        return (self.action.__doc__ or "").partition("\n")[0]

    def match(self, call: Call) -> Places | None:
        """The words in the places of the usage; None if the call does not follow it."""
        single: dict[str, str] = {}
        remaining = list(call.words)
        for place in self.usage.split():
            rest = re.fullmatch(r"<[\w-]+\.\.\.>|\[[\w-]+\.\.\.\]", place)
            if rest:
                return Places(single, tuple(remaining)) if remaining or place[0] == "[" else None
            if not remaining:
                return None
            word = remaining.pop(0)
            if name := re.fullmatch(r"<([\w-]+)>", place):
                single[name[1]] = word
            elif word != place:
                return None
        return None if remaining else Places(single)


_STAND_INS: list[StandIn] = []


def stand_in(*usages: str) -> Callable[[Action], Action]:
    """Registers a function as what programs do that are called like this."""

    def register(action: Action) -> Action:
        _STAND_INS.extend(StandIn(usage, action) for usage in usages)
        return action

    return register


def registered() -> Iterator[StandIn]:
    yield from _STAND_INS


def respond(call: Call, world: World) -> Answer:
    """What a program answers. Raises Refused if the real one would not do it."""
    candidates = [entry for entry in _STAND_INS if entry.program == call.program]
    for entry in candidates:
        places = entry.match(call)
        if places is not None:
            return entry.action(call, places, world) or Answer()
    usages = "".join(f"\n  {entry.usage}" for entry in candidates)
    raise Refused(f"{call}: {call.program} is only ever called as{usages}")
