"""Draws pair_table.json and foreign_table.json as tables into docs/fails/compat.md.

python scripts/draw_tables.py
"""

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from torchship.release.generated import Part, filled  # noqa: E402
from torchship.release.support_table import row  # noqa: E402

PAGE = HERE.parent / "docs" / "fails" / "compat.md"
LETTERS = {"works": "W", "import error": "i", "call error": "c", "abort": "X", "wrong result": "!"}
Cells = list[dict[str, Any]]


def pairs(table: dict[str, Any]) -> str:
    """The grid of measured outcomes and of verdicts, and how many verdicts are right or wrong."""
    minors, every = table["minors"], table["cells"]
    shown: dict[str, dict[str, str]] = defaultdict(dict)
    for cell in every:
        cell["works"], letter = cell["outcome"] == "works", LETTERS[cell["outcome"]]
        shown[cell["glue"]][cell["torch"]] = f"**{letter}**" if cell["accepted"] else letter
    aten, stable = ([c for c in every if c["glue"].startswith(n)] for n in ("aten", "stable"))
    works = [cell for cell in aten if cell["works"]]
    refused = [cell for cell in works if not cell["accepted"]]
    wrong = sum(cell["accepted"] and not cell["works"] for cell in every)
    right = sum(cell["accepted"] == cell["works"] for cell in stable)
    outcomes = Counter(cell["outcome"] for cell in aten).most_common()
    lines = [
        f"Every glue was loaded into every torch minor, {len(every)} ordered pairs. Each "
        "torch was installed; each pair ran in a process of its own and computed forward and "
        "backward in three dtypes and three batch sizes. The verdict came first, from the files "
        "alone. A row names the torch that a glue was built for, a column the torch beside which "
        "the glue ran.",
        "",
        row("built for", *minors),
        "|---" * (len(minors) + 1) + "|",
        *(row(f"`{glue}`", *map(cells.get, minors)) for glue, cells in shown.items()),
        "",
        "W: works; i: import error; c: error at the first call; X: the process died; !: wrong "
        "result; **bold**: the judge accepted the pair.",
        "",
        f"- ATen glue: {len(aten)} pairs; {', '.join(f'{n} {name}' for name, n in outcomes)}.",
        f"- Accepted although they do not work: **{wrong}**.",
        f"- Refused although they work: {len(refused)} of {len(works)} working ATen pairs"
        + (":" if refused else "."),
        *(f"  - `{c['glue']}` in torch {c['torch']}: {c['reason']}" for c in refused),
        f"- Stable glue: {right} of {len(stable)} verdicts are right.",
        "",
        f"Measured by `{table['command']}` in {table['seconds']} s ({table['machine']}), commit "
        f"`{table['commit'][:12]}`; the data, with every message, is in "
        "`scripts/pair_table/pair_table.json`.",
    ]
    return "\n".join(lines)


def counts(cells: Cells) -> dict[str, int]:
    """The numbers of a row of the foreign table: how many pairs had which outcome and verdict."""
    seen = Counter((cell["outcome"] == "works", cell["verdict"]) for cell in cells)
    vouched = [cell for cell in cells if cell["vouched"] and cell["outcome"] == "works"]
    wrong = [cell for cell in cells if cell.get("right_cause") is False]
    return {
        "pairs": len(cells),
        "work": sum(number for (works, _), number in seen.items() if works),
        "accepted that fail": seen[False, "works"],
        "working, refused": seen[True, "fails"],
        "working, unknown": seen[True, "unknown"],
        "of these vouched": sum(cell["verdict"] == "unknown" for cell in vouched),
        "refused rightly": seen[False, "fails"],
        "wrong cause": sum(cell["verdict"] == "fails" for cell in wrong),
        "unknown": seen[True, "unknown"] + seen[False, "unknown"],
    }


def foreign(table: dict[str, Any]) -> str:
    """Each distribution's counts of pairs (object, torch); rates of wrong and unknown verdicts."""
    columns, groups = table["columns"], defaultdict[str, Cells](list)
    for column in columns:
        for item, cell in zip(table["objects"], column["cells"], strict=True):
            groups[item["distribution"]].append(cell)
    every = [cell for cells in groups.values() for cell in cells]
    crashes = sum(cell["outcome"].startswith("crash") for cell in every)
    total, objects = counts(every), len(table["objects"])
    slowest = max(cell["seconds"] for cell in every)
    longest = max(sum(cell["seconds"] for cell in column["cells"]) for column in columns)
    vouched, refused = total["of these vouched"], total["working, refused"]

    def rate(part: int, whole: str) -> str:
        return f"{100 * part / max(1, total[whole]):.1f} %"

    lines = [
        f"Each of {objects} objects of {len(groups)} distributions was judged from its files for "
        f"{len(columns)} torches ({', '.join(column['torch'] for column in columns)}) and Python "
        f"{table['python']}, then loaded in a process for each torch ({crashes} processes died).",
        "",
        row("distribution", *total),
        "|---" * (len(total) + 1) + "|",
        *(row(name, *counts(cells).values()) for name, cells in sorted(groups.items())),
        row("**all**", *total.values()),
        "",
        f"- Accepted although they fail: **{total['accepted that fail']}**.",
        f"- Working and not accepted: {rate(refused + vouched, 'work')} ({refused} "
        f"refused; {vouched} unknown although the requirement of their package names this torch "
        "and excludes later torches; no other unknown pair has such a requirement).",
        f"- Refusals with a wrong cause: {rate(total['wrong cause'], 'refused rightly')}.",
        f"- Unknown: {rate(total['unknown'], 'pairs')}.",
        f"- Slowest verdict: {slowest:.2f} s of processor time; all {objects} "
        f"objects beside one torch: at most {longest:.1f} s.",
        "",
        f"Measured by `{table['command']}` ({table['machine']}); every verdict and the start of "
        "every error of the loader is in `scripts/foreign_table/foreign_table.json`.",
    ]
    return "\n".join(lines)


def page() -> str:
    text = PAGE.read_text(encoding="utf-8")
    for name, draw in (("pair", pairs), ("foreign", foreign)):
        data = HERE / f"{name}_table" / f"{name}_table.json"
        drawn = draw(json.loads(data.read_text(encoding="utf-8")))
        text = filled(PAGE, text, Part(f"{name}-table", f"\n{drawn}\n\n"))
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
