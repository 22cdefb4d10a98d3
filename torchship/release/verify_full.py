"""Runs the fat wheel with every torch on every Python for which PyPI has a wheel of that torch.

Once every environment has a result, the tool stores all in
`measurements/results/environments.json`,
for the support tables. `--python PATH` tries only the environments of that interpreter, and adds
their results. On a platform other than the first of the matrix, the tool tries each torch on one
Python and stores what it gets: under qemu an environment takes minutes, and some torches crash.

The environments of one torch share a cache of about 12 GB, which is deleted before the next torch.
`build/verify-full` keeps finished results, so a stopped run continues if it is started again.
"""

import json
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from . import FOREIGN, PLATFORM, PROJECT, SMOKE, WRITE, ReleaseError, emulation, evidence
from .environments import TorchEnv, interpreter, make_venv, python_facts
from .evidence import Environment, Evidence
from .listing import Reporter
from .manifest import parse
from .paths import MANIFEST, VERIFIED, fresh, write_atomically
from .run import only_run
from .schema import FIRST, Matrix
from .shell import CommandFailed, Log, clean_env
from .store import digest, relative
from .tasks import Context, Outcome, SkipTask, Task, run_tasks
from .verify_steps import smoke_test
from .wheels import commits, read_wheel

WORK, CACHE = VERIFIED, VERIFIED / "cache"
# Bytes for the cache of one torch, CUDA libraries included, and for its environments' own files.
DISK_NEEDED = 15_000_000_000
# Exit codes after SIGINT, SIGKILL and SIGTERM, which say nothing about the wheel.
STOPPED = re.compile(r"exit code -(2|9|15)\b")
TORCH_ALONE = "import torch; torch.ones(2, 2) @ torch.ones(2, 2)"


class Target(NamedTuple):
    """One environment; `interpreter` is None if this machine lacks that Python."""

    torch: str
    release: str
    python: str
    interpreter: str | None

    @property
    def name(self) -> str:
        return f"torch-{self.torch}-py{self.python}"


def targets(matrix: Matrix, given: Sequence[Path] = ()) -> list[Target]:
    """Every environment for which PyPI has a torch, newest torch first.

    A free-threaded Python counts only if this machine has it. With `given`, the result holds only
    the environments of these interpreters.
    """
    named = {python_facts(str(path))["minor"]: str(path) for path in given}
    for python, path in named.items():
        if python not in matrix.every_python():
            known = ", ".join(matrix.every_python())
            raise ReleaseError(f"{path} is Python {python}; name one of {known}")
    return [
        Target(minor, torch.release, python, named.get(python) or interpreter(python))
        for minor, torch in reversed([(minor, matrix.torch[minor]) for minor in matrix.minors()])
        for python in torch.every_python
        if (python in named if named else python in torch.pythons or interpreter(python))
    ]


def verify_built(matrix: Matrix, console: Console, jobs: int, given: Sequence[Path]) -> int:
    """Verifies the fat wheel that the manifest names; returns the exit code."""
    manifest = parse(MANIFEST) if MANIFEST.exists() else None
    if manifest is None or manifest.fat is None:
        raise ReleaseError(f"{MANIFEST}: names no fat wheel; the run above says why it made none")
    with only_run(console):
        if PLATFORM != FIRST and not given:
            own = os.environ.get("RELEASE_PYTHON", sys.executable)
            given = [emulation.PYTHON if FOREIGN else Path(own)]
        wheel, wanted = MANIFEST.parent / manifest.fat.path, targets(matrix, given)
        return verify(wheel, wanted, matrix, console, jobs, join=bool(given))


