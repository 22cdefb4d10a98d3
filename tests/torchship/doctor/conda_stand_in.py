"""The commands of conda that the doctor prints, carried out by py-rattler's solver and installer.

    python conda_stand_in.py install [-p PREFIX] [-c CHANNEL] [--force-reinstall] SPEC ...
    python conda_stand_in.py remove [-p PREFIX] --force NAME

conda itself is on no index of Python packages. `$CONDA_CHANNELS` is a folder with a folder for
each channel; `conda-forge` is there by default. Without `-p`, `$CONDA_PREFIX` is meant. As conda
does, an install keeps what is installed if it can.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path

import rattler

SUBDIR = "linux-64"


def parse(spec: str) -> rattler.MatchSpec:
    """A spec as conda reads it, which is less strict than rattler."""
    return rattler.MatchSpec(spec, strict=False)


def installed(prefix: Path) -> list[rattler.PrefixRecord]:
    return [rattler.PrefixRecord.from_path(path) for path in (prefix / "conda-meta").glob("*.json")]


async def solve(
    channels: list[str], specs: list[str], prefix: Path
) -> list[rattler.RepoDataRecord]:
    """What conda would have in the prefix: the specs, and what is there unless it is in the way."""
    folder = Path(os.environ["CONDA_CHANNELS"])
    urls = [(folder / name).as_uri() for name in channels]
    named = {parse(spec).name.normalized for spec in specs}
    others = [record for record in installed(prefix) if record.name.normalized not in named]
    kept = [f"{record.name.normalized} =={record.version} {record.build}" for record in others]
    return await rattler.solve(
        urls,
        [parse(spec) for spec in (*specs, *kept)],
        platforms=[SUBDIR, "noarch"],
        gateway=rattler.Gateway(),
    )


async def install(options: argparse.Namespace, prefix: Path) -> None:
    files = [Path(spec) for spec in options.names if spec.endswith(".tar.bz2")]
    specs = [spec for spec in options.names if not spec.endswith(".tar.bz2")]
    if files:
        records = [await rattler.RepoDataRecord.from_package_archive(path) for path in files]
        records += [r for r in installed(prefix) if r.name not in {f.name for f in records}]
    else:
        records = await solve([*(options.channel or []), "conda-forge"], specs, prefix)
    named = {parse(spec).name.normalized for spec in specs}
    named |= {path.name.rsplit("-", 2)[0] for path in files}
    await rattler.install(
        records,
        prefix,
        cache_dir=prefix.parent / "pkgs",
        reinstall_packages=named if options.force_reinstall else None,
        show_progress=False,
    )


def remove(options: argparse.Namespace, prefix: Path) -> None:
    for record in installed(prefix):
        if record.name.normalized in options.names:
            for file in record.files:
                (prefix / file).unlink(missing_ok=True)
            name = f"{record.name.normalized}-{record.version}-{record.build}.json"
            (prefix / "conda-meta" / name).unlink()


def main() -> None:
    parser = argparse.ArgumentParser(prog="conda")
    commands = parser.add_subparsers(dest="command", required=True)
    for command in ("install", "remove"):
        options = commands.add_parser(command)
        options.add_argument("-p", "--prefix", default=os.environ.get("CONDA_PREFIX"))
        options.add_argument("-c", "--channel", action="append")
        options.add_argument("--force-reinstall", action="store_true")
        options.add_argument("--force", action="store_true")
        options.add_argument("names", nargs="+")
    parsed = parser.parse_args()
    prefix = Path(parsed.prefix)
    if parsed.command == "install":
        asyncio.run(install(parsed, prefix))
    else:
        remove(parsed, prefix)
    os._exit(0)  # at the end of Python, rattler's threads may crash the process


if __name__ == "__main__":
    main()
