"""Installs the fat wheel next to every torch and Python that has a wheel, and runs it there.

    python -m release.verify_full --wheel WHEEL [TORCH[@PYTHON] ...]

`scripts/build_all.sh --verify full` does the same with the wheel it has built. One torch minor
after the other: its environments share one cache of about 12 GB, which is removed after it, while
the next is filled. Results are kept below build/verify-full, keyed by the wheel's content: an
interrupted run goes on where it stopped. Once every environment has a result, all of them are
stored in benchmarks/results/environments.json, which the support tables show.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.parser import HeaderParser
from enum import Enum
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any
from zipfile import BadZipFile, ZipFile

from packaging.requirements import Requirement
from pydantic import ValidationError
from rich.console import Console

from lltm_conda.compat.binary import read_binary
from release import BUILD, DIST, REPO, ReleaseError, evidence
from release.environments import index_options
from release.evidence import Environment, Evidence
from release.interpreters import interpreters
from release.leftovers import end_children
from release.manifest import parse
from release.matrix import load
from release.paths import MANIFEST, fresh, tool
from release.run import only_run
from release.schema import Matrix
from release.shell import Log, clean_env
from release.stopping import deferred
from release.store import digest, write_atomically

WORK = BUILD / "verify-full"
CACHE = WORK / "cache"
SMOKE = REPO / "scripts" / "release" / "smoke.py"
# One torch with its CUDA libraries in the cache, and four environments' own torches.
DISK_NEEDED = 15_000_000_000
PLATFORM = "x86_64-manylinux_2_28"
RUNTIME = "nvidia-cuda-runtime"
# Ended from outside: an interrupt, or no memory left. It says nothing of the wheel.
STOPPED = re.compile(r"exit code -(2|9|15)\b")
STYLES = {"ran": "green", "judged": "cyan", "unreached": "yellow"}


class Verify(str, Enum):
    """How much is run of what was built."""

    ONE = "one"
    FULL = "full"


@dataclass(frozen=True)
class Wheel:
    """The fat wheel: where it lies, its hash, the names in it, the commit of their sources."""

    path: Path
    sha256: str
    binaries: tuple[str, ...]
    commit: str


@dataclass(frozen=True)
class Target:
    """One environment; `interpreter` is None where this machine lacks that Python."""

    torch: str
    release: str
    python: str
    interpreter: str | None

    @property
    def name(self) -> str:
        return f"torch-{self.torch}-py{self.python}"


def read_wheel(path: Path) -> Wheel:
    """What is in the wheel.

    Raises:
        ReleaseError: it is no wheel of ours.
    """
    try:
        with TemporaryDirectory() as folder, ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith(".so")]
            records = [read_binary(Path(archive.extract(name, folder))) for name in names]
    except (OSError, BadZipFile) as error:
        raise ReleaseError(f"{path}: no readable wheel ({error}); build one first") from error
    texts = [json.loads(record.record.text) for record in records if record.record]
    if not texts or len(texts) != len(records):
        raise ReleaseError(f"{path}: holds no binaries of lltm with build records; build it anew")
    commits = sorted({str(text.get("git_commit", "unknown")) for text in texts})
    binaries = tuple(sorted(record.path.name for record in records))
    return Wheel(path.resolve(), digest(path), binaries, " ".join(commits))


@cache
def _interpreter(python: str) -> str | None:
    return next(interpreters(python), None)


def targets(matrix: Matrix, only: Sequence[str] = ()) -> list[Target]:
    """Every environment for which PyPI has a torch, newest torch first.

    Raises:
        ReleaseError: a selector (`2.10` or `2.10@3.12`) names none.
    """
    found = [
        Target(minor, torch.release, python, _interpreter(python))
        for minor, torch in reversed([(m, matrix.torch[m]) for m in matrix.minors()])
        for python in torch.pythons
    ]
    if not only:
        return found
    chosen: set[Target] = set()
    for text in only:
        minor, _, python = text.partition("@")
        named = [t for t in found if t.torch == minor and python in ("", t.python)]
        if not named:
            known = ", ".join(
                f"{m} on {' '.join(matrix.torch[m].pythons)}" for m in matrix.minors()
            )
            raise ReleaseError(
                f"{text!r} names no torch and Python with a wheel; there are {known}"
            )
        chosen.update(named)
    return [target for target in found if target in chosen]


def verify_built(matrix: Matrix, console: Console, jobs: int) -> int:
    """`verify` with the fat wheel that dist/manifest.json names.

    Raises:
        ReleaseError: there is none.
    """
    made = parse(MANIFEST).fat if MANIFEST.exists() else None
    if made is None:
        raise ReleaseError(f"{MANIFEST}: names no fat wheel; the run above says why none was made")
    with only_run(console):
        return verify(DIST / made.path, matrix, console, jobs=jobs)


def verify(
    wheel: Path,
    matrix: Matrix,
    console: Console,
    *,
    only: Sequence[str] = (),
    jobs: int = 1,
) -> int:
    """Runs what has no result yet, and stores all results once none is missing; the exit code."""
    given = read_wheel(wheel)
    wanted = targets(matrix, only)
    console.print(f"{given.path.name} ({given.sha256[:12]}): {len(wanted)} environments")
    for left in WORK.glob("discarded-*"):
        subprocess.run(["rm", "-rf", left], check=False)
    begun, count = time.monotonic(), 0
    waste: subprocess.Popen[bytes] | None = None
    for minor in dict.fromkeys(target.torch for target in wanted):
        group = [target for target in wanted if target.torch == minor]
        missing = [target for target in group if _stored(target, given) is None]
        if missing:
            _room(waste)
        try:
            done = _group(missing, given, jobs)
        finally:
            # It goes while the next torch is fetched; not more than one of them lies about.
            if waste:
                waste.wait()
            waste = _discard(CACHE)
        for target in group:
            count += 1
            result = done.get(target) or _stored(target, given)
            assert result is not None
            style = STYLES.get(result.state, "bold red")
            text = f"[{style}]{result.state:9}[/] torch {result.torch_version or target.release}"
            text += f", Python {result.python_version or target.python}: {result.variant or '-'}"
            text += f" ({result.seconds:.0f} s{'' if target in done else ', before'})"
            console.print(f"{count:>3}/{len(wanted)} {text}")
            if result.reason:
                console.print(f"        {result.reason}", markup=False, soft_wrap=True)
    if waste:
        waste.wait()
    console.print(f"{count} environments in {time.monotonic() - begun:.0f} s")
    return _finish(given, matrix, wanted, console)


def _group(missing: Sequence[Target], wheel: Wheel, jobs: int) -> dict[Target, Environment]:
    """The environments of one torch: the first alone, since it fetches what all of them share."""
    done = {target: _one(target, wheel) for target in missing[:1]}
    with deferred() as stop, ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
        running = {pool.submit(_one, target, wheel): target for target in missing[1:]}
        try:
            while running:
                for future in stop.next_of(running):
                    done[running.pop(future)] = future.result()
        except BaseException:
            # Leaving the pool waits for what runs; let that be over soon.
            pool.shutdown(wait=False, cancel_futures=True)
            end_children()
            raise
    return done


def _discard(folder: Path) -> subprocess.Popen[bytes] | None:
    """Out of the way at once, and gone after a while: these are hundreds of thousands of files."""
    if not folder.exists():
        return None
    aside = Path(mkdtemp(prefix="discarded-", dir=folder.parent))
    folder.rename(aside / folder.name)
    return subprocess.Popen(["rm", "-rf", aside], close_fds=False)


def _room(waste: subprocess.Popen[bytes] | None) -> None:
    """Stops where the disk has no room for one more torch, once `waste` has gone."""
    WORK.mkdir(parents=True, exist_ok=True)
    if waste and shutil.disk_usage(WORK).free < DISK_NEEDED:
        waste.wait()
    free = shutil.disk_usage(WORK).free
    if free < DISK_NEEDED:
        text = f"{WORK}: {free / 1e9:.1f} GB are free, {DISK_NEEDED / 1e9:.0f} GB are needed"
        raise ReleaseError(f"{text}; free some and run the same again: what was done is kept")


def _result_file(target: Target) -> Path:
    return WORK / "results" / f"{target.name}.json"


def _key(target: Target, wheel: Wheel) -> str:
    return f"{wheel.sha256} {digest(SMOKE)} {target.release} {bool(target.interpreter)}"


def _stored(target: Target, wheel: Wheel) -> Environment | None:
    """An earlier result for the same wheel; what could not be reached is tried again."""
    try:
        data = json.loads(_result_file(target).read_text(encoding="utf-8"))
        if data["key"] != _key(target, wheel):
            return None
        found = Environment.model_validate(data["result"])
    except (OSError, ValueError, KeyError, TypeError, ValidationError):
        return None
    return None if found.state == "unreached" else found


def _one(target: Target, wheel: Wheel) -> Environment:
    """One environment from nothing to its result, and nothing left of it but that and a log."""
    begun = time.monotonic()
    folder = WORK / target.name
    now = datetime.datetime.now(datetime.timezone.utc)
    facts: dict[str, Any] = {"torch": target.torch, "python": target.python}
    facts["date"] = f"{now:%Y-%m-%dT%H:%M:%SZ}"
    try:
        with Log(WORK / "logs" / f"{target.name}.log") as log:
            run = _run if target.interpreter else _judge
            facts |= run(log, target, wheel, fresh(folder))
    finally:
        subprocess.run(["rm", "-rf", folder], check=False)
    facts["seconds"] = round(time.monotonic() - begun, 1)
    result = Environment.model_validate(facts)
    text = {"key": _key(target, wheel), "result": result.model_dump(mode="json")}
    write_atomically(_result_file(target), json.dumps(text, indent=1))
    return result


def _uv(log: Log, *words: str | Path) -> None:
    """Runs uv, twice if need be: a network may fail once."""
    # Only PyPI's own builds count here, so PIP_FIND_LINKS is left out.
    options = index_options(find_links=False)
    command = [tool("uv"), "pip", "install", "--link-mode", "hardlink", *options, *words]
    try:
        log.run(command, env=clean_env(UV_CACHE_DIR=str(CACHE)))
    except ReleaseError:
        log.run(command, env=clean_env(UV_CACHE_DIR=str(CACHE)))


def _venv(log: Log, folder: Path, python: str) -> Path:
    log.run([tool("uv"), "venv", "--quiet", "--clear", "--python", python, folder])
    return folder / "bin" / "python"


def _run(log: Log, target: Target, wheel: Wheel, folder: Path) -> dict[str, Any]:
    """Installs, judges, computes."""
    assert target.interpreter is not None
    wanted = [wheel.path, f"torch=={target.release}", "numpy"]
    try:
        python = _venv(log, folder / "env", target.interpreter)
        _uv(log, "--python", python, *wanted)
    except ReleaseError as error:
        return {"state": "unreached", "reason": f"{error}: {_last(log)}"}
    empty = fresh(folder / "empty")
    report, numbers = folder / "report.json", folder / "smoke.json"
    problems = []
    try:
        _report(log, [python, "-m", "lltm_conda", "--json"], empty, report)
    except ReleaseError as error:
        problems.append(f"python -m lltm_conda: {error}")
    if cut := [text for text in problems if STOPPED.search(text)]:
        return {"state": "unreached", "reason": cut[0]}
    facts, cause = _verdicts(report)
    if facts and facts["variant"] is None:
        return {"state": "rejected", "reason": cause, **facts}
    try:
        log.run(
            [python, SMOKE, "--outside", REPO / "lltm_conda", "--json", numbers],
            env=clean_env(),
            cwd=empty,
        )
    except ReleaseError as error:
        problems.append(f"smoke.py: {error}: {_last(log)}")
    if cut := [text for text in problems if STOPPED.search(text)]:
        return {"state": "unreached", "reason": cut[0]}
    facts |= _computed(numbers)
    if not facts.get("gradcheck"):
        problems.append("gradcheck did not pass")
    return {"state": "failed" if problems else "ran", "reason": "; ".join(problems), **facts}


def _judge(log: Log, target: Target, wheel: Wheel, folder: Path) -> dict[str, Any]:
    """Judges the wheel against that torch's files; nothing of them is loaded."""
    elsewhere, empty = folder / "torch", fresh(folder / "empty")
    for_python = ["--python-version", target.python, "--python-platform", PLATFORM]
    try:
        python = _venv(log, folder / "env", sys.executable)
        _uv(log, "--python", python, "--no-deps", wheel.path)
        torch = ["--no-deps", "--only-binary", ":all:", f"torch=={target.release}"]
        _uv(log, "--target", elsewhere, *for_python, *torch)
        if libraries := cuda_runtime(elsewhere):
            _uv(log, "--target", elsewhere, *for_python, "--no-deps", *libraries)
    except ReleaseError as error:
        return {"state": "unreached", "reason": f"{error}: {_last(log)}"}
    report = folder / "report.json"
    problem = ""
    try:
        _report(log, [python, "-m", "lltm_conda", "--json", "--torch", elsewhere], empty, report)
    except ReleaseError as error:
        problem = str(error)
    facts, cause = _verdicts(report)
    why = f"no CPython {target.python} on the machine that tried"
    if not problem and facts.get("variant"):
        return {"state": "judged", "reason": why, **facts}
    return {"state": "rejected", "reason": f"{why}; {cause or problem}", **facts}


