"""The calls of py-rattler and py-rattler-build that the tool needs."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from release import BUILD, ReleaseError
from release.store import digest

if TYPE_CHECKING:
    from rattler import RepoDataRecord

# Both libraries read this when they first touch their cache.
os.environ.setdefault("RATTLER_CACHE_DIR", str(BUILD / "cache" / "rattler"))

# A machine without a GPU; `machine` adds the driver.
LINUX = {"__linux": "6.1", "__unix": "0", "__glibc": "2.39", "__archspec": "1"}


def build_recipe(recipe: Path, *, out: Path, channels: list[str], variants: Path) -> list[Path]:
    """Builds every variant of a v1 recipe; returns the packages, under `out/<platform>/`."""
    import rattler_build as rb

    platform = rb.PlatformConfig(target_platform="linux-64")
    config = rb.VariantConfig.from_file(str(variants))
    rendered = rb.Stage0Recipe.from_file(str(recipe)).render(
        config, rb.RenderConfig(platform=platform)
    )
    made: list[Path] = []
    for variant in rendered:
        result = variant.run_build(
            tool_config=rb.ToolConfiguration(test_strategy="skip"),
            output_dir=out,
            channels=channels,
            package_format="conda:3",
        )
        made += [Path(package) for package in result.packages]
    return made


def run_package_tests(package: Path, channels: list[str]) -> None:
    """Runs the tests inside a package, each in a fresh prefix.

    Raises:
        ReleaseError: a test failed (the library itself only reports that in its result).
    """
    import rattler_build as rb

    loaded = rb.Package.from_file(str(package))
    for index, result in enumerate(loaded.run_tests(channel=channels)):
        print(f"package test {index}: {'passed' if result.success else 'FAILED'}")
        for line in result.output:
            print(f"  {line}")
        if not result.success:
            raise ReleaseError(f"{package.name}: its test {index} failed; see the lines above")
    print(f"{loaded.test_count} package test(s) passed")


def check_contents(package: Path, binaries: Sequence[Path]) -> list[str]:
    """Checks that a package holds these binaries unchanged; returns a line for each.

    Raises:
        ReleaseError: a binary is missing or was changed, or a file names a path of the build.
    """
    import rattler.package_streaming

    with TemporaryDirectory(prefix="package-") as folder:
        rattler.package_streaming.extract(package, folder)
        listed = json.loads(Path(folder, "info/paths.json").read_text(encoding="utf-8"))["paths"]
    paths = {entry["_path"]: entry for entry in listed}
    for name, entry in paths.items():
        if name.endswith("direct_url.json") or entry.get("prefix_placeholder"):
            raise ReleaseError(f"{package.name}: {name} holds a path of the build; see recipe/")
    lines = []
    for binary in binaries:
        name = f"site-packages/lltm_conda/lib/{binary.name}"
        found = paths.get(name, {}).get("sha256")
        if found != digest(binary):
            state = "is missing" if found is None else "was changed while it was packed"
            raise ReleaseError(f"{package.name}: {name} {state}; see recipe/recipe.yaml")
        lines.append(f"{name}: sha256 {found}, as built")
    return lines


def index_channel(channel: Path) -> None:
    """Writes repodata.json; `force` because a rebuilt file keeps its name."""
    from rattler.index import index_fs

    (channel / "noarch").mkdir(parents=True, exist_ok=True)
    asyncio.run(index_fs(channel, force=True))


def machine(driver: str | None = None, **other: str) -> dict[str, str]:
    """The virtual packages of a Linux machine whose NVIDIA driver supports CUDA `driver`."""
    cuda = {} if driver is None else {"__cuda": driver}
    return {**LINUX, **cuda, **{f"__{name}": version for name, version in other.items()}}


def solve(
    channels: Sequence[str], specs: Sequence[str], virtual: Mapping[str, str], cache: Path
) -> dict[str, str]:
    """Name and file name of every package that a solver would install; installs nothing.

    Args:
        channels: URLs, most important first.
        specs: the request, `lltm`, `python 3.12.*`.
        virtual: names and versions of virtual packages, see `machine`.
        cache: a folder for the channels' index.

    Raises:
        ReleaseError: there is no solution; the text names the conflict.
    """
    import rattler

    facts = [
        rattler.GenericVirtualPackage(
            rattler.PackageName(name), rattler.Version(version), rattler.BuildString("0")
        )
        for name, version in virtual.items()
    ]
    gateway = rattler.Gateway(cache_dir=cache)
    records = _solve(channels, specs, facts, gateway=gateway)
    return {record.name.normalized: record.file_name for record in records}


def install(prefix: Path, specs: list[str], channels: list[str]) -> list[str]:
    """Installs `specs` into a new prefix on this machine; the file names of what was chosen."""
    import rattler

    overrides = rattler.VirtualPackageOverrides.from_env()  # CONDA_OVERRIDE_CUDA and the like
    records = _solve(channels, specs, rattler.VirtualPackage.detect(overrides))
    asyncio.run(rattler.install(records=records, target_prefix=str(prefix), show_progress=False))
    return sorted(record.file_name for record in records)


def _solve(
    channels: Sequence[str], specs: Sequence[str], virtual: Sequence[Any], **options: Any
) -> list[RepoDataRecord]:
    import rattler
    from rattler.exceptions import SolverError

    async def go() -> list[RepoDataRecord]:
        return await rattler.solve(
            sources=[rattler.Channel(channel) for channel in channels],
            specs=list(specs),
            platforms=["linux-64", "noarch"],
            virtual_packages=list(virtual),
            **options,
        )

    try:
        return asyncio.run(go())
    except SolverError as error:
        facts = (p if hasattr(p, "name") else p.into_generic() for p in virtual)
        have = ", ".join(f"{p.name.normalized} {p.version}" for p in facts)
        text = f"no packages serve {', '.join(specs)} on a machine with {have}:\n{error}"
        raise ReleaseError(
            f"{text}\nask for less, or for what these channels hold: {', '.join(channels)}"
        ) from error
