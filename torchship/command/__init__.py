"""The command `torchship`: makes, builds, ships and checks a project's packages.

Every command returns 0 if all is well, 1 if something failed, and 2 if it could not be carried
out as asked.
"""

import argparse
import importlib
import io
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..judge.render import print_to_the_end
from ..release import ReleaseError

_TORCHSHIP = __package__.rpartition(".")[0]


@dataclass(frozen=True)
class Command:
    """A command: where the functions stand that define its options and carry it out.

    Both are "MODULE:FUNCTION" below torchship, and are imported when the command is used.
    """

    name: str
    summary: str
    add: str  #: adds the options to a parser
    run: str  #: does what the parsed options ask for; returns the exit code


def _own(name: str, summary: str, module: str) -> Command:
    """A command whose module has the functions `add_arguments` and `run`."""
    return Command(name, summary, add=f"{module}:add_arguments", run=f"{module}:run")


def _of_release(name: str, summary: str) -> Command:
    """A command of the release tool."""
    return Command(name, summary, add=f"release.options:add_{name}", run="command.release:run")


COMMANDS = (
    _own("new", "make a repository for an op of your own", "project.new"),
    _own("init", "describe the extension of a repository", "project.init"),
    _own("update", "move a project to this version of torchship", "project.update"),
    _own("test", "check, install, build and test a project", "project.test_suite"),
    _own("build", "compile what fits this torch into the checkout", "command.build"),
    _of_release("list", "show the cells of the matrix, and whether this machine can build them"),
    _of_release("release", "build, audit, pack, install and run cells of the matrix"),
    _of_release("merge", "join the dist folders of shards"),
    _of_release("verify", "release, and try the fat wheel with every torch and Python"),
    _of_release("upload", "publish what is in dist"),
    _of_release("yank", "make pip and conda pass over a version that went wrong"),
    _of_release("recipe", "build a conda package from source, with recipe/ alone"),
    _of_release("generate", "write the files that follow from the matrix"),
    _own("audit", "say which users a wheel will serve", "command.audit"),
    _own("doctor", "check every torch extension of this environment", "command.doctor"),
    _own("port", "list what a port of an extension to the stable ABI has to do", "porting.command"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a path may not be UTF-8
    command = next((one for one in COMMANDS if arguments[:1] == [one.name]), None)
    if command is None:
        parser = make_parser()
        parser.parse_args(arguments)  # ends the process, unless there are no arguments
        parser.print_help()
        return 2
    parser = parser_of(command)
    # What stands behind `--` is for another program.
    parse = parser.parse_args if "--" in arguments else parser.parse_intermixed_args
    options = parse(arguments[1:])
    options.arguments = arguments
    run = _load(command.run)
    try:
        return print_to_the_end(lambda: run(options))
    except ReleaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def make_parser() -> argparse.ArgumentParser:
    """The parser of the options before a command, which names the commands."""
    from ..doctor._version import __version__  # with the whole doctor, which few commands need

    parser = argparse.ArgumentParser(prog="torchship", description=_description())
    parser.add_argument("--version", action="version", version=f"torchship {__version__}")
    names = parser.add_subparsers(metavar="COMMAND", title="commands")
    for command in COMMANDS:
        names.add_parser(command.name, help=command.summary)
    return parser


def parser_of(command: Command) -> argparse.ArgumentParser:
    """The parser of what stands behind a command."""
    summary = command.summary
    parser = argparse.ArgumentParser(
        prog=f"torchship {command.name}",
        description=f"{summary[0].upper()}{summary[1:]}.",
        allow_abbrev=False,
    )
    _load(command.add)(parser)
    return parser


def _description() -> str:
    return (__doc__ or "").partition("\n\n")[0].partition(": ")[2].capitalize()


def _load(place: str) -> Callable[..., int]:
    module, _, name = place.partition(":")
    function: Callable[..., int] = getattr(importlib.import_module(f"{_TORCHSHIP}.{module}"), name)
    return function
