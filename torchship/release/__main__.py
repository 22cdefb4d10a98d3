"""The command line of the release tool; scripts/build_all.sh starts it."""

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from rich.console import Console

from . import NATIVE, REPO, ReleaseError, generated
from .cells import by_platform
from .conda_steps import build_recipe
from .host import chosen, probe
from .listing import github, json_list, list_cells
from .matrix import load
from .processes import interrupt
from .run import Release, base_channel, merge
from .schema import FIRST
from .shell import explain, is_disk_full
from .upload import upload
from .verify_full import verify_built

console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)

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


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/build_all.sh",
        description="Build, audit, pack, install and run the cells of build_matrix.yaml.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("selectors", nargs="*", metavar="SELECTOR", help=SELECTORS)
    add("--list", action="store_true", help="show the cells and stop")
    add("--json", action="store_true", help="with --list: for programs")
    add("--github", action="store_true", help="with --list: the matrix of a GitHub workflow")
    add("--dry-run", action="store_true", help="show what would be done, and stop")
    channel = "base channel: auto (the default), bootstrap, conda-forge or a URL"
    add("--channel", default="auto", help=channel)
    add("--jobs", type=int, default=0, metavar="N", help="compilers at a time (0: one per core)")
    add("--verbose", action="store_true", help="show the whole logs of failed steps")
    add("--shard", metavar="K/N", help="only the K-th of N nearly equal parts")
    joined = "join the dist folders of shards, and stop"
    add("--merge", nargs="+", action="extend", type=Path, metavar="DIR", help=joined)
    add("--verify", choices=("one", "full"), default="one", help=VERIFY)
    add("--python", action="append", type=Path, metavar="PATH", help=PYTHON)
    add("--upload", metavar="TARGET", help="publish dist/ and stop: pypi, anaconda:OWNER, a folder")
    add("--recipe", metavar="VARIANT", help=RECIPE)
    written = "write the files generated from the matrix, and stop"
    add("--write-generated", action="store_true", help=written)
    return parser


def main(words: Sequence[str] | None = None) -> int:
    asked = options().parse_intermixed_args(words)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    try:
        return _do(asked)
    except (ReleaseError, OSError) as error:
        if isinstance(error, OSError) and not is_disk_full(error):
            raise
        console.print(f"error: {explain(error)}", markup=False, style="red", soft_wrap=True)
        return 2
    except KeyboardInterrupt:
        console.print("stopped; start the same command again: what is finished is kept")
        return 130


def _do(asked: argparse.Namespace) -> int:
    if asked.python and asked.verify != "full":
        raise ReleaseError("--python belongs to --verify full; add it, or set PYTHON instead")
    matrix, for_programs = load(), asked.json or asked.github
    shown = asked.selectors or (["all"] if asked.list and not for_programs else [])
    groups = {} if asked.merge else by_platform(shown, matrix)
    if "RELEASE_PLATFORM" not in os.environ and {*groups} - {NATIVE}:
        return max(_run_for(*group, {*shown}, last=len(groups) == 1) for group in groups.items())
    if asked.write_generated:
        generated.write(matrix.on(FIRST), console)
        return 0
    generated.check(matrix.on(FIRST))
    if asked.merge:
        return merge(asked.merge, matrix, console)
    if asked.upload:
        return upload(asked.upload, console, dry_run=asked.dry_run)
    if asked.recipe:
        build_recipe(asked.recipe, matrix, base_channel(asked.channel, console), console)
        return 0
    host = probe(os.environ.get("RELEASE_PYTHON", sys.executable), matrix)
    if asked.list:
        cells = chosen(asked.selectors, matrix, host)
        if for_programs:
            print((json_list if asked.json else github)(cells, host, matrix))
        else:
            list_cells(cells, host, matrix, console)
        return 0
    jobs = max(1, asked.jobs or os.cpu_count() or 1)
    wanted = {"channel": asked.channel, "shard": asked.shard, "verbose": asked.verbose}
    release = Release(asked.selectors, matrix, host, console, jobs=jobs, **wanted)
    if asked.dry_run:
        release.show()
        return 0
    code = release.run()
    if asked.verify == "full":
        code = max(code, verify_built(matrix, console, jobs, asked.python or ()))
    return code


def _run_for(platform: str, selectors: Sequence[str], every: Collection[str], *, last: bool) -> int:
    """Runs this command again for one platform, with only the selectors for that platform."""
    words = [word for word in sys.argv[1:] if word not in every]
    # By its path: `-m torchship.release` would prefer a folder `torchship` in the current folder.
    command = [
        sys.executable,
        f"{REPO}/scripts/release_tool.py",
        "torchship.release",
        *words,
        *selectors,
    ]
    env = {**os.environ, "RELEASE_PLATFORM": platform}
    if last:  # in place of this process, so that signals reach only the new program
        os.execve(command[0], command, env)
    return subprocess.run(command, env=env).returncode


if __name__ == "__main__":
    sys.exit(main())
