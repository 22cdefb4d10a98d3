"""The options of the release tool, for `scripts/build_all.sh` and for the commands of `torchship`.

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
_VERIFY = (
    "one: each cell with its torch; full: also the fat wheel with every torch and Python for "
    "which PyPI has a wheel (an hour, 25 GB)"
)
_PYTHON = "only this interpreter; its results are added to the stored results"
_RECIPE = "build a variant from source with recipe/ alone (by conda build if installed), and stop"
_YANK = "make pip and conda pass over a version"
_TARGETS = "pypi, testpypi, anaconda:OWNER, a folder"


class Build(NamedTuple):
    """Build, audit, pack, install and run cells."""

    selectors: tuple[str, ...] = ()
    dry_run: bool = False
    channel: str = "auto"
    jobs: int = 0
    verbose: bool = False
    shard: str | None = None
    verify: str = "one"
    python: tuple[Path, ...] = ()


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
#: What a parsed command line asks for; each parser sets one as `request`.
ReadRequest = Callable[[argparse.Namespace], Request]


def read_request(parsed: argparse.Namespace) -> Request:
    """What a parsed command line asks for. Raises ReleaseError."""
    read: ReadRequest = parsed.request
    return read(parsed)


def read_project(parsed: argparse.Namespace) -> Path | None:
    """The project's folder; None if the command line names none. Raises ReleaseError."""
    if parsed.project is None:
        return None
    (path,) = _to_paths("--project", [parsed.project])
    return path


def _read_release(parsed: argparse.Namespace) -> Request:
    """What the command line of `torchship release` asks for, in which a command is an option."""
    readers: dict[str, tuple[bool, ReadRequest]] = {
        "--merge": (bool(parsed.merge), _read_merge),
        "--upload": (parsed.upload is not None, _read_upload),
        "--recipe": (parsed.recipe is not None, _read_recipe),
        "--yank": (parsed.yank is not None, _read_yank),
        "--write-generated": (parsed.write_generated, _read_generate),
        "--list": (parsed.list_cells, _read_list),
    }
    named = [name for name, (is_named, _) in readers.items() if is_named]
    if len(named) > 1:
        raise ReleaseError(
            f"{' and '.join(named)} are commands of their own; run one after the other"
        )
    if (parsed.json or parsed.github) and named != ["--list"]:
        name = "--json" if parsed.json else "--github"
        raise ReleaseError(f"{name} belongs to --list; add it, or leave out {name}")
    used = {
        "--dry-run": parsed.dry_run,
        "--allow-partial": parsed.allow_partial,
        "--shard": parsed.shard is not None,
        "--verify": parsed.verify != "one",
        "SELECTOR": bool(parsed.selectors),
    }
    for name in named:
        for option, is_used in used.items():
            if is_used and option not in _HONOURED[name]:
                raise ReleaseError(f"{name} does nothing with {option}; leave one of them out")
    return readers[named[0]][1](parsed) if named else _read_build(parsed)


# The options of a build that the other commands take, too.
_HONOURED = {
    "--merge": (),
    "--upload": ("--dry-run", "--allow-partial", "SELECTOR"),
    "--recipe": ("SELECTOR",),
    "--yank": (),
    "--write-generated": (),
    "--list": ("--dry-run", "SELECTOR"),
}


def _read_build(parsed: argparse.Namespace) -> Build:
    verify = getattr(parsed, "verify", "one")
    python = _to_paths("--python", getattr(parsed, "python", []))
    if python and verify != "full":
        raise ReleaseError("--python belongs to --verify full; add it, or set PYTHON instead")
    return Build(
        selectors=_read_selectors(parsed),
        dry_run=parsed.dry_run,
        channel=_text("--channel", parsed.channel),
        jobs=parsed.jobs,
        verbose=parsed.verbose,
        shard=None if parsed.shard is None else _text("--shard", parsed.shard),
        verify=verify,
        python=python,
    )


def _read_list(parsed: argparse.Namespace) -> List:
    return List(selectors=_read_selectors(parsed), json=parsed.json, github=parsed.github)


def _read_merge(parsed: argparse.Namespace) -> Merge:
    return Merge(_to_paths("--merge", parsed.merge))


def _read_upload(parsed: argparse.Namespace) -> Upload:
    return Upload(
        _text("--upload", parsed.upload),
        parsed.dry_run,
        _read_selectors(parsed),
        parsed.allow_partial,
    )


def _read_recipe(parsed: argparse.Namespace) -> Recipe:
    return Recipe(
        _text("--recipe", parsed.recipe),
        _text("--channel", parsed.channel),
        _read_selectors(parsed),
    )


def _read_yank(parsed: argparse.Namespace) -> Yank:
    version = _text("--yank", parsed.yank)
    if parsed.folder is None:
        raise ReleaseError("--yank needs --folder DIR; name what --upload DIR has filled")
    (folder,) = _to_paths("--folder", [parsed.folder])
    if not folder.is_dir():
        raise ReleaseError(f"--folder: {folder} is no folder; name what --upload has filled")
    if not parsed.reason or not parsed.reason.strip():
        raise ReleaseError("--yank needs --reason TEXT; say in a sentence what went wrong")
    return Yank(version, folder, parsed.reason)


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


