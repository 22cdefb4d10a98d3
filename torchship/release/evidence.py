"""The stored results of `--verify full`, which runs the fat wheel in many environments."""

import json
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from . import REPO, ReleaseError
from .paths import write_atomically
from .schema import FIRST, Minor, Python, Strict

RESULTS = REPO / "measurements" / "results" / "environments.json"


def results(platform: str) -> Path:
    return RESULTS if platform == FIRST else RESULTS.with_stem(f"{RESULTS.stem}-{platform}")


class Environment(Strict):
    """The result for a torch minor and a Python.

    The state is `ran` (the numbers and gradients are right), `failed` (the run or a check failed),
    `rejected` (the checker chose no variant, so the op was not run), or `unsupported` (PyPI has no
    wheel of that torch for that Python). Only `verify_full.joined` sets `wheel` and `commit`.
    `rejected` has each rejected binary's first rejecting dimension, or `unknown`; `worst` has the
    largest relative error for each dtype.
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
    """The results of a run of `--verify full`, and of later runs with `--python`.

    `smoke` is the hash of the program that compares numbers, `date` the date of the first run's
    newest result. `verify_full.joined`, which adds the results of later runs, changes neither.
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
        found = (e for e in self.environments if (e.torch, e.python) == (torch, python))
        return next(found, None)


def load(path: Path = RESULTS) -> Evidence | None:
    """The stored results; None if nothing is stored. Raises ReleaseError for a damaged file."""
    try:
        return Evidence.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        text = f"{path}: not what `--verify full` writes ({error}); restore it, or run"
        raise ReleaseError(f"{text} scripts/build_all.sh --verify full") from error


def save(evidence: Evidence, path: Path = RESULTS) -> None:
    data = evidence.model_dump(mode="json", exclude_defaults=True)
    write_atomically(path, json.dumps({"schema_version": 1, **data}, indent=1) + "\n")


def suites(platform: str = FIRST) -> dict[str, str]:
    """The results of `measurements/torches.py`, as a short text for each torch minor."""
    found: dict[str, str] = {}
    for path in sorted(RESULTS.with_name("torches").glob("*.json")):
        r = json.loads(path.read_text(encoding="utf-8"))
        if r.get("platform", FIRST) != platform:
            continue
        failed = f"**{r['failed']} failed**, " if r["failed"] else ""
        words = f"{failed}{r['passed']} passed, {r['skipped']} skipped (Python {r['python']}, "
        minor = ".".join(r["torch"].split(".")[:2])
        before = f"{found[minor]}; " if minor in found else ""
        found[minor] = f"{before}{words}commit {r['commit'][:10]})"
    return found
