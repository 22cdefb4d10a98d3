"""Runs the fat wheel with every torch on every Python for which PyPI has a wheel of that torch.

Once every environment has a result, the tool stores all in
`measurements/results/environments.json`, for the support tables. `--python PATH` tries only
the environments of that interpreter, and adds their results. On a platform other than the
first of the matrix, the tool tries each torch on one Python and stores what it gets: under
qemu an environment takes minutes, and some torches crash.

The environments of one torch share a cache of about 12 GB, which is deleted before the next
torch. `build/verify-full` keeps finished results, so a stopped run continues if it is
started again.
"""

import json
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal, NamedTuple

from rich.console import Console
from rich.markup import escape

from ... import ReleaseError
from ...matrix import evidence
from ...matrix.evidence import Environment, Evidence
from ...matrix.platforms import FIRST
from ...matrix.schema import Matrix
from ...matrix.settings import WRITE_COMMAND, Settings
from ...paths import fresh, write_atomically
from ...run.listing import Reporter
from ...run.manifest import parse
from ...run.release import only_run
from ...run.shell import CommandFailed, Log, clean_env
from ...run.store import digest, relative
from ...run.tasks import Context, FileTask, Outcome, SkipTask, run_tasks
from ..compile import emulation
from ..compile.environments import TorchEnv, interpreter, make_venv, python_facts
from ..pack.wheels import commits, read_wheel
from .runs import smoke_test

# Bytes for the cache of one torch, CUDA libraries included, and for its environments' own
# files.
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


class Verification(NamedTuple):
    """A wheel to try, the settings, where to report, and how many environments to try at a time."""

    wheel: Path
    settings: Settings
    console: Console
    jobs: int = 1

    @property
    def matrix(self) -> Matrix:
        return self.settings.matrix

    @property
    def results(self) -> Path:
        """The file with the stored results."""
        return self.settings.repo / evidence.results_of(self.settings.platform)


class Findings(NamedTuple):
    """What the programs in one environment said of the wheel."""

    state: Literal["ran", "failed", "rejected"]
    reason: str = ""
    torch_version: str | None = None
    python_version: str | None = None
    variant: str | None = None
    accepted: Sequence[str] = ()
    rejected: Mapping[str, str] = {}
    devices: Sequence[str] = ()
    comparisons: int = 0
    worst: Mapping[str, float] = {}
    gradcheck: bool | None = None


def targets(matrix: Matrix, pythons: Sequence[Path] = ()) -> list[Target]:
    """Every environment for which PyPI has a torch, newest torch first.

    A free-threaded Python counts only if this machine has it. With `pythons`, the result
    holds only the environments of these interpreters.
    """
    named = {python_facts(str(path))["minor"]: str(path) for path in pythons}
    for python, path in named.items():
        if python not in matrix.every_python():
            supported = ", ".join(matrix.every_python())
            raise ReleaseError(f"{path} is Python {python}; name one of {supported}")
    return [
        Target(
            torch=minor,
            release=matrix.torch[minor].release,
            python=python,
            interpreter=named.get(python) or interpreter(python),
        )
        for minor in reversed(matrix.minors())
        for python in _pythons_of(matrix, minor, named)
    ]


def _pythons_of(matrix: Matrix, minor: str, named: Mapping[str, str]) -> list[str]:
    """The Pythons to try a torch minor on."""
    torch = matrix.torch[minor]
    if named:
        return [python for python in torch.every_python if python in named]
    return [p for p in torch.every_python if p in torch.pythons or interpreter(p)]


def verify_built(settings: Settings, console: Console, jobs: int, pythons: Sequence[Path]) -> int:
    """Verifies the fat wheel that the manifest names; returns the exit code."""
    manifest = parse(settings.manifest) if settings.manifest.exists() else None
    if manifest is None or manifest.fat is None:
        raise ReleaseError(
            f"{settings.manifest}: names no fat wheel; the run above says why it made none"
        )
    wheel = settings.dist / manifest.fat.path
    verification = Verification(wheel, settings, console, jobs)
    with only_run(settings, console):
        if settings.platform != FIRST and not pythons:
            own = os.environ.get("RELEASE_PYTHON", sys.executable)
            pythons = [emulation.python_of(settings) if settings.is_foreign else Path(own)]
        chosen = targets(settings.matrix, pythons)
        return verify(verification, chosen, join=bool(pythons))


