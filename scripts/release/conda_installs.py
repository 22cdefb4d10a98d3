"""The table of what `conda install` of the package does beside each pytorch, as Markdown."""

import csv

from release import PROJECT, REPO

TABLE = REPO / "scripts" / "release" / "conda_installs.csv"
HEAD = (
    *("channels", "pytorch before", "asked for before", "driver"),
    *(PROJECT.distribution, "pytorch after", "note"),
)


def markdown() -> str:
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    lines = [HEAD, ("---",) * len(HEAD)]
    for row in rows:
        ours = {"refused": "**refused**", "*": "either"}.get(row["ours"], f"`{row['ours']}`")
        after = {"*": "either", "": "kept", "kept": "kept"}.get(row["pytorch"], "")
        after = after or f"a {row['pytorch'].upper()} build"
        before, asked = (
            f"`{row[key]}`" if row[key] else "none" for key in ("installed", "asked for")
        )
        lines.append(
            (row["channels"], before, asked, row["driver"] or "none", ours, after, row["note"])
        )
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)
