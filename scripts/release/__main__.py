"""The command line of the release tool; scripts/build_all.sh starts it."""

import os
import signal
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from release import NATIVE, ReleaseError, generated
from release.cells import by_platform
from release.conda_steps import build_recipe
from release.host import chosen, probe
from release.listing import github, json_list, list_cells
from release.matrix import load
from release.merge import merge
from release.run import Release, Request, base_channel
from release.runner import explain, is_disk_full
from release.schema import FIRST
from release.stopping import interrupt
from release.upload import upload
from release.verify_full import Verify, verify_built

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)


Selectors = Annotated[
    list[str] | None,
    typer.Argument(
        help="Cells or patterns: stable210-cpu, 'aten*-cu12', host, newest, oldest; none: every "
        "cell of this platform; '*-aarch64': those of another; all: those of every platform."
    ),
]
ListOnly = Annotated[bool, typer.Option("--list", help="Show the cells and stop.")]
AsJson = Annotated[bool, typer.Option("--json", help="With --list: for programs.")]
GITHUB = "With --list: the matrix of a GitHub workflow."
AsGithub = Annotated[bool, typer.Option("--github", help=GITHUB)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and stop.")]
CHANNEL = "Base channel: auto, bootstrap, conda-forge or a URL."
Channel = Annotated[str, typer.Option(help=CHANNEL)]
Jobs = Annotated[int, typer.Option(help="Compilers at a time (0: one a core).")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Whole logs of failures.")]
SHARD = "Only the K-th of N equal parts."
Shard = Annotated[str | None, typer.Option(metavar="K/N", help=SHARD)]
MERGE = "Join shards' dist folders, and stop."
Join = Annotated[list[Path] | None, typer.Option("--merge", metavar="DIR", help=MERGE)]
VERIFY = (
    "one: each binary with the torch it is for; full: also the fat wheel with every torch and "
    "Python that has a wheel (an hour, 25 GB)."
)
PYTHON = "With --verify full: only this interpreter; the results join the stored ones."
Pythons = Annotated[list[Path] | None, typer.Option("--python", metavar="PATH", help=PYTHON)]
UPLOAD = "Publish dist/ and stop: pypi, anaconda:OWNER, a folder."
Target = Annotated[str | None, typer.Option("--upload", help=UPLOAD)]
RECIPE = "Build a variant from source by recipe/ alone (conda build where conda is), and stop."
Recipe = Annotated[str | None, typer.Option("--recipe", metavar="VARIANT", help=RECIPE)]
WRITE = "Write the files generated from the matrix, and stop."
Write = Annotated[bool, typer.Option("--write-generated", help=WRITE)]


@app.command()
def main(
    selectors: Selectors = None,
    list_only: ListOnly = False,
    as_json: AsJson = False,
    as_github: AsGithub = False,
    dry_run: DryRun = False,
    channel: Channel = "auto",
    jobs: Jobs = 0,
    verbose: Verbose = False,
    shard: Shard = None,
    join: Join = None,
    verify: Annotated[Verify, typer.Option(help=VERIFY)] = Verify.ONE,
    pythons: Pythons = None,
    target: Target = None,
    recipe: Recipe = None,
    write_generated: Write = False,
) -> None:
    """Build, audit, pack, install and run the cells of build_matrix.yaml."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    try:
        if pythons and verify is not Verify.FULL:
            raise ReleaseError("--python belongs to --verify full; add it, or set PYTHON instead")
        matrix = load()
        shown = selectors or (["all"] if list_only and not (as_json or as_github) else [])
        groups = {} if join else by_platform(shown, matrix)
        if "RELEASE_PLATFORM" not in os.environ and {*groups} - {NATIVE}:
            alone = len(groups) == 1
            codes = [_run_for(*group, {*shown}, last=alone) for group in groups.items()]
            raise typer.Exit(max(codes))
        if write_generated:
            generated.write(matrix.on(FIRST), console)
            return
        generated.check(matrix.on(FIRST))
        if join:
            # The command line parses folders after the first as selectors.
            code = merge([*join, *map(Path, selectors or [])], matrix, console)
            raise typer.Exit(code)
        if target:
            raise typer.Exit(upload(target, console, dry_run=dry_run))
        if recipe:
            build_recipe(recipe, matrix, base_channel(channel, console), console)
            return
        host = probe(os.environ.get("RELEASE_PYTHON", sys.executable), matrix)
        if list_only:
            cells = chosen(selectors or (), matrix, host)
            if as_json or as_github:
                print(json_list(cells, host, matrix) if as_json else github(cells, host, matrix))
            else:
                list_cells(cells, host, matrix, console)
            return
        jobs = jobs or os.cpu_count() or 1
        request = Request(tuple(selectors or ()), channel, shard, jobs, verbose)
        release = Release(request, matrix, host, console)
        if dry_run:
            release.show()
            return
        code = release.run()
        if verify is Verify.FULL:
            code = max(code, verify_built(matrix, console, jobs, pythons or ()))
    except (ReleaseError, OSError) as error:
        if isinstance(error, OSError) and not is_disk_full(error):
            raise
        console.print(f"error: {explain(error)}", markup=False, style="red", soft_wrap=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        console.print("stopped; start the same command again: what is finished is kept")
        raise typer.Exit(130) from None
    raise typer.Exit(code)


def _run_for(platform: str, selectors: Sequence[str], every: Collection[str], *, last: bool) -> int:
    """The same command for one platform, with the selectors that are for it."""
    words = [word for word in sys.argv[1:] if word not in every]
    command = [sys.executable, "-m", "release", *words, *selectors]
    env = {**os.environ, "RELEASE_PLATFORM": platform}
    if last:  # in place of this process: signals reach it alone
        os.execve(command[0], command, env)
    return subprocess.run(command, env=env).returncode


if __name__ == "__main__":
    app(prog_name="scripts/build_all.sh")
