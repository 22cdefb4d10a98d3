"""Draws random cases of linking, judges them, really loads them, and stores both results.

    python -m measurements.linking.draw_linking [--cases N] [--first SEED]

The program needs the GNU assembler and linker and, for interpreters linked as conda's are,
patchelf. Without arguments it stores its result in measurements/results/linking.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from measurements import storage
from measurements.linking import cases
from torchship.release.run.shell import output_of

REPO = Path(__file__).resolve().parents[2]

RESULTS = storage.RESULTS / "linking.json"
PROGRAM = Path(__file__).with_name("load_case.py")
CASES = 400
SECONDS = 60
#: How the linker kills a process if a library has no table of the versions that are wanted of it.
_NO_VERSIONS = "check_match: Assertion `version->filename == NULL"


@dataclass(frozen=True)
class Row:
    """A case: what the checker said, and what the dynamic linker did."""

    seed: int
    program: str
    says_torch: bool
    torch: bool
    says_loads: bool
    loads: bool
    names_cause: bool
    """Whether the verdict names what the linker's message names; true for a case that loads."""
    error: str

    @property
    def is_right(self) -> bool:
        return self.says_torch == self.torch and (not self.torch or self.says_loads == self.loads)


def run(seed: int, root: Path = REPO, python: Path | None = None) -> Row | None:
    """Build, judge and load the case of a seed; `root` holds the package torchship.

    None if LD_PRELOAD keeps even the interpreter from starting. Raises RuntimeError if the
    checker fails.
    """
    case = cases.draw(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        cases.build(case, folder)
        program = cases.make_program(case.program, folder, python or Path(sys.executable))
        answer = _load(case, program, folder, root)
    if answer is None:
        return None
    verdict = answer["verdict"]
    outcome = answer["outcome"]
    error = str(outcome["error"]).replace(str(folder), "")
    return Row(
        seed=seed,
        program=case.program,
        says_torch=verdict["torch"],
        torch=outcome["torch"],
        says_loads=verdict["loads"],
        loads=outcome["loads"],
        names_cause=not error or _names_cause(verdict, error),
        error=error,
    )


def _names_cause(verdict: dict[str, Any], error: str) -> bool:
    """Whether a verdict names what the dynamic linker's message names."""
    if _NO_VERSIONS in error:  # it names no file and no symbol
        return bool(verdict["misses_version"])
    return any(name and name in error for name in verdict["names"])


def _load(
    case: cases.Case, program: Path, folder: Path, root: Path
) -> dict[str, dict[str, Any]] | None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("LD_", "PYTHON"))}
    environment["PYTHONPATH"] = str(root)
    if case.library_path is not None:
        entries = (f if f.startswith("$") else str(folder / f) for f in case.library_path)
        environment["LD_LIBRARY_PATH"] = ":".join(entries)
    if case.preloads:
        environment["LD_PRELOAD"] = ":".join(str(folder / file) for file in case.preloads)
    if program.is_relative_to(folder):
        environment["PYTHONHOME"] = "/usr"
    answer = subprocess.run(
        [str(program), "-S", str(PROGRAM), str(folder)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=SECONDS,
        check=False,
    )
    if not answer.stdout:
        if case.preloads:
            return None
        raise RuntimeError(f"seed {case.seed}: exit {answer.returncode}: {answer.stderr[-2000:]}")
    verdict, *outcomes = map(json.loads, answer.stdout.splitlines())
    killed = {"torch": False, "loads": False, "error": ""}
    outcome = outcomes[-1] if outcomes else killed
    if answer.returncode:  # the dynamic linker ended the process, and said why
        outcome = {**outcome, "error": answer.stderr[-500:]}
    return {"verdict": verdict, "outcome": outcome}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--cases", type=int, help=f"how many; by default {CASES}, stored")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    seeds = range(options.first, options.first + (options.cases or CASES))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        rows = []
        for row in pool.map(run, seeds):
            if row is not None:
                rows.append(row)
                print(f"\r{len(rows)} cases", end="", file=sys.stderr, flush=True)
    wrong = [row for row in rows if not row.is_right]
    for row in wrong:
        print(asdict(row))
    counts = count(rows)
    print(counts)
    if options.cases is None:
        document = {
            "command": "python -m measurements.linking.draw_linking",
            "commit": (output_of("git", "rev-parse", "HEAD", cwd=REPO) or "unknown").strip(),
            "machine": f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}",
            "counts": counts,
            "rows": [asdict(row) for row in rows],
        }
        storage.save(document, RESULTS)
    return 1 if wrong else 0


def stored_counts() -> dict[str, int]:
    """What `count` told of the stored cases."""
    document = storage.load(RESULTS)
    assert isinstance(document, dict)
    return dict(document["counts"])


def count(rows: list[Row]) -> dict[str, int]:
    """How many cases load, fail, and are judged wrongly."""
    loaded = Counter(row.torch and row.loads for row in rows)
    says = [row.says_torch and row.says_loads for row in rows]
    real = [row.torch and row.loads for row in rows]
    return {
        "cases": len(rows),
        "load": loaded[True],
        "fail": loaded[False],
        "torch fails": sum(not row.torch for row in rows),
        "accepted that fail": sum(s and not r for s, r in zip(says, real, strict=True)),
        "refused that load": sum(r and not s for s, r in zip(says, real, strict=True)),
        "cause not named": sum(not row.names_cause for row in rows if not row.says_loads),
    }


if __name__ == "__main__":
    raise SystemExit(main())
