"""Builds, tests and installs conda packages with py-rattler and py-rattler-build.

    python -m torchship.release.steps.conda.worker install PREFIX SPEC ... --channel CHANNEL
    python -m torchship.release.steps.conda.worker --help

Each command runs in a process of its own: a log then gets the output of one task alone, and both
libraries read the environment only once in a process. `commands.py` makes the command lines.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from ....judge.reading.binary import read_binary
from ....judge.records import dotted
from ... import ReleaseError
from ...matrix.load import load_settings
from ...matrix.settings import Settings
from ...paths import publish
from ...publishing.taken_back import leave_out, read_taken_back
from ...run.store import source_epoch
from .archives import write_package
from .bootstrap import build_channel
from .contents import contents

if TYPE_CHECKING:
    from rattler import GenericVirtualPackage, RepoDataRecord


def bootstrap(
    out: Path, settings: Settings, *, wheels: Path, python: str, torch: Path | None
) -> None:
    packed = sorted(wheels.resolve().glob("*.whl"))
    build_channel(out.resolve(), packed, python, settings, torch=torch)
    index(out, [], settings)


def build(
    variants: Path,
    out: Path,
    settings: Settings,
    *,
    channels: Sequence[str],
    recipe: Path | None,
    run_tests: bool,
) -> None:
    """Builds every package of a variants file into `out`; `run_tests` tests each package.

    Without `recipe`, the recipe is the project's.
    """
    import rattler_build as rb

    platform = rb.PlatformConfig(target_platform=settings.subdir)
    config = rb.VariantConfig.from_file(str(variants))
    stage = rb.Stage0Recipe.from_file(str(recipe or settings.repo / "recipe" / "recipe.yaml"))
    for variant in stage.render(config, rb.RenderConfig(platform=platform)):
        result = variant.run_build(
            tool_config=rb.ToolConfiguration(test_strategy="native" if run_tests else "skip"),
            output_dir=out.resolve(),
            channels=list(channels),
            package_format="conda:1",
        )
        for package in result.packages:
            repack(Path(package), source_epoch(settings))
            # If this folder stayed, rattler-build would test an older package of this name from it.
            old = Path(os.environ["RATTLER_CACHE_DIR"], "pkgs", Path(package).stem)
            shutil.rmtree(old, ignore_errors=True)
            print(package)


def index(channel: Path, packages: Sequence[Path], settings: Settings) -> None:
    """Puts packages into a channel on disk and indexes it, without yanked versions."""
    from rattler.index import index_fs

    for package in packages:
        # A package lies in a folder with the name of its platform.
        subdir = "noarch" if package.parent.name == "noarch" else settings.subdir
        publish(package, channel / subdir / package.name)
    (channel / "noarch").mkdir(parents=True, exist_ok=True)
    # `force`, because a package that was built again keeps its name and needs a new entry.
    yanked = leave_out(
        channel,
        f"{settings.project.distribution}-yanked-versions",
        read_taken_back(channel.parent).yanked,
    )
    asyncio.run(index_fs(channel, force=True, repodata_patch=yanked))


def test(package: Path, *, channels: Sequence[str]) -> None:
    """Runs the tests that a package holds, each in a new prefix."""
    import rattler_build as rb

    loaded = rb.Package.from_file(str(package))
    for number, result in enumerate(loaded.run_tests(channel=list(channels))):
        print(f"package test {number}: {'passed' if result.success else 'FAILED'}")
        print(*(f"  {line}" for line in result.output), sep="\n")
        if not result.success:
            raise ReleaseError(f"{package.name}: its test {number} failed; see the lines above")
    print(f"{loaded.test_count} package test(s) passed")


def install(
    prefix: Path, specs: Sequence[str], settings: Settings, *, channels: Sequence[str]
) -> None:
    """Installs what the solver takes for `specs` into a new prefix, and prints the packages."""
    import rattler

    shutil.rmtree(prefix, ignore_errors=True)
    overrides = rattler.VirtualPackageOverrides.from_env()  # such as CONDA_OVERRIDE_CUDA
    detected = rattler.VirtualPackage.detect(overrides)
    machine = [package.into_generic() for package in detected]
    records = list(solve(channels, specs, machine, subdir=settings.subdir).values())
    installation = rattler.install(
        records=records,
        target_prefix=str(prefix),
        platform=rattler.Subdir(settings.subdir),
        show_progress=False,
    )
    asyncio.run(installation)
    print("\n".join(sorted(record.file_name for record in records)))


def solve(
    channels: Sequence[str],
    specs: Sequence[str],
    machine: Sequence[GenericVirtualPackage],
    *,
    subdir: str,
    cache: Path | None = None,
) -> dict[str, RepoDataRecord]:
    """The packages that a solver would install, by name; installs nothing.

    The preferred channel is first in `channels`. `machine` has the virtual packages of the machine,
    such as `__cuda`. Raises ReleaseError if no set of packages fits.
    """
    import rattler
    from rattler.exceptions import SolverError

    solution = rattler.solve(
        sources=[rattler.Channel(channel) for channel in channels],
        specs=list(specs),
        gateway=rattler.Gateway(cache_dir=cache),
        platforms=[rattler.Subdir(subdir), rattler.Subdir("noarch")],
        virtual_packages=list(machine),
    )
    try:
        return {record.name.normalized: record for record in asyncio.run(solution)}
    except SolverError as error:
        virtual = ", ".join(f"{package.name.normalized} {package.version}" for package in machine)
        raise ReleaseError(
            f"no packages serve {', '.join(specs)} on a machine with {virtual}:\n{error}\n"
            f"ask for fewer, or for packages of these channels: {', '.join(channels)}"
        ) from error


def repack(package: Path, epoch: int) -> None:
    """Rewrites a `.conda` file without facts about the build machine, with `epoch` as the date.

    A package with shared objects then requires the glibc that these need, not the sysroot's glibc.
    """
    from rattler.package_streaming import extract

    with TemporaryDirectory(prefix="package-") as folder:
        root = Path(folder)
        extract(package, root)
        _neutral_metadata(root, epoch)
        write_package(package, root, epoch)


def _neutral_metadata(root: Path, epoch: int) -> None:
    """Rewrites the metadata of an unpacked package, as `repack` says."""
    index_file = root / "info" / "index.json"
    metadata = json.loads(index_file.read_text())
    floors = [read_binary(path).floors.get("GLIBC") for path in root.rglob("*.so")]
    glibc = max((floor for floor in floors if floor), default=None)
    depends = metadata["depends"]
    if glibc:
        depends = [need for need in depends if need.split()[0] != "__glibc"]
        depends.append(f"__glibc >={dotted(glibc)}")
    metadata["depends"] = sorted(depends)  # their order is random
    metadata["timestamp"] = epoch * 1000
    index_file.write_text(json.dumps(metadata, indent=2, sort_keys=True))

    about_file = root / "info" / "about.json"
    about = json.loads(about_file.read_text())
    about["channels"] = [url for url in about["channels"] if not url.startswith("file:")]
    about_file.write_text(json.dumps(about, indent=2, sort_keys=True))
    # rendered_recipe.yaml names folders, the Linux kernel and the processor of the machine. The
    # recipe itself and its variant stay in the package.
    (root / "info" / "recipe" / "rendered_recipe.yaml").unlink(missing_ok=True)


def make_parser() -> argparse.ArgumentParser:
    """The command line; the result of parsing has the function `run`, which takes that result
    and the settings."""
    parser = argparse.ArgumentParser(
        prog="python -m torchship.release.steps.conda.worker", allow_abbrev=False
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    channels = argparse.ArgumentParser(add_help=False)
    channels.add_argument(
        "--channel", action="append", required=True, help="URL or name; the preferred one first"
    )

    command = commands.add_parser("bootstrap", help="make the channel for tests, and index it")
    command.add_argument("out", type=Path, metavar="OUT")
    command.add_argument("--wheels", type=Path, required=True, metavar="DIR")
    command.add_argument("--python", required=True, help="the interpreter that the channel packs")
    command.add_argument("--torch", type=Path, help="the environment that its pytorch links to")
    command.set_defaults(
        run=lambda o, settings: bootstrap(
            o.out, settings, wheels=o.wheels, python=o.python, torch=o.torch
        )
    )

    command = commands.add_parser(
        "build", parents=[channels], help="build every package of a variants file"
    )
    command.add_argument("variants", type=Path, metavar="VARIANTS")
    command.add_argument("out", type=Path, metavar="OUT")
    command.add_argument("--recipe", type=Path, metavar="FILE")
    command.add_argument("--test", action="store_true", help="run the tests of each package")
    command.set_defaults(
        run=lambda o, settings: build(
            o.variants, o.out, settings, channels=o.channel, recipe=o.recipe, run_tests=o.test
        )
    )

    command = commands.add_parser("index", help="put packages into a channel on disk; index it")
    command.add_argument("channel", type=Path, metavar="CHANNEL")
    command.add_argument("packages", type=Path, nargs="*", metavar="PACKAGE")
    command.set_defaults(run=lambda o, settings: index(o.channel, o.packages, settings))

    command = commands.add_parser("contents", help="check that a package holds these binaries")
    command.add_argument("package", type=Path, metavar="PACKAGE")
    command.add_argument("binaries", type=Path, nargs="*", metavar="BINARY")
    command.add_argument("--wheel", type=Path, help="the package must hold this wheel's files")
    command.set_defaults(
        run=lambda o, settings: contents(o.package, o.binaries, settings, wheel=o.wheel)
    )

    command = commands.add_parser("test", parents=[channels], help="run the tests of a package")
    command.add_argument("package", type=Path, metavar="PACKAGE")
    command.set_defaults(run=lambda o, _: test(o.package, channels=o.channel))

    command = commands.add_parser(
        "install", parents=[channels], help="install packages into a new prefix"
    )
    command.add_argument("prefix", type=Path, metavar="PREFIX")
    command.add_argument("specs", nargs="+", metavar="SPEC")
    command.set_defaults(
        run=lambda o, settings: install(o.prefix, o.specs, settings, channels=o.channel)
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = make_parser().parse_args(arguments)
    try:
        settings = load_settings()
        # Both libraries read this variable at the first use of their cache.
        os.environ.setdefault("RATTLER_CACHE_DIR", str(settings.cache / "rattler"))
        options.run(options, settings)
    except ReleaseError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    exit_code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # `os._exit`, because py-rattler's runtime has crashed once while the interpreter ended.
    os._exit(exit_code)
