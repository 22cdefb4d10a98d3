"""The stored results of `verify`, which runs the fat wheel in many environments."""

import json
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from .. import ReleaseError
from ..paths import write_atomically
from .platforms import FIRST
from .schema import Minor, Python, Strict

RESULTS = Path("measurements/results")  # in the checkout


def results_of(platform: str) -> Path:
    """The path in the checkout of a platform's stored results."""
    suffix = "" if platform == FIRST else f"-{platform}"
    return RESULTS / f"environments{suffix}.json"


class Environment(Strict):
    """The result for a torch minor and a Python.

    The state is `ran` (the numbers and gradients are right), `failed` (the run or a check
    failed), `rejected` (the checker chose no variant, so the op was not run), or
    `unsupported` (PyPI has no wheel of that torch for that Python). Only
    `verify_full.joined` sets `wheel` and `commit`. `rejected` has each rejected binary's
    first rejecting dimension, or `unknown`; `worst` has the largest relative error for each
    dtype.
    """

    torch: Minor
    python: Python
    state: Literal["ran", "failed", "rejected", "unsupported"]
    reason: str = ""
    wheel: str = ""
    commit: str = ""
    torch_version: str | None = None
    python_version: str | None = None
    variant: str | None = None
    accepted: list[str] = Field(default_factory=list)
    rejected: dict[str, str] = Field(default_factory=dict)
    devices: list[str] = Field(default_factory=list)
    comparisons: int = 0
    worst: dict[str, float] = Field(default_factory=dict)
    gradcheck: bool | None = None
    seconds: float = 0.0
    date: str


class Evidence(Strict):
    """The results of a run of `verify`, and of later runs with `--python`.

    `smoke` is the hash of the program that compares numbers, `date` the date of the first
    run's newest result. `verify_full.joined`, which adds the results of later runs, changes
    neither.
    """

    schema_version: Literal[1] = 1
    wheel: str
    sha256: str
    binaries: list[str]
    commit: str
    smoke: str
    date: str
    machine: str
    command: str
    environments: list[Environment]

    def of(self, torch: str, python: str) -> Environment | None:
        """The result for a torch minor and a Python; None if there is none."""
        for environment in self.environments:
            if (environment.torch, environment.python) == (torch, python):
                return environment
        return None


def load(path: Path) -> Evidence | None:
    """The stored results.

    None if nothing is stored. Raises ReleaseError for a damaged file.
    """
    try:
        return Evidence.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise ReleaseError(
            f"{path}: not what `verify` writes ({error}); restore it, or run "
            "scripts/build_all.sh verify"
        ) from error


def save(evidence: Evidence, path: Path) -> None:
    data = evidence.model_dump(mode="json", exclude_defaults=True)
    write_atomically(path, json.dumps({"schema_version": 1, **data}, indent=1) + "\n")


def suites(repo: Path, platform: str) -> dict[str, str]:
    """The results of `measurements/torches.py`, as a short text for each torch minor."""
    summaries: dict[str, str] = {}
    for path in sorted((repo / RESULTS / "torches").glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        if result.get("platform", FIRST) != platform:
            continue
        failed = f"**{result['failed']} failed**, " if result["failed"] else ""
        summary = (
            f"{failed}{result['passed']} passed, {result['skipped']} skipped "
            f"(Python {result['python']}, commit {result['commit'][:10]})"
        )
        minor = ".".join(result["torch"].split(".")[:2])
        before = f"{summaries[minor]}; " if minor in summaries else ""
        summaries[minor] = f"{before}{summary}"
    return summaries
