"""Makes the reported environments, runs their code, asks the doctor, and carries out its fixes.

    python -m measurements.environments.make_environments [NAME ...] [--torch KEY] [--folder DIR]

The program needs uv beside the Python that runs it, gcc, and for some cases root. One torch is on
the disk at a time. Without names it makes all cases, and stores what came out in
measurements/results/reported_environments.json; with names, or a torch, only theirs.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from measurements.environments import outcomes
from measurements.environments.cases import Case, read
from measurements.environments.environment import Environment, Verdict
from measurements.environments.outcomes import Outcome, Table

REPO = Path(__file__).resolve().parents[2]

#: What is installed beside nothing else, by the key that cases name.
TORCHES = {
    "cpu213": ("torch==2.13.0+cpu", "numpy"),
    "cuda210": ("torch==2.10.0", "numpy"),
    "cuda214": ("torch==2.14.1", "torchvision==0.29.1", "numpy"),
    "cuda215": ("torch==2.15.0", "numpy"),
}
#: The tools with which fixes install and compile.
TOOLS = ("pip", "setuptools", "wheel", "ninja")
FOLDER = REPO / "build" / "environments"
#: After so many fixes an environment counts as not mended.
CURES = 3
_BYTES_FREE = 12 << 30


def make_base(key: str, folder: Path) -> Path:
    """An environment with a torch alone."""
    if shutil.disk_usage(folder).free < _BYTES_FREE:
        raise SystemExit(f"less than {_BYTES_FREE >> 30} GiB are free in {folder}: make room")
    base = folder / key
    variables = dict(os.environ)
    if "PIP_FIND_LINKS" in variables:
        variables["UV_FIND_LINKS"] = variables["PIP_FIND_LINKS"].replace(" ", ",")
    uv = str(Path(sys.executable).parent / "uv")
    python = getattr(sys, "_base_executable", sys.executable)
    if not (base / "bin" / "python").exists():
        subprocess.run([uv, "venv", "-q", "--python", python, base], check=True)
        # Compiled once, and not again in each copy.
        install = [uv, "pip", "install", "-q", "--compile-bytecode", "--python"]
        install.append(str(base / "bin" / "python"))
        subprocess.run([*install, *TORCHES[key], *TOOLS], check=True, env=variables)
    return base


def examine(case: Case, base: Path, folder: Path, former: Path | None = None) -> Outcome:
    """Make the environment of a case, and see what is true and what the doctor says.

    `former` is a folder with the package torchship of another time, which is asked, too.
    """
    environment = Environment(base, folder / "case", case)
    git = ["git", "-C", str(REPO), "rev-parse", "--short=10", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    try:
        environment.make()
        before = environment.load()
        verdict_of_former = environment.judge(former) if former else Verdict(state="")
        start = time.monotonic()
        verdict = environment.judge()
        seconds = time.monotonic() - start
        read_alone = environment.judge(options="--no-import")
        outcome = Outcome(
            name=case.name,
            torch=case.torch,
            works=before.succeeds,
            error=hide(before.error, environment),
            state=verdict.state,
            code=verdict.code,
            why=hide(verdict.why, environment),
            command=hide(next(iter(verdict.commands), ""), environment),
            state_before=verdict_of_former.state,
            code_before=verdict_of_former.code,
            state_read=read_alone.state,
            code_read=read_alone.code,
            seconds=seconds,
            commit=commit,
        )
        return outcome if before.succeeds else mend(outcome, verdict, environment)
    finally:
        environment.remove()


def mend(outcome: Outcome, verdict: Verdict, environment: Environment) -> Outcome:
    """Carry out the first command of the verdict, and of those after it, until the code works."""
    tried: list[str] = []
    result = ""
    while len(tried) < CURES:
        command = next((command for command in verdict.commands if command not in tried), "")
        if not command:
            break
        tried.append(command)
        run = environment.carry_out(command)
        result = outcomes.MENDS if run.succeeds else outcomes.MENDS_NOTHING
        if "download.pytorch.org" in command and "No matching distribution" in run.output:
            result = outcomes.OUT_OF_REACH
        verdict = environment.judge()
        if result != outcomes.MENDS_NOTHING:
            break
        print(f"  {command}\n  -> {run.error}", flush=True)
    return Outcome(
        **{
            **vars(outcome),
            "command": hide(tried[-1] if tried else "", environment),
            "cure": result,
            "state_after": verdict.state if result == outcomes.MENDS else "",
        }
    )


def hide(line: str, environment: Environment) -> str:
    """A line without the folders of this machine."""
    for folder, name in (
        (environment.prefix, "$ENV"),
        (environment.work, "$WORK"),
        (environment.home, "$HOME"),
        (environment.prefix.parents[1], "$BASES"),
    ):
        line = line.replace(str(folder), name)
    return line[:400]


def describe(case: Case, outcome: Outcome) -> str:
    """A line about an outcome, which begins with `!` if something is not as it should be."""
    is_right = outcome.state == ("works" if outcome.works else "fails")
    is_cause = outcome.works or outcome.code in case.causes
    is_true = outcome.works == case.works
    mark = " " if is_right and is_cause and is_true and outcome.cure != "mends nothing" else "!"
    truth = "works" if outcome.works else "fails"
    reading = f"read: {outcome.state_read} {outcome.code_read}, {outcome.seconds:.0f} s"
    surprise = "" if is_true else " (not as the report says)"
    said = f"doctor: {outcome.state} {outcome.code}; {reading}"
    lines = [f"{mark} {case.name}: {truth}{surprise}, {said}"]
    if mark == "!" or not outcome.works:
        lines += [f"    error: {outcome.error}", f"    why:   {outcome.why}"]
        lines += [f"    cure:  {outcome.command or '-'} -> {outcome.cure}"]
    return "\n".join(lines)


def run(cases: Iterable[Case], folder: Path, former: Path | None) -> Iterator[Outcome]:
    """The outcomes of cases, torch by torch."""
    chosen = list(cases)
    folder.mkdir(parents=True, exist_ok=True)
    for key in TORCHES:
        of_torch = [case for case in chosen if case.torch == key]
        if not of_torch:
            continue
        base = make_base(key, folder)
        for case in of_torch:
            if case.needs_root and os.geteuid() != 0:
                print(f"  {case.name}: left out, since it needs root")
                continue
            try:
                outcome = examine(case, base, folder, former)
            except RuntimeError as error:
                print(f"! {error}", flush=True)
                continue
            print(describe(case, outcome), flush=True)
            yield outcome
        if len({case.torch for case in chosen}) > 1:
            shutil.rmtree(base)


def store(outcome: Outcome, cases: Sequence[Case], path: Path) -> Table:
    """Put an outcome in the place of the stored one of its case.

    What a former doctor said stays where none was asked this time.
    """
    merged = {stored.name: stored for stored in outcomes.load(path).outcomes}
    earlier = merged.get(outcome.name)
    if earlier is not None and not outcome.state_before:
        outcome = replace(
            outcome, state_before=earlier.state_before, code_before=earlier.code_before
        )
    merged[outcome.name] = outcome
    table = Table(
        command="python -m measurements.environments.make_environments",
        machine=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}, "
        f"{' '.join(platform.libc_ver())}",
        outcomes=tuple(merged[case.name] for case in cases if case.name in merged),
    )
    outcomes.save(table, path)
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these cases")
    parser.add_argument("--torch", choices=TORCHES, help="only the cases beside this torch")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where environments are made")
    parser.add_argument(
        "--former",
        type=Path,
        help="a folder with the package torchship of another time, to ask too",
    )
    parser.add_argument(
        "--out", type=Path, default=outcomes.PATH, help="where the outcomes are stored"
    )
    options = parser.parse_args()
    cases = read()
    chosen = [
        case
        for case in cases
        if (not options.names or case.name in options.names)
        and (not options.torch or case.torch == options.torch)
    ]
    for outcome in run(chosen, options.folder.absolute(), options.former):
        store(outcome, cases, options.out)
    print(outcomes.count(outcomes.load(options.out).outcomes, cases))
    return 0


if __name__ == "__main__":
    sys.exit(main())