def verify(
    wheel: Path,
    wanted: Sequence[Target],
    matrix: Matrix,
    console: Console,
    jobs: int = 1,
    *,
    join: bool = False,
) -> int:
    """Tries the environments without a result; returns 0 if all `wanted` have state `ran`, else 1.

    Stores the results if none is missing; on platforms other than the first, if there is a result.
    With `join`, only `wanted` needs results; on the first platform these update the stored results.
    """
    found = tried(wheel, wanted, console, jobs)
    every = wanted if join else targets(matrix)
    known = [seen for target in every if (seen := found.get(target))]
    path, missing = evidence.results(PLATFORM), len(every) - len(known)
    if missing and (PLATFORM == FIRST or not known):
        text = f"{missing} of {len(every)} environments have no result in this run"
        console.print(f"{text}, so {relative(path)} stays as it was")
    else:
        old = evidence.load(path) if join and PLATFORM == FIRST else None
        evidence.save(joined(old, wheel, known) if old else gathered(wheel, matrix, known), path)
        console.print(f"stored in {relative(path)}; now run:\n{WRITE}")
    ran = ((seen := found.get(target)) and seen.state == "ran" for target in wanted)
    return 0 if all(ran) else 1


def tried(
    wheel: Path, wanted: Sequence[Target], console: Console, jobs: int
) -> dict[Target, Environment]:
    """Runs the environments that have no result yet; returns all results."""
    read_wheel(wheel)  # raises for a file that is not a wheel
    console.print(f"{wheel.name} ({digest(wheel)[:12]}): {len(wanted)} environments")
    tasks = {}
    for target in wanted:
        run = partial(environment, target=target, wheel=wheel)
        tasks[target] = Task(f"verify/{target.name}", run, inputs=(wheel, SMOKE))
    outcomes: dict[str, Outcome] = {}
    begun = time.monotonic()
    with Reporter(console, list(tasks.values())) as reporter:
        for minor in dict.fromkeys(target.torch for target in wanted):
            first, *others = (tasks[target] for target in wanted if target.torch == minor)
            WORK.mkdir(parents=True, exist_ok=True)
            if (free := shutil.disk_usage(WORK).free) < DISK_NEEDED:
                need = f"{DISK_NEEDED / 1e9:.0f} GB are needed; free some"
                text = f"{WORK}: {free / 1e9:.1f} GB are free, {need} and run the same again"
                raise ReleaseError(f"{text}: the tool keeps the finished results")
            # The first environment fetches the files that the others share, so it runs before them.
            try:
                for group in ([first], others):
                    outcomes |= run_tasks(group, WORK, reporter, jobs)
            finally:
                shutil.rmtree(CACHE, ignore_errors=True)
    found: dict[Target, Environment] = {}
    for target, task in tasks.items():
        for path in outcomes[task.name].outputs:
            seen = found[target] = Environment.model_validate_json(path.read_text(encoding="utf-8"))
            style = "green" if seen.state == "ran" else "bold red"
            text = f"[{style}]{seen.state:9}[/] torch {seen.torch_version or target.release}"
            text += f", Python {seen.python_version or target.python}: {seen.variant or '-'}"
            console.print(f"{text} ({seen.seconds:.0f} s)")
            if seen.reason:
                console.print(f"        {seen.reason}", markup=False, soft_wrap=True)
    console.print(f"{len(wanted)} environments in {time.monotonic() - begun:.0f} s")
    return found


def joined(stored: Evidence, wheel: Path, known: Sequence[Environment]) -> Evidence:
    """The stored results, updated by the rows `known`, which get the wheel's name and commit."""
    origin = {"wheel": wheel.name, "commit": " ".join(commits(read_wheel(wheel)))}
    rows = {(row.torch, row.python): row for row in stored.environments}
    rows |= {(row.torch, row.python): row.model_copy(update=origin) for row in known}
    return stored.model_copy(update={"environments": list(rows.values())})


def gathered(wheel: Path, matrix: Matrix, known: Sequence[Environment]) -> Evidence:
    """The results, with a row for each pair of torch and Python that has no wheel on PyPI."""
    found = {(result.torch, result.python): result for result in known}
    date, rows, packed = max(result.date for result in known), [], read_wheel(wheel)
    for minor, python in product(matrix.minors(), matrix.every_python()):
        reason = f"PyPI has no wheel of torch {minor} for Python {python}"
        absent = {"torch": minor, "python": python, "state": "unsupported", "reason": reason}
        if (minor, python) in found:
            rows.append(found[minor, python])
        elif python not in matrix.torch[minor].every_python:
            rows.append(Environment(date=date, **absent))
    selector = how = ""
    if PLATFORM != FIRST:
        selector = f"'*{PLATFORM.removeprefix('linux')}' "
        how = f"; runs under {emulation.version()}" if FOREIGN else "; native"
    return Evidence(
        wheel=wheel.name,
        sha256=digest(wheel),
        binaries=sorted(Path(name).name for name in packed.binaries),
        commit=" ".join(commits(packed)),
        smoke=digest(SMOKE),
        date=date,
        machine=f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}{how}",
        command=f"scripts/build_all.sh {selector}--verify full",
        environments=rows,
    )