def cuda_runtime(site: Path) -> list[str]:
    """The wheels of CUDA's runtime that a torch asks for; kernels may need the library in them."""
    (metadata,) = site.glob("torch-*.dist-info/METADATA")
    headers = HeaderParser().parsestr(metadata.read_text(encoding="utf-8"))
    needs = [Requirement(line) for line in headers.get_all("Requires-Dist", [])]
    return [f"{need.name}{need.specifier}" for need in needs if need.name.startswith(RUNTIME)]


def _report(log: Log, command: list[str | Path], cwd: Path, target: Path) -> None:
    """Runs the checker; its JSON goes to `target`, also where its verdict is no."""
    with Log(target) as out:
        try:
            out.run(command, env=clean_env(), cwd=cwd)
        finally:
            text = target.read_text(encoding="utf-8")
            log.write(text)
            # The first line is the command; what torch says while it is imported may follow.
            target.write_text(text[text.find("\n{") + 1 :], encoding="utf-8")


def _verdicts(report: Path) -> tuple[dict[str, Any], str]:
    """What the checker found, and the one cause if nothing fits."""
    try:
        data, _ = json.JSONDecoder().raw_decode(report.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}, "the checker printed no report"
    rejected = {}
    for binary in data["binaries"]:
        bad = [f["dimension"] for f in binary["findings"] if f["status"] == "rejected"]
        if not binary["accepted"]:
            rejected[Path(binary["path"]).name] = bad[0] if bad else "unknown"
    torch = data["runtime"]["torch"] or {}
    facts = {
        "torch_version": torch.get("version"),
        "variant": data["chosen"],
        "accepted": sorted(Path(b["path"]).name for b in data["binaries"] if b["accepted"]),
        "rejected": dict(sorted(rejected.items())),
    }
    return facts, (data["cause"] or {}).get("why", "")


