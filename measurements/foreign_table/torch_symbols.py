"""Which torch minors export the torch symbols that other people's objects use or may use."""

from __future__ import annotations

import json
import re
import shutil
from collections import defaultdict
from pathlib import Path

from measurements.foreign_table.installs import exported, symbols, torch_in
from measurements.foreign_table.wheels import fetch
from torchship.judge.reading import layouts
from torchship.judge.reading.binary import is_torch_symbol, symbol_flavour
from torchship.judge.records import dotted
from torchship.porting.counterparts import SHIMS

# PyPI's wheels of older minors have the old C++ ABI. Other builds of these minors have the
# new ABI, so every older minor counts as exporting the symbols with the new ABI.
FIRST_NEW_ABI = (2, 7)


def write_symbols(work: Path, command: str) -> None:
    """Measures which minors export each torch symbol that the objects use, and each C function of
    the stable ABI; writes the table.
    """
    used = symbols("--undefined-only", *(sample.task.path for sample in fetch(work)))
    used |= {name for names in SHIMS.values() for name in names.split()}
    gpu = re.compile("cuda|hip|xpu", re.IGNORECASE)
    torch_symbols = {n for n in used if is_torch_symbol(n.encode()) and not gpu.search(n)}
    exporting: dict[str, list[tuple[int, int]]] = defaultdict(list)
    minors = sorted(layouts.LAYOUTS)
    for minor in minors:
        folder = torch_in(work, f"{dotted(minor)}.*", "--no-deps")
        for name in torch_symbols:
            if name in exported(folder) or (minor < FIRST_NEW_ABI and symbol_flavour(name) == 1):
                exporting[name].append(minor)
        shutil.rmtree(folder)
        print(dotted(minor), len(exported(folder)), flush=True)
    groups: dict[tuple[int, int], list[str]] = defaultdict(list)
    for name, having in exporting.items():
        first = minors.index(having[0])
        last = minors.index(having[-1])
        if len(having) == last - first + 1 < len(minors):
            groups[having[0][1], having[-1][1]].append(name)
    table = {
        "source": f"{command} --symbols, PyPI's wheels for Linux x86-64",
        "meaning": "[first minor, last minor, symbols]: torch 2.first to 2.last export these",
        "ranges": [[*key, sorted(names)] for key, names in sorted(groups.items())],
    }
    path = Path(layouts.__file__).with_name(layouts.SYMBOLS)
    path.write_text(json.dumps(table, indent=1) + "\n")
