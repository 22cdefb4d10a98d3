"""The table of other people's shared objects: verdicts and outcomes beside each torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, cast

from measurements import storage

PATH = storage.RESULTS / "foreign_table.json.xz"
LONGEST = 110
"""The most characters of a text that the table stores."""


@dataclass(frozen=True)
class Object:
    name: str
    distribution: str


@dataclass(frozen=True)
class Cell:
    """An object beside a torch: what the checker said, and what happened when it was loaded."""

    verdict: str
    """`works`, `fails` or `unknown`."""
    seconds: float
    """The verdict's processor time."""
    outcome: str
    """`works`, or how it failed."""
    vouched: bool
    """Whether the requirement of the object's package names this torch and excludes later ones."""
    dimension: str = ""
    observed: str = ""
    why: str = ""
    fix: str = ""
    error: str = ""
    """The start of the loader's error."""
    called: bool = False
    """Whether a function of the object was called, too."""
    right_cause: bool | None = None
    """Whether the verdict names a true cause; None if the object works or was accepted."""

    @property
    def works(self) -> bool:
        return self.outcome == "works"


@dataclass(frozen=True)
class Column:
    torch: str
    cells: list[Cell]
    """One for each object."""


@dataclass(frozen=True)
class ForeignTable:
    command: str
    machine: str
    python: str
    objects: list[Object]
    columns: list[Column]
    schema: int = 1


def load() -> ForeignTable:
    document = cast("dict[str, Any]", storage.load(PATH))
    return ForeignTable(
        command=document["command"],
        machine=document["machine"],
        python=document["python"],
        objects=[Object(**fields) for fields in document["objects"]],
        columns=[
            Column(column["torch"], [Cell(**fields) for fields in column["cells"]])
            for column in document["columns"]
        ],
    )


def save(table: ForeignTable) -> None:
    """Store the table without the fields that hold their default."""
    document = asdict(table)
    for column in document["columns"]:
        column["cells"] = [_without_defaults(cell) for cell in column["cells"]]
    storage.save(document, PATH)


def _without_defaults(cell: dict[str, object]) -> dict[str, object]:
    kept = {}
    for name, value in cell.items():
        if value not in ("", None) and (name, value) != ("called", False):
            kept[name] = value[:LONGEST] if isinstance(value, str) else value
    return kept
