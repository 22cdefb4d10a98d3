"""The few calls of py-rattler and py-rattler-build that the tool needs."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from release import BUILD, ReleaseError
from release.store import digest

# Both libraries read this when they first touch their cache.
os.environ.setdefault("RATTLER_CACHE_DIR", str(BUILD / "cache" / "rattler"))


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
    """Names and hashes of the binaries in a package, which must be those that were built.

    Raises:
        ReleaseError: one is missing or was rewritten, or the build left a trace of itself.
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


def install(prefix: Path, specs: list[str], channels: list[str]) -> list[str]:
    """Solves `specs` and installs them into a new prefix; the file names of what was chosen."""
    import rattler
    from rattler.exceptions import SolverError

    overrides = rattler.VirtualPackageOverrides.from_env()  # CONDA_OVERRIDE_CUDA and the like

    async def go() -> list[str]:
        records = await rattler.solve(
            sources=[rattler.Channel(channel) for channel in channels],
            specs=specs,
            platforms=["linux-64", "noarch"],
            virtual_packages=rattler.VirtualPackage.detect(overrides),
        )
        await rattler.install(records=records, target_prefix=str(prefix), show_progress=False)
        return sorted(record.file_name for record in records)

    try:
        return asyncio.run(go())
    except SolverError as error:
        text = f"cannot solve {specs} from {channels}:\n{error}"
        raise ReleaseError(f"{text}\ncheck that the channel holds them") from error
