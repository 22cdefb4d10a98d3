"""`conda install lltm` as conda does it, with py-rattler's solver: attempts that free ever more.

conda asks its solver for what was asked for before, for what is installed, and for the new package.
First it holds all that was only a dependency; in the last attempt it holds nothing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from machines import machine
from release_places import REPO

if TYPE_CHECKING:
    from rattler import RepoDataRecord


@dataclass(frozen=True)
class Case:
    """A row of the table."""

    channels: str
    installed: str
    requested: str
    driver: str
    lltm: str
    pytorch: str
    note: str

    @property
    def name(self) -> str:
        parts = (
            self.channels,
            self.installed or "nothing",
            self.requested,
            self.driver or "no driver",
        )
        return ", ".join(word for word in parts if word)

    @property
    def history(self) -> list[str]:
        return [spec for spec in self.requested.split("; ") if spec]


def cases() -> list[Case]:
    """The rows of the page's table."""
    page = (REPO / "docs" / "numbers" / "conda-cases.md").read_text(encoding="utf-8")
    table = page.partition("<!-- installs:begin -->\n")[2].partition("<!-- installs:end -->")[0]
    plain = {"none": "", "either": "*", "a CPU build": "cpu", "a CUDA build": "cuda"}
    bare = re.sub(r"`|\*\*", "", table)  # without code and bold type
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in bare.splitlines()]
    return [Case(*(plain.get(cell, cell) for cell in row)) for row in rows[2:]]


def name_of(record: RepoDataRecord) -> str:
    return str(record.name.normalized)


class Attempt(NamedTuple):
    """What conda asks its solver for in one attempt, and which packages it must leave alone."""

    specs: list[str]
    locked: Sequence[RepoDataRecord] = ()  # stay if they can
    pinned: Sequence[RepoDataRecord] = ()  # stay, or there is no solution
    constraints: Sequence[str] = ()


class Flow:
    """Solves against these channels, name -> URL."""

    def __init__(self, urls: dict[str, str], cache: Path) -> None:
        self.urls = urls
        self.cache = cache

    def solve(self, case: Case, attempt: Attempt, driver: str | None) -> list[RepoDataRecord]:
        import rattler

        urls = [self.urls[name] for name in ("lltm", *case.channels.split(" + "))]
        return asyncio.run(
            rattler.solve(
                sources=[rattler.Channel(url) for url in urls],
                specs=attempt.specs,
                gateway=rattler.Gateway(cache_dir=self.cache),
                platforms=["linux-64", "noarch"],
                virtual_packages=machine(driver),
                channel_priority=rattler.ChannelPriority.Disabled,  # conda's "flexible"
                locked_packages=list(attempt.locked),
                pinned_packages=list(attempt.pinned),
                constraints=list(attempt.constraints),
            )
        )

    def environment(self, case: Case) -> list[RepoDataRecord]:
        """What is installed before, whatever driver that took."""
        if not case.installed:
            return []
        version, build = case.installed.split()
        python = build.partition("py")[2].replace(".", "")[:3]
        names = [spec for spec in case.history if spec.split()[0] != "pytorch"]
        exact = (
            f"pytorch =={version} {build.replace('.', '*')}"  # no dot is in a valid build string
        )
        return self.solve(case, Attempt([exact, f"python 3.{python[1:]}.*", *names]), "99")

    def install(self, case: Case, package: str = "lltm") -> tuple[str, str]:
        """The package's variant and what became of pytorch; "refused" and the solver's reason."""
        from rattler.exceptions import SolverError

        before = {name_of(record): record for record in self.environment(case)}
        history = {spec.split()[0]: spec for spec in case.history}
        new = {name: record for name, record in before.items() if name not in history}
        python = before["python"].version if before else ""
        fixed = [f"python {str(python).rpartition('.')[0]}.*"] if before else []
        old = [record for name, record in before.items() if name in history]
        requested = [package, *history.values()]
        neutered = [" ".join(spec.split()[:2]) for spec in requested]  # without the build string
        attempts = [
            Attempt([*requested, *new], old, [*new.values()], fixed),
            Attempt([*requested, *new], [*old, *new.values()], constraints=fixed),
            Attempt(requested, old, constraints=fixed),
            Attempt(neutered, old, constraints=fixed),
        ]
        why = ""
        for attempt in attempts[: 4 if before else 1]:
            try:
                solution = self.solve(case, attempt, case.driver or None)
            except SolverError as error:
                why = why or str(error)
                continue
            after = {name_of(record): record for record in solution}
            return variant_of(after[package]), change(before.get("pytorch"), after["pytorch"])
        return "refused", why


def variant_of(record: RepoDataRecord) -> str:
    """`cuda128_aten24_abi1_200` -> `cuda128_aten24`."""
    return "_".join(str(record.build).split("_")[:2])


def change(old: RepoDataRecord | None, new: RepoDataRecord) -> str:
    """`kept`, or the device of the build that came."""
    if old is not None and (old.version, old.build) == (new.version, new.build):
        return "kept"
    return "cuda" if "cuda" in str(new.build) else "cpu"
