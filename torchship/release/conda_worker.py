"""Builds, tests and installs conda packages with py-rattler and py-rattler-build.

    python -m torchship.release.conda_worker bootstrap|build|index|contents|test|install ARGUMENTS

ARGUMENTS are a JSON object. Each command runs in a process of its own: a log then gets the output
of one task alone, and both libraries read the environment only once in a process.
"""

import asyncio
import io
import json
import os
import shutil
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile, ZipInfo

import zstandard
from pydantic import validate_call

from ..doctor.binary import read_binary
from ..doctor.records import dotted
from . import BUILD, PROJECT, REPO, SUBDIR, ReleaseError
from .bootstrap import build_channel
from .paths import publish
from .store import digest, source_epoch

# Both libraries read this variable at the first use of their cache, so it is set early.
os.environ.setdefault("RATTLER_CACHE_DIR", str(BUILD / "cache" / "rattler"))

LEVEL = 19  # the compression level: conda-build's default
RECIPE = REPO / "recipe" / "recipe.yaml"


def bootstrap(out: Path, wheels: Path, python: str) -> None:
    build_channel(out.resolve(), sorted(wheels.resolve().glob("*.whl")), python)
    index(out, [])


def build(
    variants: Path, out: Path, channels: list[str], recipe: Path = RECIPE, tests: bool = False
) -> None:
    """Builds every package of a variants file into `out`; tests each package if `tests` is true."""
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
            # If this folder stayed, rattler-build would test an older package of this name from it.
            old = Path(os.environ["RATTLER_CACHE_DIR"], "pkgs", Path(package).stem)
            shutil.rmtree(old, ignore_errors=True)
            print(package)


def index(channel: Path, packages: list[Path]) -> None:
    """Puts packages into a channel on disk and indexes the channel."""
    from rattler.index import index_fs

    for package in packages:
        publish(package, channel / SUBDIR / package.name)
    (channel / "noarch").mkdir(parents=True, exist_ok=True)
    # `force`, because a package that was built again keeps its name and needs a new entry.
    asyncio.run(index_fs(channel, force=True))


def contents(package: Path, binaries: list[Path]) -> None:
    """Checks that a package holds these binaries unchanged, and no file that names a build path."""
    from rattler import PathsJson

    listed = PathsJson.from_package_archive(package).paths
    for entry in listed:
        name = str(entry.relative_path)
        if name.endswith("direct_url.json") or entry.prefix_placeholder:
            raise ReleaseError(f"{package.name}: {name} holds a path of the build; see recipe/")
    hashes = {str(entry.relative_path): entry.sha256.hex() for entry in listed if entry.sha256}
    for binary in binaries:
        name = f"site-packages/{PROJECT.package}/lib/{binary.name}"
        found = hashes.get(name)
        if found != digest(binary):
            state = "is missing" if found is None else "was changed while it was packed"
            raise ReleaseError(f"{package.name}: {name} {state}; see recipe/recipe.yaml")
        print(f"{name}: sha256 {found}, as built")


def test(package: Path, channels: list[str]) -> None:
    """Runs the tests that a package holds, each in a new prefix."""
    import rattler_build as rb

    loaded = rb.Package.from_file(str(package))
    for number, result in enumerate(loaded.run_tests(channel=channels)):
        print(f"package test {number}: {'passed' if result.success else 'FAILED'}")
        print(*(f"  {line}" for line in result.output), sep="\n")
        if not result.success:
            raise ReleaseError(f"{package.name}: its test {number} failed; see the lines above")
    print(f"{loaded.test_count} package test(s) passed")


def install(prefix: Path, specs: list[str], channels: list[str]) -> None:
    import rattler

    shutil.rmtree(prefix, ignore_errors=True)
    overrides = rattler.VirtualPackageOverrides.from_env()  # such as CONDA_OVERRIDE_CUDA
    found = [package.into_generic() for package in rattler.VirtualPackage.detect(overrides)]
    records = list(solve(channels, specs, found).values())
    where = {"target_prefix": str(prefix), "platform": rattler.Subdir(SUBDIR)}
    asyncio.run(rattler.install(records=records, show_progress=False, **where))
    print("\n".join(sorted(record.file_name for record in records)))


