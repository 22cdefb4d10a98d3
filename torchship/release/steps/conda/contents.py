"""Checks what a conda package holds: the binaries as built, and the files of its cell's wheel."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.version import Version

from ....doctor.environment.owner import is_shared_object_name
from ... import ReleaseError
from ...matrix.settings import Settings
from ...run.store import digest
from ..pack.wheels import Wheel, read_wheel

# The metadata that pip and the build backend write, each version in its own way.
METADATA_FILES = (
    "INSTALLER",
    "LICENSE",
    "METADATA",
    "RECORD",
    "REQUESTED",
    "WHEEL",
    "top_level.txt",
)


def contents(
    package: Path, binaries: Sequence[Path], settings: Settings, *, wheel: Path | None = None
) -> None:
    """Checks that a package holds these binaries unchanged, and no file that names a build path.

    With `wheel`, the package must hold the files of that wheel, and no other. What counts are
    the files themselves, not what the package's list says of them.
    """
    listed = _listed_hashes(package)
    with TemporaryDirectory(prefix="package-") as folder:
        root = Path(folder)
        files = _unpack(package, root)
        for name in sorted({*listed, *files}):
            if listed.get(name) != files.get(name):
                raise ReleaseError(
                    f"{package.name}: {name} is not as its info/paths.json says; build it again"
                )
        _check_binaries(package, files, binaries, settings)
        if wheel is not None:
            _compare_with_wheel(package, root, files, read_wheel(wheel))


def _check_binaries(
    package: Path, files: Mapping[str, str], binaries: Sequence[Path], settings: Settings
) -> None:
    """Raises ReleaseError if a package's shared objects are not these binaries."""
    library = f"site-packages/{settings.project.package}/lib"
    expected = {f"{library}/{binary.name}": digest(binary) for binary in binaries}
    for name, sha256 in expected.items():
        if name not in files:
            raise ReleaseError(f"{package.name}: {name} is missing; see recipe/recipe.yaml")
        if files[name] != sha256:
            raise ReleaseError(
                f"{package.name}: {name} was changed while it was packed; see recipe/recipe.yaml"
            )
        print(f"{name}: sha256 {sha256}, as built")
    for name in sorted(files.keys() - expected.keys()):
        if is_shared_object_name(name):
            raise ReleaseError(f"{package.name}: holds {name}, which no cell made; build it again")


def _listed_hashes(package: Path) -> dict[str, str]:
    """The hashes of a package's files, by name, as its info/paths.json lists them."""
    from rattler import PathsJson

    try:
        entries = PathsJson.from_package_archive(package).paths
    except Exception as error:  # rattler's own errors have no base class but this
        raise _unreadable(package, error) from error
    for entry in entries:
        name = str(entry.relative_path)
        if name.endswith("direct_url.json") or entry.prefix_placeholder:
            raise ReleaseError(f"{package.name}: {name} holds a path of the build; see recipe/")
    return {
        str(entry.relative_path): entry.sha256.hex() if entry.sha256 else "no hash"
        for entry in entries
    }


def _unpack(package: Path, root: Path) -> dict[str, str]:
    """Unpacks a package into a folder; returns the hashes of what it installs, by name."""
    from rattler.package_streaming import extract

    try:
        extract(package, root)
    except Exception as error:  # see `_listed_hashes`
        raise _unreadable(package, error) from error
    hashes = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            hashes[name] = "a link"
        elif path.is_file() and not name.startswith("info/"):
            hashes[name] = digest(path)
    return hashes


def _unreadable(package: Path, error: Exception) -> ReleaseError:
    return ReleaseError(
        f"{package.name}: cannot be read as a conda package ({error}); build it again"
    )


def _compare_with_wheel(package: Path, root: Path, files: Mapping[str, str], wheel: Wheel) -> None:
    """Raises ReleaseError if an unpacked package has other files than the wheel of its cell.

    What the build backend and pip write into the metadata may differ, but not what it requires.
    """
    info = f"site-packages/{wheel.name}-{Version(wheel.version).public}.dist-info"
    packed = {f"site-packages/{name}": data for name, data in wheel.files.items()}
    if "entry_points.txt" in wheel.info:
        packed[f"{info}/entry_points.txt"] = wheel.info["entry_points.txt"]
    expected = {name: hashlib.sha256(data).hexdigest() for name, data in packed.items()}
    written = {f"{info}/{name}" for name in METADATA_FILES}
    written |= {name for name in files if name.startswith(f"{info}/licenses/")}
    for name in sorted({*files, *expected} - written):
        if files.get(name) != expected.get(name):
            raise ReleaseError(
                f"{package.name}: {name} is not as in {wheel.name} {wheel.version}, the wheel of "
                "its cell; build both again, from one commit"
            )
    if f"{info}/METADATA" not in files:
        raise ReleaseError(f"{package.name}: {info}/METADATA is missing; see recipe/recipe.yaml")
    stated = required_fields((root / info / "METADATA").read_bytes())
    needed = required_fields(wheel.renamed(local=None).info["METADATA"])
    if stated != needed:
        line = sorted({*stated} ^ {*needed})[0]
        raise ReleaseError(
            f"{package.name}: its METADATA and that of the wheel of its cell differ in "
            f"{line!r}; build both again, from one commit"
        )


def required_fields(metadata: bytes) -> list[str]:
    """The lines of a METADATA that say what a distribution is and requires, sorted."""
    lines = metadata.decode("utf-8", "replace").partition("\n\n")[0].splitlines()
    fields = ("Name:", "Version:", "Requires-Dist:", "Requires-Python:")
    return sorted(line for line in lines if line.startswith(fields))
