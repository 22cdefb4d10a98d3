"""Runs the tests of the op with several versions of torch, one after the other.

    python -m measurements.torches [TORCH[@PYTHON] ...]

TORCH is a minor of build_matrix.yaml or a full version. PYTHON is by default the oldest
Python on this machine for which that torch has a wheel. For each TORCH, the script checks out
the committed state in build/torches/, runs `scripts/test.sh --torch` there on `tests/op`
(without the tests that need a GPU or the network), and stores
measurements/results/torches/TORCH.json, which docs/numbers/support.md shows.

The script needs the Python of scripts/test_env.sh's environment, and 8 GB of disk while it
runs.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from measurements.storage import RESULTS
from torchship.release import ReleaseError
from torchship.release.matrix.load import load_settings
from torchship.release.run.shell import output_of
from torchship.release.steps.compile.environments import interpreter

ROOT = Path(__file__).resolve().parents[1]

WORK = ROOT / "build" / "torches"
# The first and the last torch with ATen glue, and three torches that the stable glue serves.
DEFAULTS = ("2.4@3.11", "2.9@3.12", "2.10@3.10", "2.13@3.11", "2.15@3.13")
MARKERS = "not cuda and not network"
FACTS = """
import json, platform, torch
from lltm_conda import loader
print(json.dumps(dict(torch=torch.__version__, cuda=torch.version.cuda,
    python=platform.python_version(), variant=loader.load().variant)))
"""


class Target(NamedTuple):
    """A version of torch, and the path of the interpreter to try it with."""

    torch: str
    interpreter: str


def find_target(name: str) -> Target:
    """The target that TORCH[@PYTHON] means; raises ReleaseError if it cannot be had here."""
    matrix = load_settings().matrix
    version, _, python = name.partition("@")
    minor = ".".join(version.split(".")[:2])
    if minor not in matrix.torch:
        raise ReleaseError(
            f"build_matrix.yaml has no torch {minor}; "
            f"add it, or name one of {', '.join(matrix.minors())}"
        )
    entry = matrix.torch[minor]
    if python and python not in entry.pythons:
        raise ReleaseError(
            f"torch {minor} has wheels for Python {', '.join(entry.pythons)}, not for {python}"
        )
    # The oldest Python is the default, as torch.compile of some torches refuses their newest
    # one.
    pythons = [python] if python else entry.pythons
    path = next(filter(None, map(interpreter, pythons)), None)
    if path is None:
        raise ReleaseError(
            f"torch {version} needs a Python {' or '.join(pythons)} with venv; "
            "none is on PATH or in pyenv; install one (uv python install)"
        )
    return Target(entry.release if version == minor else version, path)


@dataclass(frozen=True)
class Counts:
    """What a JUnit file says."""

    passed: int
    failed: int
    skipped: int
    skip_reasons: dict[str, int]
    failures: list[dict[str, str]]
    """The failed tests with their messages."""


class Result(NamedTuple):
    """The counts of a suite, and the document to store, which holds them."""

    counts: Counts
    document: dict[str, object]


def run_suite(target: Target, folder: Path) -> Result:
    """Installs and tests a new checkout in `folder`.

    Raises ReleaseError if the tests did not run to their end, or if the package cannot be
    loaded.
    """
    # A new checkout holds no earlier builds, and its results belong to a commit.
    checkout = folder / "checkout"
    report = folder / "report.xml"
    log = WORK / f"{target.torch}.log"
    subprocess.run(["git", "clone", "-q", "--shared", str(ROOT), str(checkout)], check=True)
    # FORCE_CUDA=0 leaves out CUDA kernels, as no test here needs a GPU. The caller deletes
    # uv's cache with the folder.
    env = {"FORCE_CUDA": "0", "UV_CACHE_DIR": str(folder / "cache")} | os.environ
    env["PYTHON"] = target.interpreter
    command = ["scripts/test.sh", "--torch", target.torch, "tests/op", "-m", MARKERS, "-n", "2"]
    started = time.time()
    with log.open("w") as file:
        test = [*command, "-q", f"--junitxml={report}"]
        status = subprocess.run(test, cwd=checkout, env=env, stdout=file, stderr=file).returncode
    seconds = time.time() - started
    if status not in (0, 1) or not report.exists():
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-25:])
        raise ReleaseError(f"scripts/test.sh ended with exit code {status} (log: {log}):\n{tail}")
    python = str(checkout / "build" / f"test-env-{target.torch}" / "bin" / "python")
    facts = output_of(python, "-W", "ignore", "-c", FACTS, cwd=folder)
    if facts is None:
        raise ReleaseError(f"{python} cannot load the package that was tested (log: {log})")
    counts = count_outcomes(report)
    document = {
        "schema": 1,
        **json.loads(facts),
        "commit": (output_of("git", "rev-parse", "HEAD", cwd=checkout) or "unknown").strip(),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "seconds": round(seconds),
        "command": shlex.join([f"FORCE_CUDA={env['FORCE_CUDA']}", *command]),
        **asdict(counts),
    }
    return Result(counts, document)


def count_outcomes(report: Path) -> Counts:
    passed = 0
    failures: list[dict[str, str]] = []
    reasons = Counter[str]()
    for case in ET.parse(report).getroot().iter("testcase"):
        failure = next((part for part in case if part.tag in ("failure", "error")), None)
        skip = case.find("skipped")
        if failure is not None:
            name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
            message = failure.get("message") or failure.text or ""
            failures.append({"test": name, "message": message[:600]})
        elif skip is not None:
            reasons[skip.get("message") or "no reason given"] += 1
        else:
            passed += 1
    return Counts(
        passed=passed,
        failed=len(failures),
        skipped=reasons.total(),
        skip_reasons=dict(sorted(reasons.items())),
        failures=failures,
    )


def main() -> int:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("versions", nargs="*", metavar="TORCH[@PYTHON]", default=DEFAULTS)
    options = parser.parse_args()

    if changed := (output_of("git", "status", "--porcelain", cwd=ROOT) or "").splitlines():
        print(f"note: {len(changed)} changed files are not committed, so they are not tested")
    WORK.mkdir(parents=True, exist_ok=True)
    has_failed = False
    for name in options.versions:
        try:
            target = find_target(name)
            print(f"torch {target.torch} with {target.interpreter} ...", flush=True)
            with tempfile.TemporaryDirectory(dir=WORK) as folder:
                counts, document = run_suite(target, Path(folder))
        except ReleaseError as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            has_failed = True
            continue
        path = RESULTS / "torches" / f"{target.torch}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=2) + "\n")
        for failure in counts.failures:
            print(f"  {failure['test']}: {failure['message'].splitlines()[0]}", flush=True)
        has_failed = has_failed or counts.failed > 0
    print("to show the results in the docs: scripts/build_all.sh generate")
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main())
