"""Makes the package out of which a channel's index is patched, as conda-forge's is.

rattler reads `SUBDIR/patch_instructions.json` of such a package when it indexes a channel, and
writes into the index what stands there instead of what packages say of themselves.
"""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from .conda_format import write_package
from .settings import Settings
from .taken_back import Facts, TakenBack

VERSION = "1"
BUILD = "0"


def write_patches(channel: Path, taken_back: TakenBack, settings: Settings) -> str | None:
    """Writes the package of patches into `channel/noarch`; returns its name, None if not needed."""
    name = f"{settings.project.distribution}-repodata-patches"
    package = channel / "noarch" / f"{name}-{VERSION}-{BUILD}.conda"
    package.unlink(missing_ok=True)
    subdirs = {path.parent for path in channel.glob("*/*.conda")}
    patches = {
        subdir.name: taken_back.patches_of(facts_of(subdir))
        for subdir in sorted({*subdirs, channel / "noarch"})
    }
    if not any(patches.values()):
        return None
    with TemporaryDirectory(prefix="patches-") as folder:
        root = Path(folder)
        for subdir, instructions in patches.items():
            _write(root / subdir / "patch_instructions.json", _instructions(instructions))
        index = {"name": name, "version": VERSION, "build": BUILD, "build_number": int(BUILD)}
        depends: list[str] = []
        _write(root / "info" / "index.json", {**index, "subdir": "noarch", "depends": depends})
        _write(root / "info" / "paths.json", {"paths": [], "paths_version": 1})
        write_package(package, root, epoch=0)
    return package.name


def facts_of(subdir: Path) -> dict[str, Facts]:
    """What the packages of a channel's folder say of themselves, by file name."""
    from rattler import IndexJson

    facts = {}
    for package in sorted(subdir.glob("*.conda")):
        index = IndexJson.from_package_archive(package)
        facts[package.name] = Facts(version=str(index.version), depends=index.depends)
    return facts


def _instructions(patches: object) -> dict[str, object]:
    return {
        "patch_instructions_version": 1,
        "packages": {},
        "packages.conda": patches,
        "revoke": [],
        "remove": [],
    }


def _write(path: Path, document: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1), encoding="utf-8")
