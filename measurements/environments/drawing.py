"""Draws the outcomes of the reported environments as a table of counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from measurements.environments.cases import Case
from measurements.environments.outcomes import MENDS, OUT_OF_REACH, Counts, Outcome, Table, count
from torchship.release.matrix.support_table import row

HEADINGS = (
    "environments",
    "work",
    "accepted that fail",
    "working, refused",
    "working, cannot be told",
    "failing, cannot be told",
    "right causes",
    "with a command",
    "carried out",
    "fixed",
)
NAMES = {
    "cpu213": "torch 2.13, CPU",
    "cuda210": "torch 2.10, CUDA 12.8",
    "cuda215": "torch 2.15, CUDA 13",
}


def draw(table: Table, cases: Sequence[Case]) -> str:
    """The table, and a line for each environment of which something is not right."""
    of_new_kinds = [case for case in cases if case.is_of_new_kind]
    by_torch = {name: [case for case in cases if case.torch == key] for key, name in NAMES.items()}
    rows = [
        *((name, _cells(count(table.outcomes, group))) for name, group in by_torch.items()),
        ("**all**", _cells(count(table.outcomes, cases))),
        ("of new kinds", _cells(count(table.outcomes, of_new_kinds))),
        (
            "for which the doctor was not changed",
            _cells(count(table.outcomes, [case for case in cases if not case.is_mended_for])),
        ),
        ("all, the doctor of before", _cells_before(count(_before(table.outcomes), cases))),
        (
            "of new kinds, the doctor of before",
            _cells_before(count(_before(table.outcomes), of_new_kinds)),
        ),
    ]
    made = {outcome.name for outcome in table.outcomes}
    left_out = [f"`{case.name}`" for case in cases if case.name not in made]
    wrong = [line for outcome in table.outcomes for line in _remarks(outcome, cases)]
    return "\n".join(
        [
            row("beside", *HEADINGS),
            "|---" * (len(HEADINGS) + 1) + "|",
            *(row(name, *cells) for name, cells in rows),
            "",
            "What is not right:" if wrong else "Nothing else is wrong.",
            "",
            *wrong,
            "",
            f"Written down and not made yet: {', '.join(left_out) or 'none'}.",
            "",
            f"Measured by `{table.command}` ({table.machine}); every outcome is in "
            "`measurements/results/reported_environments.json`.",
        ]
    )


def _cells(counts: Counts) -> list[str]:
    return [
        *_cells_before(counts)[:7],
        str(counts.with_command),
        str(counts.carried_out),
        str(counts.mended),
    ]


def _cells_before(counts: Counts) -> list[str]:
    return [
        str(counts.cases),
        str(counts.working),
        str(counts.accepted_that_fail),
        str(counts.refused_that_work),
        str(counts.unknown_that_work),
        str(counts.unknown_that_fail),
        f"{counts.right_causes} of {counts.refused}",
        "",
        "",
        "",
    ]


def _before(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """The outcomes with the verdicts of the doctor before it was mended for any of these cases."""
    return [
        replace(outcome, state=outcome.state_before, code=outcome.code_before, command="", cure="")
        for outcome in outcomes
    ]


def _remarks(outcome: Outcome, cases: Iterable[Case]) -> list[str]:
    case = next(case for case in cases if case.name == outcome.name)
    address = case.thread.removeprefix("https://github.com/")
    start = f"- [{address}]({case.thread}), `{outcome.name}`: "
    if outcome.state == "unknown":
        return [f"{start}cannot be told ({outcome.code}): {_one_line(outcome.why)}"]
    if (outcome.state == "works") != outcome.works:
        truth = "works" if outcome.works else f"fails ({_one_line(outcome.error)})"
        return [f"{start}said `{outcome.state}` ({outcome.code}), and it {truth}"]
    if case.works and not outcome.works:
        return [f"{start}works by the report, and fails here ({outcome.code}): said `fails`"]
    if not outcome.works and outcome.code not in case.causes:
        causes = ", ".join(case.causes)
        return [f"{start}named {outcome.code}, and the report's cause is one of {causes}"]
    if outcome.command and outcome.cure not in (MENDS, OUT_OF_REACH):
        return [f"{start}the command fixes nothing: `{_one_line(outcome.command)}`"]
    return []


def _one_line(words: str) -> str:
    return " ".join(words.split())[:160].replace("|", "\\|").replace("<", "&lt;")
