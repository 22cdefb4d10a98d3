"""The command line of torch-doctor: from what is typed to what is asked for.

    torch-doctor check | explain | choose | audit | build | run

Without one of these words it is `check`, which then takes a message or wheels, too.
"""

from __future__ import annotations

import argparse
import difflib
import textwrap
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..judge.project import Record

#: Of one import.
_MAX_SECONDS = 3600


class Where(Record, kw_only=True):
    """The environment and the torch that are judged; None for those of this Python."""

    python: str | None = None
    torch: str | None = None


class Check(Record, kw_only=True):
    """Does each torch extension work?"""

    names: tuple[str, ...] = ()  #: packages, files and folders; () for the environment
    is_bare: bool = False  #: whether no command was named, so that the names may be a message
    where: Where = Where()
    form: str = "text"  #: a name in `forms.FORMS`
    is_looking: bool = True  #: whether packages may be imported
    seconds: float = 60.0  #: for each import
    is_trying: bool = False  #: whether fixes are tried beside the environment
    allow_list: Path | None = None


class Explain(Record, kw_only=True):
    """What does a message or a code mean?"""

    words: tuple[str, ...]  #: () or ("-",) for standard input
    check: Check  #: how to check what the message blames


class Choose(Record, kw_only=True):
    """Which of these wheels works here?"""

    sources: tuple[str, ...]  #: wheels, folders and addresses
    where: Where
    as_json: bool = False


class Audit(Record, kw_only=True):
    """Which users does this wheel serve?"""

    wheel: Path
    as_json: bool = False


class Build(Record, kw_only=True):
    """Can this machine compile an extension for this torch?"""

    where: Where
    as_json: bool = False


class Run(Record, kw_only=True):
    """How does this command fail?"""

    command: tuple[str, ...]
    check: Check  #: how to check what the failure blames


Request = Check | Explain | Choose | Audit | Build | Run


class Command(NamedTuple):
    """A command of torch-doctor."""

    takes: str  #: what stands behind it
    summary: str
    add: Callable[[argparse.ArgumentParser], None]  #: adds what it takes, and its options
    read: Callable[[argparse.Namespace], Request]


def _add_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names",
        nargs="*",
        metavar="PACKAGE|FILE|FOLDER",
        help="only these; NAME is a package if one is installed, ./NAME a file or folder",
    )
    _add_where(parser)
    _add_forms(parser)
    _add_looking(parser)
    parser.add_argument(
        "--allow",
        type=Path,
        metavar="FILE",
        help="the failures that are allowed, a line `PACKAGE[/FILE] CODE REASON` each; an entry "
        "that no longer occurs fails",
    )


def _add_explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="*", metavar="MESSAGE|CODE|-", help="`-` or nothing: standard input"
    )
    _add_where(parser)
    _add_forms(parser)
    _add_looking(parser)


def _add_choose(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="WHEEL|FOLDER|URL",
        help="wheels, folders of wheels, or pages of an index",
    )
    _add_where(parser)
    _add_json(parser)


def _add_audit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("wheel", type=Path, metavar="WHEEL", help="a .whl file")
    _add_json(parser)


def _add_build(parser: argparse.ArgumentParser) -> None:
    _add_where(parser)
    _add_json(parser)


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "command",
        nargs="+",
        metavar="COMMAND",
        help="what stands behind its first word is its own",
    )
    _add_where(parser)
    _add_forms(parser)
    _add_looking(parser)


def _add_where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--python",
        metavar="PYTHON|DIR",
        help="the environment of this Python, 3.7 or newer, or of this prefix",
    )
    parser.add_argument(
        "--torch", metavar="DIR|VERSION", help="as if this torch were installed, e.g. 2.15"
    )


def _add_json(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--json",
        dest="form",
        action="store_const",
        const="json",
        default="text",
        help="print JSON (docs/fails/compat.md)",
    )


def _add_forms(parser: argparse.ArgumentParser) -> None:
    forms = parser.add_mutually_exclusive_group()
    _add_json(forms)
    forms.add_argument(
        "--github",
        dest="form",
        action="store_const",
        const="github",
        help="print the annotations of a GitHub workflow",
    )
    forms.add_argument(
        "--markdown",
        dest="form",
        action="store_const",
        const="markdown",
        help="print a table to paste into an issue or a job's summary",
    )
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="print a row for each extension, beside what is said of each package",
    )


def _add_looking(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--no-import",
        dest="is_looking",
        action="store_false",
        help="read files alone, and import no package; the result is what reading finds",
    )
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=60.0,
        metavar="N",
        help="how long each import may take (60)",
    )
    parser.add_argument(
        "--try-fix",
        dest="is_trying",
        action="store_true",
        help="try each fix that installs a package beside the environment, in a folder of its own, "
        "and say whether it fixes the import; this downloads what the fix installs",
    )


def _seconds(text: str) -> float:
    """The argument of `--seconds`."""
    with suppress(ValueError):
        number = float(text)
        if 0 < number <= _MAX_SECONDS:
            return number
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds up to {_MAX_SECONDS}")


def _read_where(parsed: argparse.Namespace) -> Where:
    return Where(python=parsed.python, torch=parsed.torch)


def _read_check(parsed: argparse.Namespace) -> Check:
    return _how_to_check(parsed)._replace(names=tuple(parsed.names), allow_list=parsed.allow)


