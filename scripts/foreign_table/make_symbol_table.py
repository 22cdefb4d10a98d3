"""Measure which torch minors export the symbols that other people's extensions use.

    python scripts/foreign_table/make_symbol_table.py --work FOLDER

It writes symbols.json beside the checker's code. It leaves out symbols that every minor has, or
that disappear and come back, since they identify no minor, and those of GPUs, which depend on the
build. The objects are those that make_foreign_table.py has unpacked into the same folder.
"""

import argparse
import json
import re
import shutil
from collections import defaultdict
from pathlib import Path

from make_foreign_table import fetch, symbols, torch_in

from engine.compat.binary import is_torch_symbol, symbol_flavour
from engine.compat.layouts import LAYOUTS, SYMBOLS
from engine.compat.records import dotted

#: Older wheels of PyPI have the old C++ ABI, other builds of the same minor the new one.
FIRST_NEW_ABI = (2, 7)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--work", type=Path, required=True)
    work = parser.parse_args().work.resolve()
    objects = [Path(task["root"]) / task["object"] for task in fetch(work)]
    used = symbols("--undefined-only", *objects)
    asked = {
        name
        for name in used
        if is_torch_symbol(name.encode()) and not re.search("cuda|hip|xpu", name, re.IGNORECASE)
    }
    having: dict[str, list[tuple[int, int]]] = defaultdict(list)
    minors = sorted(LAYOUTS)
    for minor in minors:
        folder = torch_in(work, f"{dotted(minor)}.*", "--no-deps")
        exported = symbols("--defined-only", *sorted((folder / "torch" / "lib").glob("*.so*")))
        for name in asked:
            if name in exported or (minor < FIRST_NEW_ABI and symbol_flavour(name) == 1):
                having[name].append(minor)
        shutil.rmtree(folder)
        print(dotted(minor), len(exported), flush=True)
    groups: dict[tuple[int, int], list[str]] = defaultdict(list)
    for name, found in having.items():
        first, last = minors.index(found[0]), minors.index(found[-1])
        if len(found) == last - first + 1 < len(minors):
            groups[found[0][1], found[-1][1]].append(name)
    table = {
        "source": "scripts/foreign_table/make_symbol_table.py, PyPI's wheels for Linux x86-64",
        "meaning": "[first minor, last minor, symbols]: torch 2.first to 2.last export these",
        "ranges": [[*key, sorted(names)] for key, names in sorted(groups.items())],
    }
    SYMBOLS.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
