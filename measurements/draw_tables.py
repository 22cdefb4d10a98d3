"""Draws the stored tables of pairs, foreign objects and environments into docs/numbers.

python -m measurements.draw_tables
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

from measurements import storage
from measurements.environments import cases as reported_cases
from measurements.environments import drawing, outcomes
from measurements.foreign_table import interpreter_table
from measurements.foreign_table import table as foreign_table
from measurements.foreign_table.table import Cell, ForeignTable
from measurements.pair_table import table as pair_table
from measurements.pair_table.table import PairTable
from torchship.release.matrix.generated import Part, filled
from torchship.release.matrix.support_table import row

REPO = Path(__file__).resolve().parents[1]

PAGES = REPO / "docs" / "numbers"
#: The name under which files that were damaged on purpose are stored beside distributions.
DAMAGED = "damaged files"
LETTERS = {"works": "W", "import error": "i", "call error": "c", "abort": "X", "wrong result": "!"}


def file_name(path: Path) -> str:
    """The path of a stored file in the checkout."""
    return f"measurements/results/{path.relative_to(storage.RESULTS).as_posix()}"


def draw_pairs(table: PairTable) -> str:
    """The grid of measured outcomes and of verdicts, and how many verdicts are right or wrong."""
    pairs = table.cells
    grid: dict[str, dict[str, str]] = defaultdict(dict)
    for pair in pairs:
        letter = LETTERS[pair.outcome]
        grid[pair.glue][pair.torch] = f"**{letter}**" if pair.accepted else letter
    aten = [pair for pair in pairs if pair.glue.startswith("aten")]
    stable = [pair for pair in pairs if pair.glue.startswith("stable")]
    working = [pair for pair in aten if pair.works]
    refused = [pair for pair in working if not pair.accepted]
    wrong = sum(pair.accepted and not pair.works for pair in pairs)
    right = sum(pair.accepted == pair.works for pair in stable)
    outcomes = Counter(pair.outcome for pair in aten).most_common()
    lines = [
        f"Every glue was loaded into every torch minor, {len(pairs)} ordered pairs. Each "
        "torch was installed; each pair ran in a process of its own and computed forward and "
        "backward in three dtypes and three batch sizes. The result came first, from the files "
        "alone. A row names the torch that a glue was built for, a column the torch beside which "
        "the glue ran.",
        "",
        row("built for", *table.minors),
        "|---" * (len(table.minors) + 1) + "|",
        *(row(f"`{glue}`", *map(letters.get, table.minors)) for glue, letters in grid.items()),
        "",
        "W: works; i: import error; c: error at the first call; X: the process died; !: wrong "
        "result; **bold**: the checker accepted the pair.",
        "",
        f"- ATen glue: {len(aten)} pairs; {', '.join(f'{n} {name}' for name, n in outcomes)}.",
        f"- Accepted although they do not work: **{wrong}**.",
        f"- Refused although they work: {len(refused)} of {len(working)} working ATen pairs"
        + (":" if refused else "."),
        *(f"  - `{pair.glue}` in torch {pair.torch}: {pair.reason}" for pair in refused),
        f"- Stable glue: {right} of {len(stable)} results are right.",
        "",
        f"Measured by `{table.command}` in {table.seconds} s ({table.machine}), commit "
        f"`{table.commit[:12]}`; the data, with every message, is in "
        f"`{file_name(pair_table.PATH)}`.",
    ]
    return "\n".join(lines)


@dataclass(frozen=True)
class Counts:
    """How many pairs of object and torch had which outcome and verdict; a row of the table."""

    pairs: int
    working: int
    wrongly_accepted: int
    wrongly_refused: int
    working_unknown: int
    vouched_unknown: int
    rightly_refused: int
    wrong_cause: int
    unknown: int


HEADINGS = (
    "pairs",
    "work",
    "accepted that fail",
    "working, refused",
    "working, unknown",
    "of these vouched",
    "refused rightly",
    "wrong cause",
    "unknown",
)


def count(cells: Iterable[Cell]) -> Counts:
    cells = list(cells)
    verdicts = Counter((cell.works, cell.verdict) for cell in cells)
    vouched = [cell for cell in cells if cell.vouched and cell.works]
    wrong = [cell for cell in cells if cell.right_cause is False]
    return Counts(
        pairs=len(cells),
        working=sum(cell.works for cell in cells),
        wrongly_accepted=verdicts[False, "works"],
        wrongly_refused=verdicts[True, "fails"],
        working_unknown=verdicts[True, "unknown"],
        vouched_unknown=sum(cell.verdict == "unknown" for cell in vouched),
        rightly_refused=verdicts[False, "fails"],
        wrong_cause=sum(cell.verdict == "fails" for cell in wrong),
        unknown=verdicts[True, "unknown"] + verdicts[False, "unknown"],
    )


def draw_foreign(table: ForeignTable) -> str:
    """Each distribution's counts of pairs (object, torch); rates of wrong and unknown verdicts."""
    by_distribution: dict[str, list[Cell]] = defaultdict(list)
    for column in table.columns:
        for item, cell in zip(table.objects, column.cells, strict=True):
            by_distribution[item.distribution].append(cell)
    cells = [cell for group in by_distribution.values() for cell in group]
    crashes = sum(cell.outcome.startswith("crash") for cell in cells)
    total = count(cells)
    slowest = max(cell.seconds for cell in cells)
    longest = max(sum(cell.seconds for cell in column.cells) for column in table.columns)
    torches = ", ".join(column.torch for column in table.columns)
    damaged = sum(item.distribution == DAMAGED for item in table.objects)
    foreign = len(table.objects) - damaged
    distributions = len(by_distribution.keys() - {DAMAGED})
    not_accepted = total.wrongly_refused + total.working_unknown
    lines = [
        f"Each of {foreign} objects of {distributions} distributions, and of {damaged} damaged "
        f"files, was checked from its files for {len(table.columns)} torches ({torches}) and "
        f"Python {table.python}, then loaded in a process for each torch ({crashes} processes "
        "died).",
        "",
        row("distribution", *HEADINGS),
        "|---" * (len(HEADINGS) + 1) + "|",
        *(row(name, *astuple(count(group))) for name, group in sorted(by_distribution.items())),
        row("**all**", *astuple(total)),
        "",
        f"- Accepted although they fail: **{total.wrongly_accepted}**.",
        f"- Working and not accepted: {percent(not_accepted, total.working)} "
        f"({total.wrongly_refused} refused; {total.working_unknown} unknown, "
        f"{total.vouched_unknown} of them although the requirement of their package names this "
        "torch and excludes later torches).",
        f"- Refusals with a wrong cause: {percent(total.wrong_cause, total.rightly_refused)}.",
        f"- Unknown: {percent(total.unknown, total.pairs)}.",
        f"- Slowest result: {slowest:.2f} s of processor time; all {len(table.objects)} "
        f"objects beside one torch: at most {longest:.1f} s.",
        "",
        f"Measured by `{table.command}` ({table.machine}); every result and the start of "
        f"every error of the loader is in `{file_name(foreign_table.PATH)}`.",
    ]
    return "\n".join(lines)


def percent(part: int, whole: int) -> str:
    return f"{100 * part / max(1, whole):.1f} %"


def pages() -> Iterator[tuple[Path, str]]:
    """Each page that has tables, and its text with the tables of today's data."""
    tables = {
        "glue-pairs": {"pair-table": draw_pairs(pair_table.load())},
        "doctor": {
            "foreign-table": draw_foreign(foreign_table.load()),
            "interpreter-table": interpreter_table.draw(interpreter_table.load()),
        },
        "environments": {
            "reported-table": drawing.draw(outcomes.load(), reported_cases.read()),
        },
    }
    for name, parts in tables.items():
        page = PAGES / f"{name}.md"
        content = page.read_text(encoding="utf-8")
        for part, drawn in parts.items():
            content = filled(page, content, Part(name=part, content=f"\n{drawn}\n\n"))
        yield page, content


if __name__ == "__main__":
    for page, content in pages():
        page.write_text(content, encoding="utf-8")