def solve(
    channels: Sequence[str], specs: Sequence[str], virtual: Sequence[Any], cache: Path | None = None
) -> dict[str, Any]:
    """The packages that a solver would install, by name; installs nothing.

    The preferred channel is first in `channels`. `virtual` has the virtual packages of the machine,
    such as `__cuda`. Raises ReleaseError if no set of packages fits.
    """
    import rattler
    from rattler.exceptions import SolverError

    solution = rattler.solve(
        sources=[rattler.Channel(channel) for channel in channels],
        specs=list(specs),
        gateway=rattler.Gateway(cache_dir=cache),
        platforms=[SUBDIR, "noarch"],
        virtual_packages=list(virtual),
    )
    try:
        return {record.name.normalized: record for record in asyncio.run(solution)}
    except SolverError as error:
        have = ", ".join(f"{p.name.normalized} {p.version}" for p in virtual)
        text = f"no packages serve {', '.join(specs)} on a machine with {have}:\n{error}"
        raise ReleaseError(
            f"{text}\nask for fewer, or for packages of these channels: {', '.join(channels)}"
        ) from error


def repack(package: Path, epoch: int) -> None:
    """Rewrites a `.conda` file without facts about the build machine, with `epoch` as the date.

    A package with shared objects then requires the glibc that these need, not the sysroot's glibc.
    """
    from rattler.package_streaming import extract

    def neutral(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        # `deep=False`, because a deep copy would copy the archive, too.
        facts = {"mtime": epoch, "mode": 0o755 if entry.mode & 0o100 else 0o644}
        return entry.replace(**facts, uid=0, gid=0, uname="", gname="", deep=False)

    parts = {"metadata.json": b'{"conda_pkg_format_version":2}'}
    with TemporaryDirectory(prefix="package-") as folder:
        root, info = Path(folder), Path(folder, "info")
        extract(package, root)
        index, about = (json.loads((info / f"{n}.json").read_text()) for n in ("index", "about"))
        floors = [f for path in root.rglob("*.so") if (f := read_binary(path).floors.get("GLIBC"))]
        depends = [need for need in index["depends"] if not floors or need.split()[0] != "__glibc"]
        depends += [f"__glibc >={dotted(max(floors))}"] if floors else []
        index |= {"timestamp": epoch * 1000, "depends": sorted(depends)}  # their order is random
        about["channels"] = [url for url in about["channels"] if not url.startswith("file:")]
        for name, facts in (("index", index), ("about", about)):
            (info / f"{name}.json").write_text(json.dumps(facts, indent=2, sort_keys=True))
        # rendered_recipe.yaml names folders, the Linux kernel and the processor of the machine. The
        # recipe itself and its variant stay in the package.
        (info / "recipe" / "rendered_recipe.yaml").unlink(missing_ok=True)
        for kind in ("pkg", "info"):
            buffer = io.BytesIO()
            with tarfile.open(fileobj=buffer, mode="w") as archive:
                for path in sorted(p for p in root.iterdir() if (p == info) == (kind == "info")):
                    archive.add(path, path.name, filter=neutral)
            data = zstandard.ZstdCompressor(level=LEVEL).compress(buffer.getvalue())
            parts[f"{kind}-{package.stem}.tar.zst"] = data
    with ZipFile(package, "w") as outer:
        for name, data in parts.items():
            outer.writestr(ZipInfo(name, time.gmtime(epoch)[:6]), data)


if __name__ == "__main__":
    code = 0
    try:
        validate_call(globals()[sys.argv[1]])(**json.loads(sys.argv[2]))
    except ReleaseError as error:
        print(error, file=sys.stderr)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # `os._exit`, because py-rattler's runtime has crashed once while the interpreter ended.
    os._exit(code)
