"""One environment of `--verify full`: installed, judged and run, then deleted."""

import json
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from release import BUILD, PACKAGE, PROJECT, SMOKE, ReleaseError, emulation
from release.environments import make_venv
from release.evidence import Environment
from release.paths import fresh, write_atomically
from release.shell import CommandFailed, Log, clean_env
from release.tasks import Context, SkipTask

WORK = BUILD / "verify-full"
CACHE = WORK / "cache"
# Exit codes of an interrupt or of a kill for lack of memory: they say nothing about the wheel.
STOPPED = re.compile(r"exit code -(2|9|15)\b")
TORCH_ALONE = "import torch; torch.ones(2, 2) @ torch.ones(2, 2)"


@dataclass(frozen=True)
class Target:
    """One environment; `interpreter` is None if this machine lacks that Python."""

    torch: str
    release: str
    python: str
    interpreter: str | None

    @property
    def name(self) -> str:
        return f"torch-{self.torch}-py{self.python}"


def environment(context: Context, *, target: Target, wheel: Path) -> Sequence[Path]:
    """Installs, judges and runs one environment, and deletes it; its result stays.

    An environment that cannot be installed, is stopped, or has a torch that fails alone is
    skipped; the next run tries it again.
    """
    if target.interpreter is None:
        text = f"no Python {target.python} on PATH or in pyenv"
        raise SkipTask(f"{text}; install one, or name its path with --python")
    begun, folder = time.monotonic(), WORK / target.name
    date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    facts: dict[str, Any] = {"torch": target.torch, "python": target.python, "date": date}
    try:
        facts |= _run(context.log, target, wheel, fresh(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    facts["seconds"] = round(time.monotonic() - begun, 1)
    found = Environment.model_validate(facts).model_dump(mode="json")
    file = WORK / "results" / f"{target.name}.json"
    write_atomically(file, json.dumps(found, indent=1))
    return [file]


def _run(log: Log, target: Target, wheel: Path, folder: Path) -> dict[str, Any]:
    """Installs the wheel beside torch, judges it, computes."""
    # The newest numpy may have no wheel for this Python.
    wanted = [wheel, f"torch=={target.release}", "numpy", "--only-binary", "numpy"]
    env = folder / "env"
    try:
        python = make_venv(log, env, target.interpreter, wanted, cache=CACHE, find_links=False)
    except ReleaseError as error:
        raise SkipTask(f"{error}: {_last(log)}") from error
    empty = fresh(folder / "empty")
    problem = _tried(log, [python, "-m", PROJECT.package, "--json"], empty)
    facts, cause = _verdicts(log.path.read_text(encoding="utf-8"))
    if facts and facts["variant"] is None:
        return {"state": "rejected", "reason": cause, **facts}
    problems = [f"{PROJECT.command}: {problem}"] if problem else []
    numbers = folder / "smoke.json"
    if problem := _tried(log, [python, SMOKE, "--outside", PACKAGE, "--json", numbers], empty):
        problems.append(f"{SMOKE.name}: {problem}: {_last(log)}")
    facts |= computed(numbers)
    if not facts.get("gradcheck"):
        problems.append("gradcheck did not pass")
    if problems and (problem := _tried(log, [python, "-c", TORCH_ALONE], empty)):
        raise SkipTask(f"torch fails here without {PROJECT.package}: {problem}: {_last(log)}")
    return {"state": "failed" if problems else "ran", "reason": "; ".join(problems), **facts}


def _tried(log: Log, command: Sequence[str | Path], cwd: Path) -> str:
    """Runs a program of the environment; returns the failure, or "".

    The checker also fails if no binary fits.
    """
    try:
        log.run(command, env=clean_env(**emulation.settings()), cwd=cwd)
    except CommandFailed as error:
        if STOPPED.search(str(error)):
            raise SkipTask(str(error)) from error
        return str(error)
    return ""


def _verdicts(text: str) -> tuple[dict[str, Any], str]:
    """The checker's findings in its log, and the cause if no binary fits."""
    try:
        # The report starts at the last line with a leading brace; torch may print more after it.
        data, _ = json.JSONDecoder().raw_decode(text, text.rfind("\n{") + 1)
    except ValueError:
        return {}, "the checker printed no report"
    rejected = {}
    for binary in data["binaries"]:
        bad = [f["dimension"] for f in binary["findings"] if f["status"] == "rejected"]
        if not binary["accepted"]:
            rejected[Path(binary["path"]).name] = bad[0] if bad else "unknown"
    facts = {
        "torch_version": (data["runtime"]["torch"] or {}).get("version"),
        "variant": data["chosen"],
        "accepted": sorted(Path(b["path"]).name for b in data["binaries"] if b["accepted"]),
        "rejected": dict(sorted(rejected.items())),
    }
    return facts, (data["cause"] or {}).get("why", "")


def computed(numbers: Path) -> dict[str, Any]:
    try:
        data = json.loads(numbers.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    worst: dict[str, float] = {}
    for row in data["comparisons"]:
        kind = row["dtype"].removeprefix("torch.")
        errors = [v for k, v in row.items() if k not in ("device", "dtype", "shape")]
        worst[kind] = max(worst.get(kind, 0.0), *(float(f"{error:.2e}") for error in errors))
    return {
        "torch_version": data["torch"],
        "python_version": data["python"],
        "devices": data["devices"],
        "comparisons": len(data["comparisons"]),
        "worst": worst,
        "gradcheck": data["gradcheck"],
    }


def _last(log: Log) -> str:
    lines = [line.strip() for line in log.tail(4).splitlines() if line.strip()]
    return " | ".join(lines[-2:])[:400]
