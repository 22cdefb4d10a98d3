"""Judges other people's shared objects beside many torches, loads them, and stores both results.

    python scripts/foreign_table/make_foreign_table.py --work FOLDER [--torches 2.6.0,2.13.0+cpu]
    python scripts/foreign_table/make_foreign_table.py --work FOLDER --symbols

The objects come from the wheels that distributions.json names; the script adds cut copies of one
object, and files of other kinds. It needs uv, binutils, Python 3.11 and about 12 GB. FOLDER keeps
the wheels for the next run; each torch is deleted after its use. Without --torches the script uses
all of TORCHES and writes foreign_table.json, which draw_tables.py shows.

With --symbols the script only writes symbols.json beside the checker's code: the torch minors that
export each torch symbol that the objects use. The file leaves out symbols that all minors or none
export, symbols that disappear and come back, and symbols for GPUs, which depend on torch's build.
"""

import argparse
import fnmatch
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE)]

from causes import claimed_libraries, right_cause, without_folders  # noqa: E402

from torchship.doctor import find_torch, judge_file, probe_runtime  # noqa: E402
from torchship.doctor.binary import is_torch_symbol, symbol_flavour  # noqa: E402
from torchship.doctor.layouts import LAYOUTS, SYMBOLS  # noqa: E402
from torchship.doctor.owner import shared_objects  # noqa: E402
from torchship.doctor.records import UNKNOWN, Runtime, dotted  # noqa: E402
from torchship.release.environments import uv  # noqa: E402
from torchship.release.matrix import load_settings  # noqa: E402
from torchship.release.paths import fresh  # noqa: E402
from torchship.release.shell import Log  # noqa: E402

RESULT = HERE / "foreign_table.json"
LIST = json.loads((HERE / "distributions.json").read_text())
TORCHES = (
    "2.6.0", "2.7.1", "2.8.0", "2.9.1", "2.10.0", "2.11.0", "2.12.1", "2.13.0+cpu", "2.13.0",
    "2.14.1", "2.15.0",
)  # fmt: skip
PLATFORM = "x86_64-manylinux_2_36"
COMMAND = "scripts/foreign_table/make_foreign_table.py"
TORCH_NAMES = (b"libtorch", b"libc10", b"libcudart")
# PyPI's wheels of older minors have the old C++ ABI. Other builds of these minors have the new ABI,
# so every older minor counts as exporting the symbols with the new ABI.
FIRST_NEW_ABI = (2, 7)


def install(work: Path, *arguments: str) -> None:
    """Runs `uv pip install`; PIP_FIND_LINKS serves only releases with a local version (`+cpu`)."""
    with Log(work / "uv.log", load_settings()) as log:
        uv(log, ["pip", "install", "--no-cache", *arguments], find_links="+" in arguments[-1])


def fetch(work: Path) -> Iterator[dict[str, Any]]:
    """Puts every wheel into a folder of its own, and yields a task for each chosen object."""
    for wheel in LIST["wheels"]:
        for version in wheel["versions"]:
            suffix = "".join(f"-{wheel[key]}" for key in ("python", "platform") if key in wheel)
            root = work / "wheels" / f"{wheel['name']}-{version}{suffix}"
            if not root.exists():
                part = fresh(root.with_name("part"))
                where = ("--python-version", wheel.get("python", "3.11"))
                where += ("--python-platform", wheel.get("platform", PLATFORM))
                flags = ("--no-deps", "--only-binary", ":all:", "--target", str(part))
                install(work, *flags, *where, f"{wheel['name']}=={version}")
                part.rename(root)
            for path in chosen(root, wheel):
                yield task(root, path, wheel)