def make_parser() -> argparse.ArgumentParser:
    """The command line of `scripts/build_all.sh`, which is that of `torchship release`."""
    parser = argparse.ArgumentParser(
        prog="scripts/build_all.sh",
        description="Build, audit, pack, install and run the cells of build_matrix.yaml.",
        allow_abbrev=False,
    )
    add_release(parser)
    return parser


def add_release(parser: argparse.ArgumentParser) -> None:
    """The options of `torchship release`, in which a command is an option."""
    add_project(parser)
    _add_selectors(parser)
    parser.add_argument(
        "--list", action="store_true", dest="list_cells", help="show the cells and stop"
    )
    _add_listing(parser, when="with --list: ")
    _add_run(parser)
    parser.add_argument(
        "--merge",
        nargs="+",
        action="extend",
        default=[],
        metavar="DIR",
        help="join the dist folders of shards, and stop",
    )
    parser.add_argument("--verify", choices=("one", "full"), default="one", help=_VERIFY)
    _add_python(parser, when="with --verify full: ")
    parser.add_argument("--upload", metavar="TARGET", help=f"publish dist/ and stop: {_TARGETS}")
    parser.add_argument("--recipe", metavar="VARIANT", help=_RECIPE)
    parser.add_argument("--yank", metavar="VERSION", help=f"{_YANK}, and stop")
    _add_folder(parser, when="with --yank: ")
    _add_reason(parser, when="with --yank: ")
    parser.add_argument(
        "--write-generated",
        action="store_true",
        help="write the files generated from the matrix, and stop",
    )
    parser.set_defaults(request=_read_release)


def add_project(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--project",
        metavar="DIR",
        help="the folder with build_matrix.yaml (default: the nearest from here upwards)",
    )


def _add_selectors(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("selectors", nargs="*", metavar="SELECTOR", help=_SELECTORS)


def _add_listing(parser: argparse.ArgumentParser, *, when: str = "") -> None:
    parser.add_argument("--json", action="store_true", help=f"{when}for programs")
    parser.add_argument(
        "--github", action="store_true", help=f"{when}the matrix of a GitHub workflow"
    )


def _add_allow_partial(parser: argparse.ArgumentParser) -> None:
    text = "with --upload: let the index of TWINE_REPOSITORY_URL take a partial wheel"
    parser.add_argument("--allow-partial", action="store_true", help=text)


def _add_dry_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and stop")


def _add_channel(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--channel",
        default="auto",
        help="base channel: auto (the default), bootstrap, conda-forge or a URL",
    )


def _add_run(parser: argparse.ArgumentParser) -> None:
    _add_dry_run(parser)
    _add_allow_partial(parser)
    _add_channel(parser)
    parser.add_argument(
        "--jobs", type=int, default=0, metavar="N", help="compilers at a time (0: one per core)"
    )
    parser.add_argument(
        "--verbose", action="store_true", help="show the whole logs of failed steps"
    )
    parser.add_argument("--shard", metavar="K/N", help="only the K-th of N nearly equal parts")


def _add_python(parser: argparse.ArgumentParser, *, when: str = "") -> None:
    parser.add_argument(
        "--python", action="append", default=[], metavar="PATH", help=when + _PYTHON
    )


def _add_folder(parser: argparse.ArgumentParser, *, when: str = "") -> None:
    parser.add_argument("--folder", metavar="DIR", help=f"{when}what --upload DIR has filled")


def _add_reason(parser: argparse.ArgumentParser, *, when: str = "") -> None:
    parser.add_argument("--reason", metavar="TEXT", help=f"{when}what pip shows to users")


# The other commands of `torchship`: each has the options of one of those commands alone.


def add_list(parser: argparse.ArgumentParser) -> None:
    add_project(parser)
    _add_selectors(parser)
    _add_listing(parser)
    parser.set_defaults(request=_read_list)


def add_merge(parser: argparse.ArgumentParser) -> None:
    add_project(parser)
    parser.add_argument("merge", nargs="+", metavar="DIR", help="the dist folder of a shard")
    parser.set_defaults(request=_read_merge)


def add_verify(parser: argparse.ArgumentParser) -> None:
    add_project(parser)
    _add_selectors(parser)
    _add_run(parser)
    _add_python(parser)
    parser.set_defaults(request=_read_build, verify="full")


def add_upload(parser: argparse.ArgumentParser) -> None:
    add_project(parser)
    parser.add_argument("upload", metavar="TARGET", help=_TARGETS)
    _add_dry_run(parser)
    _add_allow_partial(parser)
    parser.set_defaults(request=_read_upload)


def add_yank(parser: argparse.ArgumentParser) -> None:
    add_project(parser)
    parser.add_argument("yank", metavar="VERSION", help="the version that nobody should get")
    _add_folder(parser)
    _add_reason(parser)
    parser.set_defaults(request=_read_yank)


def add_recipe(parser: argparse.ArgumentParser) -> None:
    add_project(parser)
    parser.add_argument("recipe", metavar="VARIANT", help="a cell, as stable210-cu13")
    _add_channel(parser)
    parser.set_defaults(request=_read_recipe)


def add_generate(parser: argparse.ArgumentParser) -> None:
    add_project(parser)
    parser.set_defaults(request=_read_generate)
