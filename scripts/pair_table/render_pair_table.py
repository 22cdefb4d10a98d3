"""Draws pair_table.json as a grid in docs/fails/compat.md, between its two markers.

python scripts/pair_table/render_pair_table.py
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from release.generated import filled  # noqa: E402

DATA = HERE / "pair_table.json"
PAGE = HERE.parents[1] / "docs" / "fails" / "compat.md"

LETTERS = {
    "works": "W",
    "import error": "i",
    "call error": "c",
    "abort": "X",
    "wrong result": "!",
    "hang": "H",
}


def grid(table: dict[str, Any]) -> str:
    """The grid of measured outcomes with the judge's verdicts, and how many agree."""
    minors = table["minors"]
    cells = {(cell["glue"], cell["torch"]): cell for cell in table["cells"]}
    glues = list(dict.fromkeys(cell["glue"] for cell in table["cells"]))
    aten = [cell for cell in table["cells"] if cell["glue"].startswith("aten")]
    stable = [cell for cell in table["cells"] if cell["glue"].startswith("stable")]
    works = [cell for cell in aten if cell["outcome"] == "works"]
    refused = [cell for cell in works if not cell["accepted"]]
    wrong = [c for c in table["cells"] if c["accepted"] and c["outcome"] != "works"]
    right = sum(cell["accepted"] == (cell["outcome"] == "works") for cell in stable)
    lines = [
        "",
        f"Every glue was loaded into every torch minor, {len(table['cells'])} ordered pairs. Each "
        "torch was installed; each pair ran in a process of its own and computed forward and "
        "backward in three dtypes and three batch sizes. The verdict came first, from the files "
        "alone. Rows are what a glue was built for, columns what it was run in.",
        "",
        "| built for | " + " | ".join(minors) + " |",
        "|---" * (len(minors) + 1) + "|",
    ]
    for glue in glues:
        row = []
        for minor in minors:
            cell = cells[glue, minor]
            letter = LETTERS[cell["outcome"]]
            row.append(f"**{letter}**" if cell["accepted"] else letter)
        lines.append(f"| `{glue}` | " + " | ".join(row) + " |")
    outcomes = Counter(cell["outcome"] for cell in aten)
    lines += [
        "",
        "W works, i import error, c error at the first call, X the process died, ! wrong result; "
        "**bold**: the judge accepted it.",
        "",
        f"- ATen glue: {len(aten)} pairs; "
        + ", ".join(f"{number} {name}" for name, number in outcomes.most_common())
        + ".",
        f"- Accepted although it does not work: **{len(wrong)}**.",
        f"- Refused although it works: {len(refused)} of {len(works)} working ATen pairs"
        + (":" if refused else "."),
        *(f"  - `{c['glue']}` in torch {c['torch']}: {c['reason']}" for c in refused),
        f"- Stable glue: {right} of {len(stable)} predicted.",
        "",
        f"Measured by `{table['command']}` in {table['seconds']} s ({table['machine']}), commit "
        f"`{table['commit'][:12]}`; the data, with every message, is in "
        "`scripts/pair_table/pair_table.json`.",
        "",
    ]
    return "\n".join([*lines, ""])


def page() -> str:
    return filled(PAGE, "pair-table", grid(json.loads(DATA.read_text())))


if __name__ == "__main__":
    PAGE.write_text(page())
