"""Draw foreign_table.json as rates by distribution in docs/fails/compat.md, between two markers.

python scripts/foreign_table/render_foreign_table.py
"""

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from release.generated import filled  # noqa: E402

DATA = HERE / "foreign_table.json"
PAGE = HERE.parents[1] / "docs" / "fails" / "compat.md"


def counts(cells: list[dict[str, Any]]) -> dict[str, int]:
    """How often each thing happened among these cells."""
    works = [cell["outcome"] == "works" for cell in cells]
    said = [cell["verdict"] for cell in cells]
    pairs = list(zip(works, said, strict=True))
    return {
        "pairs": len(cells),
        "work": sum(works),
        "accepted that fail": pairs.count((False, "works")),
        "working, refused": pairs.count((True, "fails")),
        "working, unknown": pairs.count((True, "unknown")),
        "of these vouched": sum(
            pair == (True, "unknown") and cell["vouched"]
            for pair, cell in zip(pairs, cells, strict=True)
        ),
        "refused rightly": pairs.count((False, "fails")),
        "wrong cause": sum(
            cell["verdict"] == "fails" and cell.get("right_cause") is False for cell in cells
        ),
        "unknown": said.count("unknown"),
    }


def drawn(table: dict[str, Any]) -> str:
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for column in table["columns"]:
        for item, cell in zip(table["objects"], column["cells"], strict=True):
            if cell is not None:
                groups[item["distribution"]].append(cell)
    every = [cell for cells in groups.values() for cell in cells]
    head = list(counts([]))
    crashes = sum(cell["outcome"].startswith("crash") for cell in every)
    torches = ", ".join(column["torch"] for column in table["columns"])
    lines = [
        f"{len(table['objects'])} objects of {len(groups)} distributions beside "
        f"{len(table['columns'])} torches ({torches}), Python {table['python']}: each judged from "
        f"its files, then loaded in a process of its own ({crashes} of these died).",
        "",
        "| distribution | " + " | ".join(head) + " |",
        "|---" * (len(head) + 1) + "|",
    ]
    for name, cells in [*sorted(groups.items()), ("**all**", every)]:
        lines.append(f"| {name} | " + " | ".join(map(str, counts(cells).values())) + " |")
    total = counts(every)
    slowest = max(cell["seconds"] for cell in every)
    whole = max(sum(cell["seconds"] for cell in c["cells"]) for c in table["columns"])

    def rate(part: str, whole: str) -> str:
        return f"{100 * total[part] / max(1, total[whole]):.1f} %"

    total["not accepted"] = total["working, refused"] + total["of these vouched"]
    lines += [
        "",
        f"- Accepted that fail: **{total['accepted that fail']}**.",
        f"- Working and not accepted: {rate('not accepted', 'work')} ({total['working, refused']} "
        f"refused; {total['of these vouched']} unknown although the requirement of their package "
        "names this torch and leaves out later ones; the other unknown ones have no such "
        "requirement).",
        f"- Refusals with a wrong cause: {rate('wrong cause', 'refused rightly')}.",
        f"- Unknown: {rate('unknown', 'pairs')}.",
        f"- Slowest verdict: {slowest:.2f} s of processor time; all {len(table['objects'])} "
        f"objects beside one torch: at most {whole:.1f} s.",
        "",
        f"Measured by `{table['command']}` ({table['machine']}); every verdict and the start of "
        "every error of the loader is in `scripts/foreign_table/foreign_table.json`.",
    ]
    return "\n".join(lines)


def page() -> str:
    return filled(PAGE, "foreign-table", f"\n{drawn(json.loads(DATA.read_text()))}\n\n")


if __name__ == "__main__":
    PAGE.write_text(page())
