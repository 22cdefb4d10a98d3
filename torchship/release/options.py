"""The options of the release tool, for `scripts/build_all.sh` and for the commands of `torchship`.

This module needs nothing but the standard library: `torchship --help` shows these options where
the release tool's requirements are not installed.
"""

import argparse
from collections.abc import Sequence
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


class Options(NamedTuple):
    """What a command line asks the release tool to do."""

    project: Path | None = None  #: the project's folder; None: `find_root` looks for it
    selectors: tuple[str, ...] = ()
    list_cells: bool = False
    json: bool = False
    github: bool = False
    dry_run: bool = False
    allow_partial: bool = False
    channel: str = "auto"
    jobs: int = 0
    verbose: bool = False
    shard: str | None = None
    merge: tuple[Path, ...] = ()
    verify: str = "one"
    python: tuple[Path, ...] = ()
    upload: str | None = None
    recipe: str | None = None
    yank: str | None = None
    folder: Path | None = None
    reason: str | None = None
    write_generated: bool = False

    @property
    def for_programs(self) -> bool:
        return self.json or self.github


def read_options(parsed: argparse.Namespace) -> Options:
    """The options of a parsed command line; those that its parser does not have keep defaults."""
    values = {name: value for name, value in vars(parsed).items() if name in Options._fields}
    if "selectors" in values:
        values["selectors"] = tuple(parsed.selectors)
    for name in ("merge", "python"):
        if name in values:
            values[name] = _to_paths(f"--{name}", values[name])
    for name in ("project", "folder"):
        if values.get(name) is not None:
            (values[name],) = _to_paths(f"--{name}", [values[name]])
    return Options(**values)


def _to_paths(option: str, values: Sequence[str]) -> tuple[Path, ...]:
    """The paths that an option names; an empty one would mean the current folder."""
    if not all(value.strip() for value in values):
        raise ReleaseError(f"{option}: got an empty text; name a path, or leave out {option}")
    return tuple(map(Path, values))


def make_parser() -> argparse.ArgumentParser:
    """The command line of `scripts/build_all.sh`, in which a command is an option."""
    parser = argparse.ArgumentParser(
        prog="scripts/build_all.sh",
        description="Build, audit, pack, install and run the cells of build_matrix.yaml.",
        allow_abbrev=False,
    )
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
    return parser


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


# The commands of `torchship`: each sets what the option of build_all.sh with its name sets.


def add_release(parser: argparse.ArgumentParser) -> None:
    add_project(parser)
    _add_selectors(parser)
    _add_run(parser)


def add_list(parser: argparse.ArgumentParser) -> None:
    add_project(parser)
    _add_selectors(parser)
    _add_listing(parser)
    parser.set_defaults(list_cells=True)


def add_merge(parser: argparse.ArgumentParser) -> None:
    add_project(parser)
    parser.add_argument("merge", nargs="+", metavar="DIR", help="the dist folder of a shard")


def add_verify(parser: argparse.ArgumentParser) -> None:
    add_release(parser)
    _add_python(parser)
    parser.set_defaults(verify="full")


def add_upload(parser: argparse.ArgumentParser) -> None:
    add_project(parser)
    parser.add_argument("upload", metavar="TARGET", help=_TARGETS)
    _add_dry_run(parser)
    _add_allow_partial(parser)


def add_yank(parser: argparse.ArgumentParser) -> None:
    add_project(parser)
    parser.add_argument("yank", metavar="VERSION", help="the version that nobody should get")
    _add_folder(parser)
    _add_reason(parser)


def add_recipe(parser: argparse.ArgumentParser) -> None:
    add_project(parser)
    parser.add_argument("recipe", metavar="VARIANT", help="a cell, as stable210-cu13")
    _add_channel(parser)


def add_generate(parser: argparse.ArgumentParser) -> None:
    add_project(parser)
    parser.set_defaults(write_generated=True)
