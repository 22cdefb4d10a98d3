"""Builds, tests and installs conda packages with py-rattler and py-rattler-build.

    python -m release.conda_worker bootstrap|build|index|contents|test|install ...

It is a process of its own: its output is the log, and both libraries read the environment and their
cache only once.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from release import BUILD, PROJECT, REPO, SUBDIR, ReleaseError
from release.bootstrap import build_channel
from release.conda_pack import repack
from release.paths import publish
from release.provenance import source_epoch
from release.store import digest

if TYPE_CHECKING:
    from rattler import GenericVirtualPackage, RepoDataRecord

# Both libraries read this when they first touch their cache.
os.environ.setdefault("RATTLER_CACHE_DIR", str(BUILD / "cache" / "rattler"))

RECIPE = REPO / "recipe" / "recipe.yaml"
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
Channels = Annotated[list[str], typer.Option("--channel", help="A URL; the first is preferred.")]


@app.command()
def bootstrap(out: Path, wheels: Path, python: str) -> None:
    """Makes the base channel for tests from a folder of wheels and an interpreter."""
    build_channel(out.resolve(), sorted(wheels.resolve().glob("*.whl")), python)
    index(out, [])


@app.command()
def build(
    variants: Path, out: Path, channels: Channels, recipe: Path = RECIPE, tests: bool = False
) -> None:
    """Builds every package that a variants file describes, into `out/SUBDIR`; tests them too."""
    import rattler_build as rb

    platform = rb.PlatformConfig(target_platform=SUBDIR)
    config = rb.VariantConfig.from_file(str(variants))
    stage = rb.Stage0Recipe.from_file(str(recipe))
    for variant in stage.render(config, rb.RenderConfig(platform=platform)):
        made = variant.run_build(
            tool_config=rb.ToolConfiguration(test_strategy="native" if tests else "skip"),
            output_dir=out.resolve(),
            channels=channels,
            package_format="conda:1",
        )
        for package in made.packages:
            repack(Path(package), source_epoch())
            # rattler-build would run the tests of an older package of this name.
            old = Path(os.environ["RATTLER_CACHE_DIR"], "pkgs", Path(package).stem)
            shutil.rmtree(old, ignore_errors=True)
            print(package)


@app.command()
def index(channel: Path, packages: list[Path]) -> None:
    """Puts packages into a channel on disk and indexes it."""
    from rattler.index import index_fs

    for package in packages:
        publish(package, channel / SUBDIR / package.name)
    (channel / "noarch").mkdir(parents=True, exist_ok=True)
    # `force`, because a rebuilt file keeps its name.
    asyncio.run(index_fs(channel, force=True))


@app.command()
def contents(package: Path, binaries: list[Path]) -> None:
    """Checks that a package holds these binaries unchanged, and no path of the build."""
    import rattler.package_streaming

    with TemporaryDirectory(prefix="package-") as folder:
        rattler.package_streaming.extract(package, folder)
        listed = json.loads(Path(folder, "info/paths.json").read_text(encoding="utf-8"))["paths"]
    paths = {entry["_path"]: entry for entry in listed}
    for name, entry in paths.items():
        if name.endswith("direct_url.json") or entry.get("prefix_placeholder"):
            raise ReleaseError(f"{package.name}: {name} holds a path of the build; see recipe/")
    for binary in binaries:
        name = f"site-packages/{PROJECT.package}/lib/{binary.name}"
        found = paths.get(name, {}).get("sha256")
        if found != digest(binary):
            state = "is missing" if found is None else "was changed while it was packed"
            raise ReleaseError(f"{package.name}: {name} {state}; see recipe/recipe.yaml")
        print(f"{name}: sha256 {found}, as built")


@app.command()
def test(package: Path, channels: Channels) -> None:
    """Runs the tests inside a package, each in a new prefix."""
    import rattler_build as rb

    loaded = rb.Package.from_file(str(package))
    for number, result in enumerate(loaded.run_tests(channel=channels)):
        print(f"package test {number}: {'passed' if result.success else 'FAILED'}")
        for line in result.output:
            print(f"  {line}")
        if not result.success:
            raise ReleaseError(f"{package.name}: its test {number} failed; see the lines above")
    print(f"{loaded.test_count} package test(s) passed")


@app.command()
def install(prefix: Path, specs: list[str], channels: Channels) -> None:
    """Installs packages into a new prefix on this machine."""
    import rattler

    shutil.rmtree(prefix, ignore_errors=True)
    overrides = rattler.VirtualPackageOverrides.from_env()  # CONDA_OVERRIDE_CUDA and the like
    found = [package.into_generic() for package in rattler.VirtualPackage.detect(overrides)]
    records = list(solve(channels, specs, found).values())
    where = {"target_prefix": str(prefix), "platform": rattler.Subdir(SUBDIR)}
    asyncio.run(rattler.install(records=records, show_progress=False, **where))
    print("\n".join(sorted(record.file_name for record in records)))


def solve(
    channels: Sequence[str],
    specs: Sequence[str],
    virtual: Sequence[GenericVirtualPackage],
    cache: Path | None = None,
) -> dict[str, RepoDataRecord]:
    """The packages that a solver would install, by name; installs nothing.

    Args:
        channels: URLs, the preferred one first.
        specs: the request, `NAME`, `python 3.12.*`.
        virtual: what the machine has: `__cuda`, `__glibc`.
        cache: a folder for the channels' index, None for the library's own.

    Raises:
        ReleaseError: there is no solution; the text names the conflict.
    """
    import rattler
    from rattler.exceptions import SolverError

    async def go() -> list[RepoDataRecord]:
        return await rattler.solve(
            sources=[rattler.Channel(channel) for channel in channels],
            specs=list(specs),
            gateway=rattler.Gateway(cache_dir=cache),
            platforms=[SUBDIR, "noarch"],
            virtual_packages=list(virtual),
        )

    try:
        return {record.name.normalized: record for record in asyncio.run(go())}
    except SolverError as error:
        have = ", ".join(f"{p.name.normalized} {p.version}" for p in virtual)
        text = f"no packages serve {', '.join(specs)} on a machine with {have}:\n{error}"
        raise ReleaseError(
            f"{text}\nask for less, or for what these channels hold: {', '.join(channels)}"
        ) from error


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