def verify(verification: Verification, chosen: Sequence[Target], *, join: bool = False) -> int:
    """Tries the environments without a result; returns 0 if all `chosen` have state `ran`, else 1.

    Stores the results if none is missing; on platforms other than the first, if there is a
    result. With `join`, only `chosen` needs results; on the first platform these update the
    stored results.
    """
    results = try_all(verification, chosen)
    expected = chosen if join else targets(verification.matrix)
    environments = [result for target in expected if (result := results.get(target))]
    missing = len(expected) - len(environments)
    is_first = verification.settings.platform == FIRST
    path = verification.results
    name = relative(path, verification.settings.repo)
    if missing and (is_first or not environments):
        verification.console.print(
            f"{missing} of {len(expected)} environments have no result in this run, "
            f"so {name} stays as it was"
        )
    else:
        stored = evidence.load(path) if join and is_first else None
        if stored:
            evidence.save(joined(verification, stored, environments), path)
        else:
            evidence.save(gathered(verification, environments), path)
        verification.console.print(f"stored in {name}; now run:\n{WRITE_COMMAND}")
    has_run = [(result := results.get(t)) is not None and result.state == "ran" for t in chosen]
    return 0 if all(has_run) else 1


def try_all(verification: Verification, chosen: Sequence[Target]) -> dict[Target, Environment]:
    """Runs the environments that have no result yet; returns all results."""
    wheel = verification.wheel
    console = verification.console
    read_wheel(wheel)  # raises for a file that is not a wheel
    heading = f"{wheel.name} ({digest(wheel)[:12]}): {len(chosen)} environments"
    console.print(heading, markup=False)
    tasks = {
        target: TryWheel(
            name=f"verify/{target.name}",
            target=target,
            wheel=wheel,
            inputs=(wheel, verification.settings.smoke),
        )
        for target in chosen
    }
    begin = time.monotonic()
    outcomes = _run_by_torch(verification, tasks)
    results: dict[Target, Environment] = {}
    for target, task in tasks.items():
        for path in outcomes[task.name].outputs:
            content = path.read_text(encoding="utf-8")
            results[target] = Environment.model_validate_json(content)
            _show(results[target], target, console)
    console.print(f"{len(chosen)} environments in {time.monotonic() - begin:.0f} s")
    return results


def _run_by_torch(
    verification: Verification, tasks: Mapping[Target, FileTask]
) -> dict[str, Outcome]:
    """Runs the tasks of one torch after those of another; deletes each torch's cache."""
    settings = verification.settings
    outcomes: dict[str, Outcome] = {}
    with Reporter(verification.console, list(tasks.values())) as reporter:
        for minor in dict.fromkeys(target.torch for target in tasks):
            first, *others = (task for target, task in tasks.items() if target.torch == minor)
            _check_room(settings.verify_full)
            # The first environment fetches the files that the others share, so it runs
            # before them.
            try:
                for group in ([first], others):
                    outcomes |= run_tasks(
                        group,
                        settings.verify_full,
                        reporter,
                        settings=settings,
                        jobs=verification.jobs,
                    )
            finally:
                shutil.rmtree(cache_of(settings), ignore_errors=True)
    return outcomes


def cache_of(settings: Settings) -> Path:
    """The cache that the environments of one torch share."""
    return settings.verify_full / "cache"


