"""The command line of the release tool; scripts/build_all.sh starts it."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from . import ReleaseError, generated
from .cells import by_platform
from .conda_steps import build_recipe
from .host import chosen_cells, probe
from .listing import github, json_list, list_cells
from .matrix import load, load_settings
from .merge import merge
from .processes import interrupt
from .run import Release, base_channel
from .settings import (
    MATRIX_NAME,
    PLATFORM_VARIABLE,
    REPO,
    Settings,
    make_settings,
    native_platform,
)
from .shell import explain, is_disk_full
from .upload import upload
from .verify_full import verify_built

# No emoji: `:x:` in a path or in a compiler's message stays what it is.
console = Console(width=None if sys.stdout.isatty() else 160, highlight=False, emoji=False)

SELECTORS = (
    "cells or patterns: stable210-cpu, 'aten*-cu12', host, newest, oldest; none: this platform's "
    "cells (--list alone: every cell); '*-aarch64': the cells of that platform; all: every cell"
)
VERIFY = (
    "one: each cell with its torch; full: also the fat wheel with every torch and Python for "
    "which PyPI has a wheel (an hour, 25 GB)"
)
PYTHON = "with --verify full: only this interpreter; its results are added to the stored results"
RECIPE = "build a variant from source with recipe/ alone (by conda build if installed), and stop"

# The options of a build that the other commands take, too.
HONOURED = {
    "--merge": (),
    "--upload": ("--dry-run", "SELECTOR"),
    "--recipe": ("SELECTOR",),
    "--write-generated": (),
    "--list": ("--dry-run", "SELECTOR"),
}


class Options(NamedTuple):
    """The command line."""

    selectors: tuple[str, ...]
    list_cells: bool
    json: bool
    github: bool
    dry_run: bool
    channel: str
    jobs: int
    verbose: bool
    shard: str | None
    merge: tuple[Path, ...]
    verify: str
    python: tuple[Path, ...]
    upload: str | None
    recipe: str | None
    write_generated: bool

    @property
    def for_programs(self) -> bool:
        return self.json or self.github


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/build_all.sh",
        description="Build, audit, pack, install and run the cells of build_matrix.yaml.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("selectors", nargs="*", metavar="SELECTOR", help=SELECTORS)
    add("--list", action="store_true", dest="list_cells", help="show the cells and stop")
    add("--json", action="store_true", help="with --list: for programs")
    add("--github", action="store_true", help="with --list: the matrix of a GitHub workflow")
    add("--dry-run", action="store_true", help="show what would be done, and stop")
    channel = "base channel: auto (the default), bootstrap, conda-forge or a URL"
    add("--channel", default="auto", help=channel)
    add("--jobs", type=int, default=0, metavar="N", help="compilers at a time (0: one per core)")
    add("--verbose", action="store_true", help="show the whole logs of failed steps")
    add("--shard", metavar="K/N", help="only the K-th of N nearly equal parts")
    joined = "join the dist folders of shards, and stop"
    add("--merge", nargs="+", action="extend", default=[], metavar="DIR", help=joined)
    add("--verify", choices=("one", "full"), default="one", help=VERIFY)
    add("--python", action="append", default=[], metavar="PATH", help=PYTHON)
    add("--upload", metavar="TARGET", help="publish dist/ and stop: pypi, anaconda:OWNER, a folder")
    add("--recipe", metavar="VARIANT", help=RECIPE)
    written = "write the files generated from the matrix, and stop"
    add("--write-generated", action="store_true", help=written)
    return parser


def read_options(arguments: Sequence[str] | None) -> Options:
    parsed = make_parser().parse_intermixed_args(arguments)
    return Options(
        selectors=tuple(parsed.selectors),
        list_cells=parsed.list_cells,
        json=parsed.json,
        github=parsed.github,
        dry_run=parsed.dry_run,
        channel=parsed.channel,
        jobs=parsed.jobs,
        verbose=parsed.verbose,
        shard=parsed.shard,
        merge=to_paths("--merge", parsed.merge),
        verify=parsed.verify,
        python=to_paths("--python", parsed.python),
        upload=parsed.upload,
        recipe=parsed.recipe,
        write_generated=parsed.write_generated,
    )


def to_paths(option: str, values: Sequence[str]) -> tuple[Path, ...]:
    """The paths that an option names; an empty one would mean the current folder."""
    if not all(value.strip() for value in values):
        raise ReleaseError(f"{option}: got an empty text; name a path, or leave out {option}")
    return tuple(map(Path, values))


def main(arguments: Sequence[str] | None = None) -> int:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    try:
        return run(read_options(arguments))
    except (ReleaseError, OSError) as error:
        return _fail(error)
    except KeyboardInterrupt:
        console.print("stopped; start the same command again: what is finished is kept")
        return 130


def _fail(error: ReleaseError | OSError) -> int:
    """Shows an error; returns the exit code. Raises an OSError that is no full disk."""
    if isinstance(error, OSError) and not is_disk_full(error):
        raise error
    console.print(f"error: {explain(error, REPO)}", markup=False, style="red", soft_wrap=True)
    return 2


def run(options: Options) -> int:
    """Does what the command line asks for, for one platform after the other."""
    check_options(options)
    default = os.environ.get(PLATFORM_VARIABLE) or native_platform()
    settings = load_settings(default)
    if options.write_generated:
        generated.write(settings, console)
        return 0
    generated.check(settings)
    if options.merge:
        return merge(options.merge, console, settings)
    codes = []
    for platform, selectors in _groups(options, default).items():
        try:
            own_settings = make_settings(load(REPO / MATRIX_NAME, platform))
            codes.append(run_for_platform(selectors, options, own_settings))
        except (ReleaseError, OSError) as error:  # the other platforms have their turn
            codes.append(_fail(error))
    return max(codes)


def check_options(options: Options) -> None:
    """Refuses options that exclude each other, and the empty text of an unset variable."""
    values = {
        "--channel": options.channel,
        "--shard": options.shard,
        "--upload": options.upload,
        "--recipe": options.recipe,
    }
    for name, value in values.items():
        if value is not None and not value.strip():
            raise ReleaseError(f"{name}: got an empty text; give a value, or leave out {name}")
    if any(not selector.strip() for selector in options.selectors):
        raise ReleaseError("got an empty selector; name a cell, or leave it out")
    if options.python and options.verify != "full":
        raise ReleaseError("--python belongs to --verify full; add it, or set PYTHON instead")
    if options.for_programs and not options.list_cells:
        name = "--json" if options.json else "--github"
        raise ReleaseError(f"{name} belongs to --list; add it, or leave out {name}")
    _check_commands(options)


def _check_commands(options: Options) -> None:
    """Refuses two commands in one, and options that a command would leave out without a word."""
    commands = {
        "--merge": bool(options.merge),
        "--upload": options.upload is not None,
        "--recipe": options.recipe is not None,
        "--write-generated": options.write_generated,
        "--list": options.list_cells,
    }
    named = [name for name, is_named in commands.items() if is_named]
    if len(named) > 1:
        raise ReleaseError(
            f"{' and '.join(named)} are commands of their own; run one after the other"
        )
    used = {
        "--dry-run": options.dry_run,
        "--shard": options.shard is not None,
        "--verify": options.verify != "one",
        "SELECTOR": bool(options.selectors),
    }
    for name in named:
        for option, is_used in used.items():
            if is_used and option not in HONOURED[name]:
                raise ReleaseError(f"{name} does nothing with {option}; leave one of them out")


def _groups(options: Options, default: str) -> dict[str, list[str]]:
    """The selectors by the platform that they are for."""
    selectors = list(options.selectors)
    if os.environ.get(PLATFORM_VARIABLE):
        return {default: selectors}
    if not selectors and options.list_cells and not options.for_programs:
        selectors = ["all"]
    groups = by_platform(selectors, load(REPO / MATRIX_NAME), default)
    return groups or {default: []}


def run_for_platform(selectors: Sequence[str], options: Options, settings: Settings) -> int:
    if options.upload:
        return upload(options.upload, settings, console, dry_run=options.dry_run)
    if options.recipe:
        channel = base_channel(options.channel, console, settings)
        build_recipe(options.recipe, channel, console, settings)
        return 0
    host = probe(os.environ.get("RELEASE_PYTHON", sys.executable), settings)
    if options.list_cells:
        cells = chosen_cells(selectors, host, settings)
        if options.for_programs:
            print((json_list if options.json else github)(cells, host, settings))
        else:
            list_cells(cells, host, settings, console)
        return 0
    jobs = max(1, options.jobs or os.cpu_count() or 1)
    release = Release(
        selectors=selectors,
        settings=settings,
        host=host,
        console=console,
        channel=options.channel,
        shard=options.shard,
        jobs=jobs,
        verbose=options.verbose,
    )
    if options.dry_run:
        release.show()
        return 0
    code = release.run()
    if options.verify == "full":
        code = max(code, verify_built(settings, console, jobs, options.python))
    return code


if __name__ == "__main__":
    sys.exit(main())
