"""Builds, tests and installs conda packages, in a process whose output is the log.

python -m release.conda_worker bootstrap|build|index|contents|matrix|test|install ...
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from release import REPO, ReleaseError
from release.bootstrap import build_channel
from release.conda_matrix import build as build_matrix
from release.rattler_tools import (
    build_recipe,
    check_contents,
    index_channel,
    run_package_tests,
)
from release.rattler_tools import install as install_packages

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
Channels = Annotated[list[str], typer.Option("--channel", help="A URL; the first is preferred.")]


@app.command()
def bootstrap(out: Path, wheels: Path, python: str) -> None:
    """Makes the base channel for tests from a folder of wheels and an interpreter."""
    build_channel(out.resolve(), sorted(wheels.resolve().glob("*.whl")), python)


@app.command()
def matrix(folder: Path, recipe: Path) -> None:
    """Builds every variant of a recipe, without content, against stubs of conda-forge."""
    build_matrix(folder.resolve(), recipe.resolve())


@app.command()
def build(variants: Path, out: Path, channels: Channels) -> None:
    """Builds the one package that a variants file describes."""
    recipe = REPO / "recipe" / "recipe.yaml"
    made = build_recipe(recipe, out=out.resolve(), channels=channels, variants=variants.resolve())
    if len(made) != 1:
        raise ReleaseError(f"{variants}: made {len(made)} packages, needs one")
    print(made[0])


@app.command()
def index(package: Path, channel: Path) -> None:
    """Puts a package into a channel on disk and indexes it."""
    target = channel / "linux-64" / package.name
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    shutil.copyfile(package, part)
    part.replace(target)
    index_channel(channel)


@app.command()
def contents(package: Path, binaries: list[Path]) -> None:
    """Checks that a package holds these binaries unchanged."""
    print("\n".join(check_contents(package, binaries)))


@app.command()
def test(package: Path, channels: Channels) -> None:
    """Runs the tests inside a package."""
    run_package_tests(package, channels)


@app.command()
def install(prefix: Path, specs: list[str], channels: Channels) -> None:
    """Installs packages into a new prefix."""
    if prefix.exists():
        shutil.rmtree(prefix)
    for name in install_packages(prefix, specs, channels):
        print(name)


if __name__ == "__main__":
    code = 0
    try:
        app(standalone_mode=False)
    except ReleaseError as error:
        print(error, file=sys.stderr)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # py-rattler's runtime has crashed once at the interpreter's exit.
    os._exit(code)