def _check_room(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < DISK_NEEDED:
        raise ReleaseError(
            f"{folder}: {free / 1e9:.1f} GB are free, {DISK_NEEDED / 1e9:.0f} GB are needed; "
            "free some and run the same again: the tool keeps the finished results"
        )


def _show(result: Environment, target: Target, console: Console) -> None:
    style = "green" if result.state == "ran" else "bold red"
    console.print(
        f"[{style}]{result.state:9}[/] "
        + escape(
            f"torch {result.torch_version or target.release}, "
            f"Python {result.python_version or target.python}: {result.variant or '-'} "
            f"({result.seconds:.0f} s)"
        )
    )
    if result.reason:
        console.print(f"        {result.reason}", markup=False, soft_wrap=True)


def joined(
    verification: Verification, stored: Evidence, results: Sequence[Environment]
) -> Evidence:
    """The stored results, updated by `results`, which get the wheel's name and commit.

    A Python that was not tried before gets a row for each torch that has no wheel for it.
    """
    wheel = verification.wheel
    commit = " ".join(commits(read_wheel(wheel)))
    rows = {(row.torch, row.python): row for row in stored.environments}
    pythons = {result.python for result in results}
    date = max(result.date for result in results)
    for row in _rows(verification.matrix, results, date):
        if row.python in pythons:
            rows.setdefault((row.torch, row.python), row)
    for result in results:
        values = result.model_dump()
        values["wheel"] = wheel.name
        values["commit"] = commit
        rows[result.torch, result.python] = Environment.model_validate(values)
    return Evidence(
        wheel=stored.wheel,
        sha256=stored.sha256,
        binaries=stored.binaries,
        commit=stored.commit,
        smoke=stored.smoke,
        date=stored.date,
        machine=stored.machine,
        command=stored.command,
        environments=list(rows.values()),
    )


def gathered(verification: Verification, results: Sequence[Environment]) -> Evidence:
    """The results, with a row for each pair of torch and Python that has no wheel on PyPI."""
    settings = verification.settings
    wheel = verification.wheel
    packed = read_wheel(wheel)
    date = max(result.date for result in results)
    selector = ""
    how = ""
    if settings.platform != FIRST:
        selector = f"'*{settings.platform.removeprefix('linux')}' "
        how = f"; runs under {emulation.version(settings)}" if settings.is_foreign else "; native"
    return Evidence(
        wheel=wheel.name,
        sha256=digest(wheel),
        binaries=sorted(Path(name).name for name in packed.binaries),
        commit=" ".join(commits(packed)),
        smoke=digest(settings.smoke),
        date=date,
        machine=f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}{how}",
        command=f"scripts/build_all.sh verify {selector}".rstrip(),
        environments=list(_rows(settings.matrix, results, date)),
    )


def _rows(matrix: Matrix, results: Sequence[Environment], date: str) -> Iterator[Environment]:
    by_pair = {(result.torch, result.python): result for result in results}
    for minor, python in product(matrix.minors(), matrix.every_python()):
        if (minor, python) in by_pair:
            yield by_pair[minor, python]
        elif python not in matrix.torch[minor].every_python:
            yield Environment(
                torch=minor,
                python=python,
                state="unsupported",
                reason=f"PyPI has no wheel of torch {minor} for Python {python}",
                date=date,
            )


@dataclass(frozen=True, eq=False, kw_only=True)
class TryWheel(FileTask):
    """Tries the wheel in a new, temporary environment; the output is the file with the result.

    Raises SkipTask if the environment cannot be made, if a signal of STOPPED ends a program
    in it, or if its torch fails without our package. The next run tries a skipped
    environment again.
    """

    target: Target
    wheel: Path

    def run(self, context: Context) -> Sequence[Path]:
        target = self.target
        if target.interpreter is None:
            raise SkipTask(
                f"no Python {target.python} on PATH or in pyenv; install one, or name its path "
                "with --python"
            )
        begin = time.monotonic()
        date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        folder = context.settings.verify_full / target.name
        try:
            findings = try_wheel(context.log, target, self.wheel, fresh(folder))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        result = Environment(
            torch=target.torch,
            python=target.python,
            state=findings.state,
            reason=findings.reason,
            torch_version=findings.torch_version,
            python_version=findings.python_version,
            variant=findings.variant,
            accepted=list(findings.accepted),
            rejected=dict(findings.rejected),
            devices=list(findings.devices),
            comparisons=findings.comparisons,
            worst=dict(findings.worst),
            gradcheck=findings.gradcheck,
            seconds=round(time.monotonic() - begin, 1),
            date=date,
        )
        file = context.settings.verify_full / "results" / f"{target.name}.json"
        write_atomically(file, result.model_dump_json(indent=1))
        return [file]


def try_wheel(log: Log, target: Target, wheel: Path, folder: Path) -> Findings:
    """Installs the wheel beside torch, runs the checker and the smoke test."""
    settings = log.settings
    package = settings.project.package
    python = _install(log, target, wheel, folder)
    empty = fresh(folder / "empty")
    problem = _failure(log, [python, "-m", package, "--json"], empty)
    verdicts = _verdicts(log.path.read_text(encoding="utf-8"))
    if verdicts.is_rejected:
        return Findings(
            state="rejected",
            reason=verdicts.cause,
            torch_version=verdicts.torch_version,
            accepted=verdicts.accepted,
            rejected=verdicts.rejected,
        )
    problems = [f"{settings.project.command}: {problem}"] if problem else []
    report = folder / "smoke.json"
    if problem := _failure(log, smoke_test(python, report, settings), empty):
        problems.append(f"{settings.smoke.name}: {problem}: {_last_lines(log)}")
    numbers = read_numbers(report)
    if not numbers.torch_version:
        problems.append(f"{settings.smoke.name} wrote no report")
    if numbers.gradcheck is False:
        problems.append("gradcheck did not pass")
    if problems and (problem := _failure(log, [python, "-c", TORCH_ALONE], empty)):
        raise SkipTask(f"torch fails here without {package}: {problem}: {_last_lines(log)}")
    return Findings(
        state="failed" if problems else "ran",
        reason="; ".join(problems),
        torch_version=numbers.torch_version or verdicts.torch_version,
        python_version=numbers.python_version,
        variant=verdicts.variant,
        accepted=verdicts.accepted,
        rejected=verdicts.rejected,
        devices=numbers.devices,
        comparisons=numbers.comparisons,
        worst=numbers.worst,
        gradcheck=numbers.gradcheck,
    )


