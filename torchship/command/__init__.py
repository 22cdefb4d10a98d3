"""The command `torchship`: makes, builds, ships and checks a project's packages.

Every command returns 0 if all is well, 1 if something failed, and 2 if it could not be carried
out as asked.
"""

import argparse
import difflib
import importlib
import io
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NamedTuple

from ..judge.text import printable
from ..judge.words.render import print_to_the_end
from ..release import ReleaseError, options

_TORCHSHIP = __package__.rpartition(".")[0]


class Command(NamedTuple):
    """A command of torchship. Its module, below torchship, is imported when it is used.

    The module has the functions `add_arguments(parser)` and `run(parsed)`, except for the release
    tool, whose commands are in `release.options`, and for the doctor, which has its own grammar.
    """

    name: str
    summary: str
    module: str


_RELEASE = "command.release"
_DOCTOR = "command.doctor"
_OF_RELEASE = [Command(name, c.summary, _RELEASE) for name, c in options.COMMANDS.items()]

COMMANDS = (
    Command("new", "make a repository for an op of your own", "project.new"),
    Command("init", "describe the extension of a repository", "project.init"),
    Command("update", "move a project to this version of torchship", "project.update"),
    Command("test", "check, install, build and test a project", "project.test_suite"),
    Command("build", "compile what fits this torch into the checkout", "command.build"),
    *_OF_RELEASE,
    Command("audit", "say which users a wheel will serve", "command.audit"),
    Command("doctor", "check every torch extension of this environment", _DOCTOR),
    Command(
        "port", "list what a port of an extension to the stable ABI has to do", "porting.command"
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a path may not be UTF-8
    command = next((one for one in COMMANDS if arguments[:1] == [one.name]), None)
    if command is None:
        return _without_a_command(arguments)
    try:
        return print_to_the_end(lambda: _run(command, arguments))
    except ReleaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _without_a_command(arguments: Sequence[str]) -> int:
    word = next(iter(arguments), "")
    if word and not word.startswith("-"):
        near = difflib.get_close_matches(word, [one.name for one in COMMANDS], n=2)
        hint = f"did you mean {' or '.join(near)}?" if near else "torchship --help lists them"
        print(f"error: torchship has no command {printable(word)[:500]!r}; {hint}", file=sys.stderr)
        return 2
    parser = make_parser()
    parser.parse_args(arguments)  # ends the process, unless there are no arguments
    parser.print_help()
    return 2


def _run(command: Command, arguments: Sequence[str]) -> int:
    own = arguments[1:]
    if command.module == _RELEASE:
        return int(_module(command).main(command.name, own))
    if command.module == _DOCTOR:
        return int(_module(command).main(own))
    parser = parser_of(command)
    # What stands behind `--` is for another program.
    parse = parser.parse_args if "--" in own else parser.parse_intermixed_args
    parsed = parse(own)
    parsed.arguments = arguments  # `init` and `update` may go on in another process
    return int(_module(command).run(parsed))


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
    program = f"torchship {command.name}"
    if command.module == _RELEASE:
        return options.make_parser(command.name, program)
    if command.module == _DOCTOR:
        from ..doctor import grammar  # with the whole doctor, which few commands need

        return grammar.make_parser("", program)
    summary = command.summary
    parser = argparse.ArgumentParser(
        prog=program, description=f"{summary[0].upper()}{summary[1:]}.", allow_abbrev=False
    )
    _module(command).add_arguments(parser)
    return parser


def _description() -> str:
    return (__doc__ or "").partition("\n\n")[0].partition(": ")[2].capitalize()


def _module(command: Command) -> ModuleType:
    return importlib.import_module(f"{_TORCHSHIP}.{command.module}")
