"""Builds, tests and installs conda packages; a process of its own, so that its output is a log.

python -m release.conda_worker build|index|contents|test|install|solve ...
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

from release import REPO, ReleaseError
from release.conda_solver import machine, solve
from release.rattler_tools import (
    build_recipe,
    check_contents,
    index_channel,
    install,
    run_package_tests,
)


def build(args: argparse.Namespace) -> None:
    """Renders the recipe with one cell's variants and builds it."""
    if args.prebuilt:
        os.environ["LLTM_CONDA_PREBUILT"] = str(args.prebuilt)
    recipe = REPO / "recipe" / "recipe.yaml"
    out = args.out.resolve()
    variants = args.variants.resolve()
    made = build_recipe(recipe, out=out, channels=args.channel, variants=variants)
    if len(made) != 1:
        raise ReleaseError(f"{args.variants}: made {len(made)} packages, needs one")
    print(made[0])


def index(args: argparse.Namespace) -> None:
    """Puts a package into the channel and indexes it."""
    target = args.into / "linux-64" / args.package.name
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    shutil.copyfile(args.package, part)
    part.replace(target)
    index_channel(args.into)


def test(args: argparse.Namespace) -> None:
    run_package_tests(args.package, args.channel)


def contents(args: argparse.Namespace) -> None:
    print("\n".join(check_contents(args.package, args.binaries)))


def install_prefix(args: argparse.Namespace) -> None:
    if args.prefix.exists():
        shutil.rmtree(args.prefix)
    for name in install(args.prefix, args.specs, args.channel):
        print(name)


def ask(args: argparse.Namespace) -> None:
    """Writes what a solver would install, or why it cannot, as JSON."""
    found, reason = {}, ""
    virtual = machine(args.driver or None)
    try:
        found = solve(args.channel, args.specs, virtual, args.answer.parent / "repodata")
    except ReleaseError as error:
        reason = str(error)
    args.answer.write_text(json.dumps({"packages": found, "reason": reason}), encoding="utf-8")
    print("\n".join(sorted(found.values())) or reason)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    for name, function in [
        ("build", build),
        ("index", index),
        ("test", test),
        ("install", install_prefix),
        ("solve", ask),
        ("contents", contents),
    ]:
        command = commands.add_parser(name)
        command.set_defaults(function=function)
        command.add_argument("--channel", action="append", default=[])
        if name == "build":
            command.add_argument("--variants", type=Path, required=True)
            command.add_argument("--out", type=Path, required=True)
            command.add_argument("--prebuilt", type=Path)
        if name in ("index", "test", "contents"):
            command.add_argument("package", type=Path)
        if name == "contents":
            command.add_argument("binaries", nargs="+", type=Path)
        if name == "index":
            command.add_argument("--into", type=Path, required=True)
        if name == "install":
            command.add_argument("--prefix", type=Path, required=True)
            command.add_argument("specs", nargs="+")
        if name == "solve":
            command.add_argument("--answer", type=Path, required=True)
            command.add_argument("--driver", default="", help="the CUDA it speaks, none if empty")
            command.add_argument("specs", nargs="+")
    args = parser.parse_args()
    try:
        args.function(args)
    except ReleaseError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # The runtime behind py-rattler has crashed once while the interpreter went down.
    os._exit(code)