def environment(context: Context, *, target: Target, wheel: Path) -> Sequence[Path]:
    """Tries the wheel in a new, temporary environment; returns the file with the result.

    Raises SkipTask if the environment cannot be made, if a signal of STOPPED ends a program in it,
    or if its torch fails without our package. The next run tries a skipped environment again.
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
    """Installs the wheel beside torch, runs the checker and the smoke test; returns the facts."""
    # `--only-binary` makes uv take an older numpy if the newest has no wheel for this Python.
    wanted = [wheel, f"torch=={target.release}", "numpy", "--only-binary", "numpy"]
    env = TorchEnv(target.name, target.interpreter, target.release, CACHE, find_links=False)
    try:
        python = make_venv(log, folder / "env", env, wanted)
    except ReleaseError as error:
        raise SkipTask(f"{error}: {_last(log)}") from error
    empty = fresh(folder / "empty")
    problem = _tried(log, [python, "-m", PROJECT.package, "--json"], empty)
    facts, cause = _verdicts(log.path.read_text(encoding="utf-8"))
    if facts and facts["variant"] is None:
        return {"state": "rejected", "reason": cause, **facts}
    problems = [f"{PROJECT.command}: {problem}"] if problem else []
    numbers = folder / "smoke.json"
    if problem := _tried(log, smoke_test(python, numbers), empty):
        problems.append(f"{SMOKE.name}: {problem}: {_last(log)}")
    facts |= computed(numbers)
    if not facts.get("gradcheck"):
        problems.append("gradcheck did not pass")
    if problems and (problem := _tried(log, [python, "-c", TORCH_ALONE], empty)):
        raise SkipTask(f"torch fails here without {PROJECT.package}: {problem}: {_last(log)}")
    return {"state": "failed" if problems else "ran", "reason": "; ".join(problems), **facts}


def _tried(log: Log, command: Sequence[str | Path], cwd: Path) -> str:
    """Runs a program; returns its failure or "". Raises SkipTask if the exit code fits STOPPED."""
    try:
        log.run(command, env=clean_env(**emulation.settings()), cwd=cwd)
    except CommandFailed as error:
        if STOPPED.search(str(error)):
            raise SkipTask(str(error)) from error
        return str(error)
    return ""


def _verdicts(text: str) -> tuple[dict[str, Any], str]:
    """The facts of the checker's report in the text of a log, and the cause if no binary fits."""
    try:
        # The report starts at the last line with a leading brace; torch's own output may follow.
        data, _ = json.JSONDecoder().raw_decode(text, text.rfind("\n{") + 1)
    except ValueError:
        return {}, "the checker printed no report"
    rejected = {}
    for binary in (b for b in data["binaries"] if not b["accepted"]):
        bad = [f["dimension"] for f in binary["findings"] if f["status"] == "rejected"]
        rejected[Path(binary["path"]).name] = bad[0] if bad else "unknown"
    facts = {
        "torch_version": (data["runtime"]["torch"] or {}).get("version"),
        "variant": data["chosen"],
        "accepted": sorted(Path(b["path"]).name for b in data["binaries"] if b["accepted"]),
        "rejected": dict(sorted(rejected.items())),
    }
    return facts, (data["cause"] or {}).get("why", "")


def computed(numbers: Path) -> dict[str, Any]:
    """The facts of a smoke test's report; none if the test has written no readable report."""
    try:
        data = json.loads(numbers.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    worst: dict[str, float] = {}
    for row in data["comparisons"]:
        kind, error = row["dtype"], float(f"{row['worst']:.2e}")
        worst[kind] = max(worst.get(kind, 0.0), error)
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
