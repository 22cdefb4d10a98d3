"""`python -m PACKAGE`: the report on the package, and the commands `build` and `doctor`.

`--binary` judges by the file alone, as a loader does. `doctor` runs torch-doctor, which also asks
the metadata of the file's package and imports it, and so may say otherwise.
"""

import argparse
import io
import sys
from pathlib import Path

from ..judge import judge_file, probe_runtime
from ..judge.project import Project, Record
from ..judge.words import render
from . import build_command
from .other_doctor import run_doctor
from .report import explain_variant, print_verdicts, report


def main(project: Project, arguments: list[str] | None = None) -> int:
    """Runs a command; returns the exit code: 2 for bad usage, 1 for a failure, else 0.

    If the reader of the output leaves, as `head` does, the command ends with 1.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a path may not be UTF-8
    parser = make_parser(project)
    if arguments[:1] == ["doctor"]:
        return run_doctor(project, arguments[1:])
    options = parser.parse_args(arguments)
    if options.command is None:
        request = _Request(
            torch=options.torch,
            binary=options.binary,
            variant=options.explain,
            as_json=options.json,
        )
        return render.print_to_the_end(lambda: _report(project, request))
    if arguments[0] != options.command:
        parser.error(f"the options of {options.command} follow it: {arguments[0]} stands before")
    return render.print_to_the_end(lambda: build_command.run(project, options))


def make_parser(project: Project) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=project.command,
        description=f"Say whether {project.distribution} works in this environment, "
        "and if not, why and what to do.",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the report as JSON (docs/fails/compat.md)"
    )
    parser.add_argument(
        "--torch", metavar="PATH", help="check against another torch or environment"
    )
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--binary", metavar="FILE", help="check any shared object, of any package")
    group.add_argument("--explain", metavar="VARIANT", help="print every finding of one variant")
    parser.add_argument(
        "--version", action="version", version=f"{project.distribution} {project.version}"
    )
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", title="commands, which have a --help of their own"
    )
    _add_command(
        commands, "build", build_command.make_parser(project), "compile what fits this torch"
    )
    commands.add_parser(
        "doctor", help="check every package's torch extensions, with torch-doctor", add_help=False
    )
    return parser


def _add_command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    parser: argparse.ArgumentParser,
    summary: str,
) -> None:
    commands.add_parser(
        name,
        parents=[parser],
        prog=parser.prog,
        description=parser.description,
        help=summary,
        add_help=False,  # `parser` has it
    )


class _Request(Record, kw_only=True):
    """What the report is to be about."""

    torch: str | None  #: another torch or environment
    binary: str | None  #: a shared object, of any package
    variant: str | None  #: whose findings are to be printed
    as_json: bool


def _report(project: Project, request: _Request) -> int:
    runtime = probe_runtime(request.torch, project=project)
    if request.binary is not None:
        # FILE may belong to another package, so do not compare its version with ours.
        verdict = judge_file(Path(request.binary), runtime._replace(package_version=""))
        print_verdicts([verdict], as_json=request.as_json)
        return 0 if verdict.accepted else 1
    if request.variant is not None:
        return explain_variant(runtime, request.variant, as_json=request.as_json)
    return report(runtime, run_op=request.torch is None, as_json=request.as_json)
