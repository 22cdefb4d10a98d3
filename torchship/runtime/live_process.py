"""Runs `PACKAGE.smoke` in a process of its own, which may crash without ending this one."""

import json
import os
import subprocess
import sys
from contextlib import suppress

from ..judge.project import Project
from ..judge.words.render import shorten, table
from .live_run import LiveResult

_SECONDS = 600

# This package comes first on sys.path; PYTHONPATH cannot name a path with a colon.
_PROGRAM = """
import importlib, json, sys
sys.path.insert(0, sys.argv[1])
try:
    smoke = importlib.import_module(sys.argv[2] + ".smoke")
except ImportError as error:
    result = {"variant": None, "error": str(error), "devices": []}
else:
    result = smoke.run()
sys.stdout.write("\\n" + json.dumps(result))
"""


def run_in_process(project: Project) -> LiveResult:
    """The live run of the project's `smoke.py`, which may import what users import."""
    command = [
        sys.executable,
        *isolation_options(),
        *("-c", _PROGRAM),
        str(project.folder.resolve().parent),
        project.package,
    ]
    try:
        run = subprocess.run(
            command,
            capture_output=True,
            env={k: v for k, v in os.environ.items() if k != project.variable("LOAD")},
            text=True,
            errors="replace",
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return _crash(f"the live run took longer than {_SECONDS} s")
    if run.returncode == 0:
        with suppress(ValueError):
            result: LiveResult = json.loads(run.stdout.rpartition("\n")[2])
            return result
    tail = " | ".join(run.stderr.strip().splitlines()[-3:])
    end = f"signal {-run.returncode}" if run.returncode < 0 else f"exit code {run.returncode}"
    return _crash(f"the live run ended with {end}: {tail}")


def isolation_options() -> list[str]:
    """The options by which this Python was told whose code it may run, for another Python."""
    flags = sys.flags
    options = {
        "-I": flags.isolated,
        "-E": flags.ignore_environment,
        "-P": getattr(flags, "safe_path", False),  # from Python 3.11 on
        "-s": flags.no_user_site,
        "-S": flags.no_site,
    }
    return [option for option, is_set in options.items() if is_set]


def _crash(error: str) -> LiveResult:
    return {"variant": None, "error": error, "devices": []}


def has_passed(result: LiveResult) -> bool:
    return not result["error"] and all(device["ok"] for device in result["devices"])


def has_run_nowhere(result: LiveResult) -> bool:
    """Whether the operators were loaded, but serve no device that torch finds here."""
    return result["error"] is None and not result["devices"]


def live_run_text(result: LiveResult) -> str:
    if result["error"] is not None:
        return shorten(f"live run failed: {result['error']}")
    if has_run_nowhere(result):
        return (
            "live run: nothing was computed, since the operators serve CUDA devices alone "
            "and torch finds none here"
        )
    rows = []
    for device in result["devices"]:
        differences = device["differences"].items()
        measured = ", ".join(f"{dtype} {difference:.1e}" for dtype, difference in differences)
        if device["ok"]:
            row = ("ok", f"relative difference from the reference: {measured}")
        else:
            row = ("NO", str(device["error"]))
        rows.append((device["device"], *row))
    computed = "forward and backward" if result.get("gradients", True) else "forward alone"
    return table(("live run", "", computed), rows)
