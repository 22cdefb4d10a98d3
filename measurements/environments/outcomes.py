"""What came out: the stored outcomes of all cases, and how often the doctor was right."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from measurements import storage
from measurements.environments.cases import Case

PATH = storage.RESULTS / "reported_environments.json"
#: Where a command names an index that cannot be reached here, nobody can say what it mends.
OUT_OF_REACH = "out of reach"
MENDS = "mends"
MENDS_NOTHING = "mends nothing"


@dataclass(frozen=True)
class Outcome:
    """One environment: what happened in it, what the doctor said, and what its fix did."""

    name: str
    torch: str
    works: bool
    error: str
    """The last line of the failing code; "" if it works."""
    state: str
    """The doctor's verdict: `works`, `fails` or `unknown`."""
    code: str = ""
    why: str = ""
    command: str = ""
    """The first command of the doctor's fixes; "" if there is none."""
    cure: str = ""
    """What the command did: `mends`, `mends nothing`, `out of reach`; "" without one."""
    state_after: str = ""
    """The doctor's verdict on the mended environment; "" where none was mended."""
    state_before: str = ""
    """The verdict of the doctor before it was mended for any of these cases; "" if not asked."""
    code_before: str = ""
    state_read: str = ""
    """The verdict of reading alone (`--no-import`); "" if not asked."""
    code_read: str = ""
    seconds: float = 0.0
    """What the first verdict took."""
    commit: str = ""
    """The commit of the doctor that was asked."""


@dataclass(frozen=True)
class Table:
    """All outcomes, with what made them."""

    command: str
    machine: str
    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True)
class Counts:
    """How often the doctor was right."""

    cases: int
    working: int
    failing: int
    accepted_that_fail: int
    refused_that_work: int
    unknown_that_work: int
    unknown_that_fail: int
    refused: int
    right_causes: int
    with_command: int
    carried_out: int
    mended: int
    refused_after: int
    """The mended environments of which the doctor still says that something fails."""


def count(outcomes: Iterable[Outcome], cases: Iterable[Case]) -> Counts:
    by_name = {case.name: case for case in cases}
    chosen = [outcome for outcome in outcomes if outcome.name in by_name]
    working = [outcome for outcome in chosen if outcome.works]
    failing = [outcome for outcome in chosen if not outcome.works]
    refused = [outcome for outcome in failing if outcome.state == "fails"]
    with_command = [outcome for outcome in failing if outcome.command]
    carried_out = [outcome for outcome in with_command if outcome.cure != OUT_OF_REACH]
    return Counts(
        cases=len(chosen),
        working=len(working),
        failing=len(failing),
        accepted_that_fail=_count_state(failing, "works"),
        refused_that_work=_count_state(working, "fails"),
        unknown_that_work=_count_state(working, "unknown"),
        unknown_that_fail=_count_state(failing, "unknown"),
        refused=len(refused),
        right_causes=sum(o.code in by_name[o.name].causes for o in refused),
        with_command=len(with_command),
        carried_out=len(carried_out),
        mended=sum(outcome.cure == MENDS for outcome in carried_out),
        refused_after=sum(outcome.state_after == "fails" for outcome in carried_out),
    )


def _count_state(outcomes: Iterable[Outcome], state: str) -> int:
    return sum(outcome.state == state for outcome in outcomes)


def load(path: Path = PATH) -> Table:
    """Read a stored table; one without outcomes if the file does not exist."""
    if not path.exists():
        return Table(command="", machine="", outcomes=())
    stored = storage.load(path)
    assert isinstance(stored, dict)
    outcomes = tuple(Outcome(**record) for record in stored["outcomes"])
    return Table(command=stored["command"], machine=stored["machine"], outcomes=outcomes)


def save(table: Table, path: Path = PATH) -> None:
    outcomes = [asdict(outcome) for outcome in table.outcomes]
    document = {"command": table.command, "machine": table.machine, "outcomes": outcomes}
    storage.save(document, path)
