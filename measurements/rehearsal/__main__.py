"""The command line of the rehearsal; `__init__` shows it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import mkdtemp

from .actions import ACTIONS
from .programs import MODULES, PROGRAMS, SCRIPTS
from .rehearsal import Rehearsed, Theatre
from .source import Source

#: What no function stands for.
OTHERS = {
    "a container": "this machine; the image's Python and CUDA are this machine's",
    "an Arm runner": "this machine, whose files get Arm's names",
    "the matrix": "cut to the CPU cells of the stable glue, and of the oldest ATen one",
}


def show_stand_ins() -> None:
    """Lists everything that is not the real thing."""
    for name, action in ACTIONS.items():
        print(f"{name} ({', '.join(sorted(action.inputs))})\n    {_purpose(action.perform)}")
    for name, program in {**PROGRAMS, **MODULES, **SCRIPTS}.items():
        print(f"{name}\n    {_purpose(program)}")
    for name, purpose in OTHERS.items():
        print(f"{name}\n    {purpose}")


def _purpose(function: object) -> str:
    return (function.__doc__ or "").partition("\n")[0]


def show(rehearsed: Rehearsed) -> None:
    report = rehearsed.report
    word = "right" if report.is_right else "WRONG"
    place = f"{rehearsed.workflow.file}, {rehearsed.occasion}"
    print(f"{word}  {place}, {rehearsed.seconds:.0f} s, {len(report.steps)} steps", flush=True)
    print(
        "  " + ", ".join(f"{job}: {result}" for job, result in report.results.items()), flush=True
    )
    for problem in report.problems:
        print(f"  {problem}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m measurements.rehearsal",
        description="Run the GitHub workflows of a repository on this machine.",
        epilog="Needs bash, git, jq, a C++ compiler and a package index.",
    )
    parser.add_argument("folder", nargs="?", type=Path, default=Path(), help="the repository")
    parser.add_argument("workflows", nargs="*", metavar="WORKFLOW", help="such as release.yml")
    parser.add_argument("--full", action="store_true", help="leave the matrix as it is")
    parser.add_argument("--stand-ins", action="store_true", help="list the stand-ins, and stop")
    options = parser.parse_args()
    if options.stand_ins:
        show_stand_ins()
        return 0
    folder = Path(mkdtemp(prefix="rehearsal-"))
    source = Source.clone(options.folder.resolve(), folder / "source")
    if not options.full:
        source.keep_cells()
    is_right = True
    for rehearsed in Theatre(source, folder).play_all(options.workflows):
        show(rehearsed)
        is_right = is_right and rehearsed.report.is_right
    print(f"the clones are in {folder}")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
