"""The commands of the release tool and their options, for `torchship` and `scripts/build_all.sh`.

`scripts/build_all.sh` is `torchship release` in a checkout. Its first word may be another command:
`scripts/build_all.sh upload pypi` is `torchship upload pypi`.

This module needs nothing but the standard library: `torchship --help` shows these options where
the release tool's requirements are not installed.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from . import ReleaseError

_SELECTORS = (
    "cells or patterns: stable210-cpu, 'aten*-cu12', host, newest, oldest; none: this platform's "
    "cells (to list: every cell); '*-aarch64': the cells of that platform; all: every cell"
)
_PYTHON = "only this interpreter; its results are added to the stored results"
_TARGETS = "pypi, testpypi, anaconda:OWNER, a folder"


class Build(NamedTuple):
    """Build, audit, pack, install and run cells."""

    selectors: tuple[str, ...] = ()
    dry_run: bool = False
    channel: str = "auto"
    jobs: int = 0
    verbose: bool = False
    shard: str | None = None
    #: Whether to try the fat wheel with every torch and Python, too.
    is_verified: bool = False
    python: tuple[Path, ...] = ()  #: those to try it with; () for all


class List(NamedTuple):
    """Show cells, to people or to programs."""

    selectors: tuple[str, ...] = ()
    json: bool = False
    github: bool = False

    @property
    def for_programs(self) -> bool:
        return self.json or self.github


class Merge(NamedTuple):
    """Join the `dist` folders of shards."""

    folders: tuple[Path, ...]


class Upload(NamedTuple):
    """Publish `dist`; a selector names the platform."""

    target: str
    dry_run: bool = False
    selectors: tuple[str, ...] = ()
    allow_partial: bool = False  #: whether an index of one's own takes a partial wheel


class Recipe(NamedTuple):
    """Build a variant from source with the recipe alone; a selector names the platform."""

    variant: str
    channel: str = "auto"
    selectors: tuple[str, ...] = ()


class Yank(NamedTuple):
    """Make pip and conda pass over a version of a folder."""

    version: str
    folder: Path
    reason: str


class Generate(NamedTuple):
    """Write the files that follow from the matrix."""


Request = Build | List | Merge | Upload | Recipe | Yank | Generate
#: What a parsed command line asks for. Raises ReleaseError.
ReadRequest = Callable[[argparse.Namespace], Request]


class Asked(NamedTuple):
    """What a command line asks for, and in which project."""

    request: Request
    project: Path | None  #: None if the command line names none


def read(command: str, arguments: Sequence[str], program: str) -> Asked:
    """What the arguments of a command ask for; `program` is how it was called.

    Raises ReleaseError. Ends the process, as argparse does, after help and after what cannot be
    understood.
    """
    parsed = make_parser(command, program).parse_intermixed_args(arguments)
    project = None
    if parsed.project is not None:
        (project,) = _to_paths("--project", [parsed.project])
    return Asked(COMMANDS[command].read(parsed), project)


def _read_build(parsed: argparse.Namespace) -> Build:
    return Build(
        selectors=_read_selectors(parsed),
        dry_run=parsed.dry_run,
        channel=_text("--channel", parsed.channel),
        jobs=parsed.jobs,
        verbose=parsed.verbose,
        shard=None if parsed.shard is None else _text("--shard", parsed.shard),
    )


def _read_verify(parsed: argparse.Namespace) -> Build:
    python = _to_paths("--python", parsed.python)
    return _read_build(parsed)._replace(is_verified=True, python=python)


def _read_list(parsed: argparse.Namespace) -> List:
    return List(selectors=_read_selectors(parsed), json=parsed.json, github=parsed.github)


def _read_merge(parsed: argparse.Namespace) -> Merge:
    return Merge(_to_paths("DIR", parsed.folders))


def _read_upload(parsed: argparse.Namespace) -> Upload:
    return Upload(
        _text("TARGET", parsed.target),
        parsed.dry_run,
        _read_selectors(parsed),
        parsed.allow_partial,
    )


def _read_recipe(parsed: argparse.Namespace) -> Recipe:
    return Recipe(
        _text("VARIANT", parsed.variant),
        _text("--channel", parsed.channel),
        _read_selectors(parsed),
    )


def _read_yank(parsed: argparse.Namespace) -> Yank:
    version = _text("VERSION", parsed.version)
    (folder,) = _to_paths("--folder", [parsed.folder])
    if not folder.is_dir():
        raise ReleaseError(f"--folder: {folder} is not a folder; name what `upload DIR` has filled")
    return Yank(version, folder, _text("--reason", parsed.reason))


def _read_generate(parsed: argparse.Namespace) -> Generate:
    return Generate()


def _read_selectors(parsed: argparse.Namespace) -> tuple[str, ...]:
    selectors = tuple(getattr(parsed, "selectors", ()))
    if any(not selector.strip() for selector in selectors):
        raise ReleaseError("got an empty selector; name a cell, or leave it out")
    return selectors


def _text(option: str, value: str) -> str:
    """The value of an option, which an unset variable may have left empty."""
    if not value.strip():
        raise ReleaseError(f"{option}: got an empty text; give a value, or leave out {option}")
    return value


def _to_paths(option: str, values: Sequence[str]) -> tuple[Path, ...]:
    """The paths that an option names; an empty one would mean the current folder."""
    if not all(value.strip() for value in values):
        raise ReleaseError(f"{option}: got an empty text; name a path, or leave out {option}")
    return tuple(map(Path, values))


#: Commands as options, by which scripts of earlier projects ask for them.
_AS_OPTION = {
    "--list": "list",
    "--merge": "merge",
    "--upload": "upload",
    "--recipe": "recipe",
    "--yank": "yank",
    "--write-generated": "generate",
}


def command_of(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """The command that a command line of `scripts/build_all.sh` asks for, and its arguments.

    Raises ReleaseError if it asks for two.
    """
    words = list(arguments)
    if words[:1] and words[0] in COMMANDS:
        return words[0], words[1:]
    for index in range(len(words) - 1):
        if words[index : index + 2] == ["--verify", "full"]:
            return "verify", words[:index] + words[index + 2 :]
    named = list(dict.fromkeys(word for word in words if word in _AS_OPTION))
    if len(named) > 1:
        raise ReleaseError(
            f"{' and '.join(named)} are commands of their own; run one after the other"
        )
    if not named:
        return "release", words
    first = words.index(named[0])
    # What stood before the option is a selector, which follows the words of the command.
    words = words[first:] + words[:first]
    return _AS_OPTION[named[0]], [word for word in words if word != named[0]]


def make_parser(command: str, program: str) -> argparse.ArgumentParser:
    """The parser of what stands behind a command; `program` is how it was called."""
    summary = COMMANDS[command].summary
    description = f"{summary[0].upper()}{summary[1:]}."
    epilog = None
    if command == "release":
        others = ", ".join(name for name in COMMANDS if name not in ("release", "list"))
        epilog = (
            "In place of the selectors, another command may stand first: list (or --list), "
            f"{others}. Each has a --help of its own."
        )
    parser = argparse.ArgumentParser(
        prog=program, description=description, epilog=epilog, allow_abbrev=False
    )
    COMMANDS[command].add(parser)
    return parser


def add_project(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--project",
        metavar="DIR",
        help="the folder with build_matrix.yaml (default: the nearest from here upwards)",
    )


def _add_selectors(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("selectors", nargs="*", metavar="SELECTOR", help=_SELECTORS)


def _add_allow_partial(parser: argparse.ArgumentParser) -> None:
    text = "let the index of TWINE_REPOSITORY_URL take a partial wheel"
    parser.add_argument("--allow-partial", action="store_true", help=text)


def _add_dry_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and stop")


def _add_channel(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--channel",
        default="auto",
        help="base channel: auto (the default), bootstrap, conda-forge or a URL",
    )


def _add_release(parser: argparse.ArgumentParser) -> None:
    add_project(parser)
    _add_selectors(parser)
    _add_dry_run(parser)
    _add_channel(parser)
    parser.add_argument(
        "--jobs", type=int, default=0, metavar="N", help="compilers at a time (0: one per core)"
    )
    parser.add_argument(
        "--verbose", action="store_true", help="show the whole logs of failed steps"
    )
    parser.add_argument("--shard", metavar="K/N", help="only the K-th of N nearly equal parts")


def _add_verify(parser: argparse.ArgumentParser) -> None:
    _add_release(parser)
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="PATH",
        help="only this interpreter; its results are added to the stored results",
    )


def _add_list(parser: argparse.ArgumentParser) -> None:
    add_project(parser)
    _add_selectors(parser)
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="for programs")
    forms.add_argument("--github", action="store_true", help="the matrix of a GitHub workflow")


def _add_merge(parser: argparse.ArgumentParser) -> None:
    add_project(parser)
    parser.add_argument("folders", nargs="+", metavar="DIR", help="the dist folder of a shard")


def _add_upload(parser: argparse.ArgumentParser) -> None:
    add_project(parser)
    parser.add_argument("target", metavar="TARGET", help=_TARGETS)
    _add_platform(parser)
    _add_dry_run(parser)
    _add_allow_partial(parser)


def _add_yank(parser: argparse.ArgumentParser) -> None:
    add_project(parser)
    parser.add_argument("version", metavar="VERSION", help="the version that nobody should get")
    parser.add_argument(
        "--folder", metavar="DIR", required=True, help="what `upload DIR` has filled"
    )
    parser.add_argument(
        "--reason", metavar="TEXT", required=True, help="a sentence that pip shows to users"
    )


def _add_recipe(parser: argparse.ArgumentParser) -> None:
    add_project(parser)
    parser.add_argument("variant", metavar="VARIANT", help="a cell, such as stable210-cu13")
    _add_platform(parser)
    _add_channel(parser)


def _add_platform(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "selectors",
        nargs="*",
        metavar="SELECTOR",
        help="a cell or a pattern, such as '*-aarch64': for its platform",
    )


class Command(NamedTuple):
    """A command of the release tool."""

    summary: str
    add: Callable[[argparse.ArgumentParser], None]  #: adds the options to a parser
    read: ReadRequest


COMMANDS = {
    "list": Command(
        "show the cells of the matrix, and whether this machine can build them",
        _add_list,
        _read_list,
    ),
    "release": Command(
        "build, audit, pack, install and run cells of the matrix", _add_release, _read_build
    ),
    "merge": Command("join the dist folders of shards", _add_merge, _read_merge),
    "verify": Command(
        "release, and try the fat wheel with every torch and Python", _add_verify, _read_verify
    ),
    "upload": Command("publish what is in dist", _add_upload, _read_upload),
    "yank": Command(
        "make pip and conda pass over a version that went wrong", _add_yank, _read_yank
    ),
    "recipe": Command(
        "build a conda package from source, with recipe/ alone", _add_recipe, _read_recipe
    ),
    "generate": Command("write the files that follow from the matrix", add_project, _read_generate),
}