def _how_to_check(parsed: argparse.Namespace) -> Check:
    return Check(
        where=_read_where(parsed),
        form="rows" if parsed.form == "text" and parsed.verbose else parsed.form,
        is_looking=parsed.is_looking,
        seconds=parsed.seconds,
        is_trying=parsed.is_trying,
    )


def _read_explain(parsed: argparse.Namespace) -> Explain:
    return Explain(words=tuple(parsed.words), check=_how_to_check(parsed))


def _read_choose(parsed: argparse.Namespace) -> Choose:
    return Choose(
        sources=tuple(parsed.sources), where=_read_where(parsed), as_json=parsed.form == "json"
    )


def _read_audit(parsed: argparse.Namespace) -> Audit:
    return Audit(wheel=parsed.wheel, as_json=parsed.form == "json")


def _read_build(parsed: argparse.Namespace) -> Build:
    return Build(where=_read_where(parsed), as_json=parsed.form == "json")


def _read_run(parsed: argparse.Namespace) -> Run:
    return Run(command=tuple(parsed.command), check=_how_to_check(parsed))


COMMANDS = {
    "check": Command(
        "[PACKAGE|FILE|FOLDER ...]",
        "say for every torch extension of this environment, or for those of these packages, "
        "whether it works with the installed torch, and if not, why and what to do",
        _add_check,
        _read_check,
    ),
    "explain": Command(
        "[MESSAGE|CODE|-]",
        "say what a message, a traceback on standard input, or a code such as TD110 means",
        _add_explain,
        _read_explain,
    ),
    "choose": Command(
        "WHEEL|FOLDER|URL ...",
        "say which of these wheels works here, best first",
        _add_choose,
        _read_choose,
    ),
    "audit": Command(
        "WHEEL", "for authors: say which users this wheel will serve", _add_audit, _read_audit
    ),
    "build": Command(
        "",
        "before you compile an extension, say what would break the build",
        _add_build,
        _read_build,
    ),
    "run": Command("COMMAND ...", "run a command, and explain how it fails", _add_run, _read_run),
}
#: Earlier options for what is a command now.
_AS_OPTION = {"--build": "build", "--audit": "audit"}
_WITH_VALUE = ("--python", "--torch", "--seconds", "--allow")


def read(arguments: Sequence[str], program: str) -> Request:
    """What a command line asks for; `program` is how the doctor was called.

    Ends the process, as argparse does, after help and after what cannot be understood.
    """
    name, own, other = _split(arguments)
    parser = make_parser(name, program)
    # The words of another program must not be taken for our options.
    parsed = parser.parse_args([*own, "--", *other]) if other else parser.parse_intermixed_args(own)
    request = COMMANDS[name or "check"].read(parsed)
    return request._replace(is_bare=True) if isinstance(request, Check) and not name else request


def _split(arguments: Sequence[str]) -> tuple[str, list[str], list[str]]:
    """The command, "" for none, its arguments, and for `run` the command line of the program.

    The command is the first word that is no option. Options stand before or behind it.
    """
    words = list(arguments)
    index = _options_before(words)
    if index == len(words):
        return "", words, []
    option, _, value = words[index].partition("=")
    name = _AS_OPTION.get(option, words[index])
    if name not in COMMANDS:
        return "", words, []
    behind = [value, *words[index + 1 :]] if value else words[index + 1 :]
    if name != "run":
        return name, words[:index] + behind, []
    count = _options_before(behind)
    other = behind[count:]
    return name, words[:index] + behind[:count], other[1:] if other[:1] == ["--"] else other


def _options_before(words: list[str]) -> int:
    """How many words there are before the first that is no option or names a command."""
    count = 0
    while count < len(words):
        word = words[count]
        is_command = word.partition("=")[0] in _AS_OPTION
        if is_command or not word.startswith("-") or word in ("-", "--"):
            break
        count += 2 if word in _WITH_VALUE else 1
    return min(count, len(words))


def make_parser(name: str, program: str) -> argparse.ArgumentParser:
    """The parser of what a command takes; "" for that without a command."""
    command = COMMANDS[name or "check"]
    codes = (
        "Exit code: 0 if nothing fails, 1 if something does, 2 if the question cannot be answered"
        + (", that of the command if it was run." if name == "run" else ".")
    )
    parser = argparse.ArgumentParser(
        prog=f"{program} {name}".strip(),
        usage=None if name else f"{program} [COMMAND] [OPTION ...] [NAME ...]",
        description=_sentence(command.summary) if name else _overview(program),
        epilog=textwrap.fill(codes, 79),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add(parser)
    return parser


def _sentence(summary: str) -> str:
    return textwrap.fill(f"{summary[0].upper()}{summary[1:]}.", 79)


def _overview(program: str) -> str:
    """What the doctor does, and its commands."""
    lines = [_sentence(COMMANDS["check"].summary), "", "commands, each with a --help of its own:"]
    indent = " " * 6
    for name, command in COMMANDS.items():
        lines.append(f"  {name} {command.takes}".rstrip())
        lines.append(
            textwrap.fill(command.summary, 79, initial_indent=indent, subsequent_indent=indent)
        )
    without = (
        f"Without a command, {program} checks; it explains what it is given if that is a message "
        "or a code, and chooses among wheels. For a package that is called like a command: "
        "check NAME."
    )
    return "\n".join([*lines, "", textwrap.fill(without, 79)])


def near(word: str) -> str:
    """The command that a misspelt word may mean; "" if it is like none."""
    return next(iter(difflib.get_close_matches(word, COMMANDS, n=1, cutoff=0.7)), "")