def _computed(numbers: Path) -> dict[str, Any]:
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


def _finish(wheel: Wheel, matrix: Matrix, wanted: Sequence[Target], console: Console) -> int:
    """Stores the results if there is one for every environment."""
    every = targets(matrix)
    found = {target: _stored(target, wheel) for target in every}
    known = [result for result in found.values() if result is not None]
    if len(known) < len(every):
        text = f"{len(every) - len(known)} of {len(every)} environments have no result yet"
        console.print(f"{text}: {evidence.RESULTS.relative_to(REPO)} is left as it was")
    else:
        evidence.save(gathered(wheel, matrix, known))
        console.print(f"stored in {evidence.RESULTS.relative_to(REPO)}; now run:")
        console.print("scripts/build_all.sh --write-generated")
    good = {"ran", "judged"}
    return 0 if all((r := found[t]) is not None and r.state in good for t in wanted) else 1


def gathered(wheel: Wheel, matrix: Matrix, known: Sequence[Environment]) -> Evidence:
    """The results, and a line for every Python of the matrix for which a torch has no wheel."""
    date = max(result.date for result in known)
    absent = [
        Environment(
            torch=minor,
            python=python,
            state="unsupported",
            reason=f"PyPI has no wheel of torch {minor} for Python {python}",
            date=date,
        )
        for minor in matrix.minors()
        for python in matrix.package.pythons
        if python not in matrix.torch[minor].pythons
    ]
    order = {minor: index for index, minor in enumerate(matrix.minors())}
    rows = sorted(
        [*known, *absent],
        key=lambda e: (order[e.torch], matrix.package.pythons.index(e.python)),
    )
    return Evidence(
        wheel=wheel.path.name,
        sha256=wheel.sha256,
        binaries=list(wheel.binaries),
        commit=wheel.commit,
        smoke=digest(SMOKE),
        date=date,
        machine=f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}",
        command="scripts/build_all.sh --verify full",
        environments=rows,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("only", nargs="*", metavar="TORCH[@PYTHON]")
    parser.add_argument("--wheel", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1, help="environments at a time (1)")
    args = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    try:
        return verify(args.wheel, load(), console, only=args.only, jobs=args.jobs)
    except ReleaseError as error:
        console.print(f"error: {error}", markup=False, style="red", soft_wrap=True)
        return 2


if __name__ == "__main__":
    sys.exit(main())