def chosen(root: Path, wheel: dict[str, Any]) -> list[Path]:
    """At most `most` (default: 40) shared objects of a wheel, first those that name torch or CUDA.

    The pattern `except` leaves out objects, such as those that need a vendor's kit to start.
    """
    most, left_out = wheel.get("most", 40), wheel.get("except", "")
    first, rest = [], []
    for path in shared_objects(root):
        if not fnmatch.fnmatch(path.as_posix(), left_out):
            content = path.read_bytes()
            (first if any(name in content for name in TORCH_NAMES) else rest).append(path)
    step = max(1, len(rest) // max(1, most - len(first)))
    return [*first, *rest[::step]][:most]


def task(root: Path, path: Path, wheel: dict[str, Any]) -> dict[str, Any]:
    """A task of load_objects.py; `truth` is the failure's cause if known beforehand, or None."""
    inner = path.relative_to(root).as_posix()
    digits = (re.findall("[0-9]+", path.name.partition(".")[0]) or [""])[-1]
    before = [
        other.relative_to(root).as_posix()
        for pattern, wanted in LIST["preloads"].items()
        if fnmatch.fnmatch(inner, pattern)
        for want in wanted
        for other in sorted(root.glob(want.format(digits=digits)))
    ]
    other_python = re.search(r"\.cpython-3(?!11-)", inner) and b"PyInit_" in path.read_bytes()
    truth = "platform" if "platform" in wheel else "python" if other_python else None
    calls = [call for pattern, call in LIST["calls"].items() if fnmatch.fnmatch(inner, pattern)]
    return {
        "distribution": wheel["name"],
        "root": str(root),
        "object": inner,
        "load": wheel.get("load", "file"),
        "preloads": before,
        "call": calls[0] if calls else None,
        "beside": [str(root.with_name(wheel["beside"]))] if "beside" in wheel else [],
        "truth": wheel.get("truth", truth),
    }


def damaged(work: Path) -> Iterator[dict[str, Any]]:
    """Writes damaged shared objects and files of other kinds; yields a task for each file."""
    root = fresh(work / "damaged")
    whole = (work / "wheels" / "torchvision-0.28.0" / "torchvision" / "_C.so").read_bytes()
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 9\n"
    files = {
        **{f"cut_{size}.so": whole[:size] for size in (0, 40, 4096, 100_000, len(whole) - 1)},
        "pointer.so": pointer,
        "script.so": b"/* GNU ld script */\nINPUT(libtorch.so.2 -lm)\n",
        "page.so": b"<!DOCTYPE html><html><body>404 Not Found</body></html>\n",
        "program": Path("/bin/ls").read_bytes(),
    }
    for name, content in files.items():
        (root / name).write_bytes(content)
        yield task(root, root / name, {"name": "damaged files", "truth": "file"})


def vouched(root: Path, torch: str) -> bool:
    """Whether the wheel in `root` requires a range of torch versions with `torch` but not 99."""
    texts = [text for found in distributions(path=[str(root)]) for text in found.requires or ()]
    needs = [need for text in texts if (need := Requirement(text)).name == "torch"]
    return any(
        (need.marker is None or need.marker.evaluate({"extra": ""}))
        and torch in need.specifier
        and "99" not in need.specifier
        for need in needs
    )


def symbols(which: str, *files: Path) -> frozenset[str]:
    command = ["nm", "-D", which, *map(str, files)]
    text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    names = (line.rpartition(" ")[2].partition("@")[0] for line in text.splitlines())
    return frozenset(name for name in names if name)


def torch_in(work: Path, version: str, *flags: str) -> Path:
    """The folder with this torch; installs the torch if the folder lacks it."""
    folder = work / "torch" / version
    if not (folder / "torch").exists():
        shutil.rmtree(folder, ignore_errors=True)
        where = ("--target", str(folder), "--python-version", "3.11")
        install(work, *flags, *where, f"torch=={version}")
    return folder


@cache
def exported(folder: Path) -> frozenset[str]:
    """The symbols that this Python and the libraries of the torch in `folder` define."""
    program = Path(sys.executable).resolve()
    files = [program, *program.parents[1].glob("lib/libpython3.*.so.1.0")]
    return symbols("--defined-only", *files, *(folder / "torch" / "lib").glob("*.so*"))


def load(folder: Path, tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The outcomes of tasks that load objects beside the torch in `folder`."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    environment |= {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    # -S hides the packages of this environment.
    command = [sys.executable, "-S", str(HERE / "load_objects.py")]
    given = "".join(json.dumps(task) + "\n" for task in tasks)
    said = subprocess.check_output(command, input=given, text=True, env=environment, cwd=folder)
    return [json.loads(line) for line in said.splitlines()]


def judged(task: dict[str, Any], runtime: Runtime) -> dict[str, Any]:
    start, before = time.process_time(), sys.path
    # The checker must not see this environment's packages, which the loading process lacks.
    sys.path = [*task["beside"], *(p for p in before if "site-packages" not in p)]
    cause = judge_file(Path(task["root"]) / task["object"], runtime).cause
    sys.path = before
    said = "works" if cause is None else "unknown" if cause.status == UNKNOWN else "fails"
    shown: dict[str, Any] = {"verdict": said, "seconds": round(time.process_time() - start, 3)}
    for field in ("dimension", "observed", "why", "fix"):
        shown[field] = without_folders(getattr(cause, field) if cause else "")
    return shown


def column(work: Path, version: str, tasks: list[dict[str, Any]]) -> dict[str, Any]:
    folder = torch_in(work, version)
    torch = find_torch(folder)
    runtime = probe_runtime(torch, gpu=False)
    verdicts = [judged(task, runtime) for task in tasks]
    for task, verdict in zip(tasks, verdicts, strict=True):
        task["claimed"] = claimed_libraries(verdict)
    outcomes: list[Any] = [None] * len(tasks)
    with ThreadPoolExecutor(2) as pool:
        outcomes[::2], outcomes[1::2] = pool.map(partial(load, folder), (tasks[::2], tasks[1::2]))
    cells = []
    for task, verdict, outcome in zip(tasks, verdicts, outcomes, strict=True):
        cell = {**outcome, **verdict, "vouched": vouched(Path(task["root"]), version)}
        if cell["verdict"] != "works" and cell["outcome"] != "works":
            right = right_cause(cell, task["truth"], ())
            if not right:  # only now, because `nm` is slow
                needed = symbols("--undefined-only", Path(task["root"]) / task["object"])
                right = right_cause(cell, task["truth"], needed - exported(folder))
            cell["right_cause"] = right
        cell.pop("absent", None)
        # The table stores the first 110 characters of a text, and no empty texts.
        cut = {key: text[:110] if isinstance(text, str) else text for key, text in cell.items()}
        cells.append({key: value for key, value in cut.items() if value != ""})
    shutil.rmtree(folder)
    return {"torch": torch.version, "cells": cells}


def write_symbols(work: Path) -> None:
    """Measures which minors export the torch symbols that the objects use, and writes SYMBOLS."""
    used = symbols("--undefined-only", *(Path(t["root"]) / t["object"] for t in fetch(work)))
    gpu = re.compile("cuda|hip|xpu", re.IGNORECASE)
    asked = {n for n in used if is_torch_symbol(n.encode()) and not gpu.search(n)}
    having: dict[str, list[tuple[int, int]]] = defaultdict(list)
    minors = sorted(LAYOUTS)
    for minor in minors:
        folder = torch_in(work, f"{dotted(minor)}.*", "--no-deps")
        for name in asked:
            if name in exported(folder) or (minor < FIRST_NEW_ABI and symbol_flavour(name) == 1):
                having[name].append(minor)
        shutil.rmtree(folder)
        print(dotted(minor), len(exported(folder)), flush=True)
    groups: dict[tuple[int, int], list[str]] = defaultdict(list)
    for name, found in having.items():
        first, last = minors.index(found[0]), minors.index(found[-1])
        if len(found) == last - first + 1 < len(minors):
            groups[found[0][1], found[-1][1]].append(name)
    table = {
        "source": f"{COMMAND} --symbols, PyPI's wheels for Linux x86-64",
        "meaning": "[first minor, last minor, symbols]: torch 2.first to 2.last export these",
        "ranges": [[*key, sorted(names)] for key, names in sorted(groups.items())],
    }
    SYMBOLS.write_text(json.dumps(table, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--work", type=Path, required=True, help="folder for wheels and torches")
    parser.add_argument("--torches", help="comma-separated versions; default: all")
    parser.add_argument("--symbols", action="store_true", help="write symbols.json, no table")
    options = parser.parse_args()
    work, start = options.work.resolve(), time.monotonic()
    if options.symbols:
        write_symbols(work)
        return
    tasks = [*fetch(work), *damaged(work)]
    objects = [
        {"name": f"{Path(t['root']).name}/{t['object']}", "distribution": t["distribution"]}
        for t in tasks
    ]
    print(f"{len(tasks)} objects of {len({t['distribution'] for t in tasks})} distributions")
    columns = []
    for version in options.torches.split(",") if options.torches else TORCHES:
        columns.append(column(work, version, tasks))
        wrong = sum(c["verdict"] == "works" != c["outcome"] for c in columns[-1]["cells"])
        seconds = round(time.monotonic() - start)
        print(f"[{seconds} s] {columns[-1]['torch']}: {wrong} accepted objects fail", flush=True)
    table = {
        "schema": 1,
        "command": f"python {COMMAND}",
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "objects": objects,
        "columns": columns,
    }
    if not options.torches:
        RESULT.write_text(json.dumps(table, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
