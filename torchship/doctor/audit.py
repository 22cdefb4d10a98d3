"""`python -m PACKAGE doctor --audit WHEEL`: tells which environments a wheel serves."""

import re
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import judge_file, probe_runtime, render
from .binary import needs_torch_or_cuda, read_binary
from .checks.cuda import binary_cuda
from .layouts import LAYOUTS
from .owner import admits, find_owner, shared_objects, torch_requirements
from .project import Project
from .records import REJECTED, UNKNOWN, BinaryRecord, Runtime, dotted, parse_version
from .text import printable
from .torch_probe import release

_OF_TORCH = ("torch version", "C++ ABI", "torch symbols")
_OLD_TAGS = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}


def main(project: Project, wheel: Path, *, as_json: bool) -> int:
    """Audits a wheel; returns the exit code: 1 if it finds problems, 2 for a bad file, else 0."""
    with tempfile.TemporaryDirectory() as place:
        try:
            with zipfile.ZipFile(wheel) as file:
                file.extractall(place)
        except (OSError, zipfile.BadZipFile) as error:
            print(f"{printable(wheel)} is no wheel: {error}. Name a .whl file.", file=sys.stderr)
            return 2
        runtime = probe_runtime(gpu=False, project=project)._replace(package_version="")
        served = []
        for path in shared_objects(Path(place)):
            binary = read_binary(path)
            if needs_torch_or_cuda(binary) or binary.problems:
                name, owner = path.relative_to(place).as_posix(), find_owner(path)
                served.append({"object": name, **_serves(binary._replace(owner=owner), runtime)})
        pins = [pin for info in Path(place).glob("*.dist-info") for pin in torch_requirements(info)]
    problems = [text for row in served for text in _broken(row, wheel.name, pins)]
    if as_json:
        render.print_json(serves=served, problems=problems)
        return 1 if problems else 0
    words = ("object", "torch", "python", "cuda", "gpus", "glibc")
    rows = [[", ".join(row[w]) if w != "object" else row[w] for w in words] for row in served]
    print(render.table(words, rows) if rows else "the wheel holds no torch extension")
    for text in problems:
        print(f"\nproblem: {render.shorten(text)}")
    if served and not problems:
        print("\nevery object keeps what the wheel's name and requirement promise")
    return 1 if problems else 0


def _serves(binary: BinaryRecord, runtime: Runtime) -> dict[str, Any]:
    """What an object serves (torch, Python, GPUs) and needs (CUDA, glibc), and its problems."""
    states = {minor: _state(binary, runtime, minor) for minor in sorted(LAYOUTS)}
    surely = [dotted(minor) for minor, state in states.items() if state == "works"]
    perhaps = [f"{dotted(minor)}?" for minor, state in states.items() if state == "unknown"]
    tag = re.search(r"\.(cpython-3\d+t?|abi3)", binary.file)
    module = f"the Python of its name ({tag[1]})" if tag else "a Python that its name leaves open"
    cuda = binary_cuda(binary)
    floors = [f"{family} {dotted(version)}" for family, version in sorted(binary.floors.items())]
    return {
        "torch": [*surely, *perhaps] or ["none"],
        "python": [module if binary.modules or binary.python_symbols else "any"],
        "cuda": [dotted(cuda)] if cuda else ["none"],
        "gpus": [*binary.cuda_archs] or ["none"],
        "glibc": floors or ["any"],
        "refused": [dotted(minor) for minor, state in states.items() if state == "fails"],
        "platform": binary.platform,
        "problems": list(binary.problems),
    }


def _state(binary: BinaryRecord, runtime: Runtime, minor: tuple[int, int]) -> str:
    """How an object fits a torch minor with its best C++ ABI: "works", "unknown" or "fails"."""
    states = []
    for abi in {0, 1} if minor < (2, 7) else {1}:
        torch = release(f"{dotted(minor)}.0", minor, abi)
        found = judge_file(binary, runtime._replace(torch=torch)).findings
        said = {finding.status for finding in found if finding.dimension in _OF_TORCH}
        # No files of this release are here, so its symbols may be unknown. Trust an object that was
        # built for this minor.
        own = minor in [m for m, _ in binary.owner.built_for] if binary.owner else False
        own = own or (binary.record is not None and binary.record.torch_target == minor)
        unsure = UNKNOWN in said and not own and binary.lane != "stable"
        states.append("fails" if REJECTED in said else "unknown" if unsure else "works")
    return next(state for state in ("works", "unknown", "fails") if state in states)


def _broken(row: dict[str, Any], name: str, pins: list[str]) -> Iterator[str]:
    """The problems of this object, and the promises of the wheel that it breaks, as sentences."""
    what = row["object"]
    yield from (f"{what}: {problem}" for problem in row["problems"])
    admitted = [dotted(m) for m in sorted(LAYOUTS) if all(admits(pin, m) for pin in pins)]
    wrong = [minor for minor in admitted if minor in row["refused"]]
    if wrong:
        pin = " ".join(pins) or "none"
        yield (
            f"{what} does not work with torch {', '.join(wrong)}, which the wheel's requirement "
            f"(torch {pin}) admits; require only the torches of the table"
        )
    tags = name.removesuffix(".whl").split("-")[-3:]
    manylinux = re.compile(r"(manylinux\w*?)(?:_(\d+)_(\d+))?_(x86_64|aarch64)$")
    floor = next((parse_version(t.split()[1]) for t in row["glibc"] if t.startswith("GLIBC ")), ())
    for found in filter(None, map(manylinux.match, tags[-1].split("."))):
        promised = _OLD_TAGS.get(found[1]) or (int(found[2] or 0), int(found[3] or 0))
        if floor and floor > promised:
            yield (
                f"{what} needs glibc {dotted(floor)}, but the tag {found[0]} promises that "
                f"{dotted(promised)} is enough; build on an older system, or let auditwheel tag it"
            )
    if row["platform"] and not row["platform"].endswith(tags[-1].rpartition("linux_")[2][-6:]):
        yield f"{what} is built for {row['platform']}, but the wheel is tagged {tags[-1]}"
    number = re.search(r"cpython-(3\d+t?)", row["python"][0])
    if number and f"cp{number[1]}" not in tags[1].split("."):
        yield f"{what} is for cp{number[1]} alone, but the wheel is tagged {'-'.join(tags[:2])}"