def _install(log: Log, target: Target, wheel: Path, folder: Path) -> Path:
    """Makes the environment with torch and the wheel; returns its interpreter."""
    env = TorchEnv(
        folder=folder / "env",
        python=str(target.interpreter),
        release=target.release,
        cache=cache_of(log.settings),
        find_links=False,
    )
    # `--only-binary` makes uv take an older numpy if the newest has no wheel for this Python.
    requirements = [str(wheel), f"torch=={target.release}", "numpy", "--only-binary", "numpy"]
    try:
        return make_venv(log, env.folder, env, requirements)
    except ReleaseError as error:
        raise SkipTask(f"{error}: {_last_lines(log)}") from error


def _failure(log: Log, command: Sequence[str | Path], cwd: Path) -> str:
    """Runs a program.

    Returns its failure or "". Raises SkipTask if the exit code fits STOPPED.
    """
    settings = log.settings
    try:
        env = clean_env(settings.project, **emulation.variables(settings))
        log.run(command, env=env, cwd=cwd)
    except CommandFailed as error:
        if STOPPED.search(str(error)):
            raise SkipTask(str(error)) from error
        return str(error)
    return ""


class Verdicts(NamedTuple):
    """The checker's report: the chosen variant, the binaries, and the cause if none fits."""

    is_rejected: bool = False
    cause: str = ""
    torch_version: str | None = None
    variant: str | None = None
    accepted: Sequence[str] = ()
    rejected: Mapping[str, str] = {}


def _verdicts(log: str) -> Verdicts:
    """The checker's report in the text of a log."""
    try:
        # The report starts at the last line with a leading brace; torch's own output may
        # follow.
        report, _ = json.JSONDecoder().raw_decode(log, log.rfind("\n{") + 1)
    except ValueError:
        return Verdicts(cause="the checker printed no report")
    accepted = []
    rejected = {}
    for binary in report["binaries"]:
        name = Path(binary["path"]).name
        if binary["accepted"]:
            accepted.append(name)
        else:
            rejecting = [f["dimension"] for f in binary["findings"] if f["status"] == "rejected"]
            rejected[name] = rejecting[0] if rejecting else "unknown"
    return Verdicts(
        is_rejected=report["chosen"] is None,
        cause=(report["cause"] or {}).get("why", ""),
        torch_version=(report["runtime"]["torch"] or {}).get("version"),
        variant=report["chosen"],
        accepted=sorted(accepted),
        rejected=dict(sorted(rejected.items())),
    )


class Numbers(NamedTuple):
    """What the smoke test computed; the defaults stand for a test that wrote no report."""

    torch_version: str | None = None
    python_version: str | None = None
    devices: Sequence[str] = ()
    comparisons: int = 0
    worst: Mapping[str, float] = {}
    gradcheck: bool | None = None


def read_numbers(report: Path) -> Numbers:
    """The numbers in a smoke test's report."""
    try:
        data = json.loads(report.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Numbers()
    worst: dict[str, float] = {}
    for comparison in data["comparisons"]:
        dtype = comparison["dtype"]
        error = float(f"{comparison['worst']:.2e}")
        worst[dtype] = max(worst.get(dtype, 0.0), error)
    return Numbers(
        torch_version=data["torch"],
        python_version=data["python"],
        devices=data["devices"],
        comparisons=len(data["comparisons"]),
        worst=worst,
        gradcheck=data["gradcheck"],
    )


def _last_lines(log: Log) -> str:
    lines = [line.strip() for line in log.tail(4).splitlines() if line.strip()]
    return " | ".join(lines[-2:])[:400]
