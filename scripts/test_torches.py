"""Runs the tests of the op with several versions of torch, one after the other.

    python scripts/test_torches.py [TORCH[@PYTHON] ...]

TORCH is a minor of build_matrix.yaml or a full version. PYTHON is by default the oldest Python on
this machine for which that torch has a wheel. For each TORCH, the script checks out the committed
state in build/torches/, runs `scripts/test.sh --torch` there on `tests/op` (without the tests that
need a GPU or the network), and stores benchmarks/results/torches/TORCH.json, which
docs/numbers/support.md shows.

The script needs the Python of scripts/test_env.sh's environment, and 8 GB of disk while it runs.
"""

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
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from torchship.release import ReleaseError  # noqa: E402
from torchship.release.environments import interpreter  # noqa: E402
from torchship.release.matrix import load_settings  # noqa: E402
from torchship.release.shell import output_of  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "torches"
WORK = ROOT / "build" / "torches"
# The first and the last torch with ATen glue, and three torches that the stable glue serves.
DEFAULTS = ("2.4@3.11", "2.9@3.12", "2.10@3.10", "2.13@3.11", "2.15@3.13")
MARKERS = "not cuda and not network"


def target(text: str) -> tuple[str, str]:
    """The version of torch and the path of the interpreter that TORCH[@PYTHON] means."""
    matrix = load_settings().matrix
    version, _, python = text.partition("@")
    minor = ".".join(version.split(".")[:2])
    if minor not in matrix.torch:
        known = f"add it, or name one of {', '.join(matrix.minors())}"
        raise ReleaseError(f"build_matrix.yaml has no torch {minor}; {known}")
    entry = matrix.torch[minor]
    if python and python not in entry.pythons:
        known = ", ".join(entry.pythons)
        raise ReleaseError(f"torch {minor} has wheels for Python {known}, not for {python}")
    # The oldest Python is the default, as torch.compile of some torches refuses their newest one.
    wanted = [python] if python else entry.pythons
    found = next(filter(None, map(interpreter, wanted)), None)
    if found is None:
        text = f"torch {version} needs a Python {' or '.join(wanted)} with venv"
        raise ReleaseError(f"{text}; none is on PATH or in pyenv; install one (uv python install)")
    return entry.release if version == minor else version, found


def run_suite(torch: str, interpreter: str, folder: Path) -> dict[str, Any]:
    """Installs and tests a new checkout in `folder`; returns the result to store.

    Raises ReleaseError if the tests did not run to their end, or if the package cannot be loaded.
    """
    # A new checkout holds no earlier builds, and its results belong to a commit.
    checkout, report, log = folder / "checkout", folder / "report.xml", WORK / f"{torch}.log"
    subprocess.run(["git", "clone", "-q", "--shared", str(ROOT), str(checkout)], check=True)
    # FORCE_CUDA=0 leaves out CUDA kernels, as no test here needs a GPU. The caller deletes uv's
    # cache with the folder.
    env = {"FORCE_CUDA": "0", "UV_CACHE_DIR": str(folder / "cache")} | os.environ
    env["PYTHON"] = interpreter
    command = ["scripts/test.sh", "--torch", torch, "tests/op", "-m", MARKERS, "-n", "2"]
    started = time.time()
    with log.open("w") as file:
        test = [*command, "-q", f"--junitxml={report}"]
        status = subprocess.run(test, cwd=checkout, env=env, stdout=file, stderr=file).returncode
    seconds = time.time() - started
    if status not in (0, 1) or not report.exists():
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-25:])
        raise ReleaseError(f"scripts/test.sh ended with exit code {status} (log: {log}):\n{tail}")
    python = str(checkout / "build" / f"test-env-{torch}" / "bin" / "python")
    facts = output_of(python, "-W", "ignore", "-c", FACTS, cwd=folder)
    if facts is None:
        raise ReleaseError(f"{python} cannot load the package that was tested (log: {log})")
    return {
        "schema": 1,
        **json.loads(facts),
        "commit": (output_of("git", "rev-parse", "HEAD", cwd=checkout) or "unknown").strip(),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "seconds": round(seconds),
        "command": shlex.join([f"FORCE_CUDA={env['FORCE_CUDA']}", *command]),
        **outcome(report),
    }


FACTS = """
import json, platform, torch
from lltm_conda import loader
print(json.dumps(dict(torch=torch.__version__, cuda=torch.version.cuda,
    python=platform.python_version(), variant=loader.load().variant)))
"""


def outcome(report: Path) -> dict[str, Any]:
    """Counts, the reasons of skips, and the failed tests with their messages, from a JUnit file."""
    passed, failures, reasons = 0, [], Counter[str]()
    for case in ET.parse(report).getroot().iter("testcase"):
        bad = next((part for part in case if part.tag in ("failure", "error")), None)
        skipped = case.find("skipped")
        if bad is not None:
            name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
            text = bad.get("message") or bad.text or ""
            failures.append({"test": name, "message": text[:600]})
        elif skipped is not None:
            reasons[skipped.get("message") or "no reason given"] += 1
        else:
            passed += 1
    counts = {"passed": passed, "failed": len(failures), "skipped": reasons.total()}
    return {**counts, "skip_reasons": dict(sorted(reasons.items())), "failures": failures}


def main() -> int:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("versions", nargs="*", metavar="TORCH[@PYTHON]", default=DEFAULTS)
    options = parser.parse_args()

    if changed := (output_of("git", "status", "--porcelain", cwd=ROOT) or "").splitlines():
        print(f"note: {len(changed)} changed files are not committed, so they are not tested")
    WORK.mkdir(parents=True, exist_ok=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    failed = False
    for text in options.versions:
        try:
            torch, interpreter = target(text)
            print(f"torch {torch} with {interpreter} ...", flush=True)
            with tempfile.TemporaryDirectory(dir=WORK) as folder:
                result = run_suite(torch, interpreter, Path(folder))
        except ReleaseError as error:
            print(f"{text}: {error}", file=sys.stderr, flush=True)
            failed = True
            continue
        (RESULTS / f"{torch}.json").write_text(json.dumps(result, indent=2) + "\n")
        for failure in result["failures"]:
            print(f"  {failure['test']}: {failure['message'].splitlines()[0]}", flush=True)
        failed = failed or result["failed"] > 0
    print("to show the results in the docs: scripts/build_all.sh --write-generated")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
