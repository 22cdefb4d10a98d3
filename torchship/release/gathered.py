"""Checks the `dist` folders of a release's platforms, for `launch/gather_release.sh`.

    python3 gathered.py PLATFORM=DIST ...

Prints the files to gather as PLATFORM, DIST and path, each with a NUL behind it: those that the
manifests list, but for those of a cell that failed. Needs nothing but Python's library, so that no
environment must be made first.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

SUFFIXES = (".whl", ".tar.gz", ".conda", ".pyz")
OF_ONE_CELL = ("thin", "conda")


def refuse(problem: str) -> NoReturn:
    sys.exit(f"error: {problem}")


def read_manifest(dist: Path) -> dict[str, Any]:
    """The manifest of a folder, with the fields that are needed here."""
    path = dist / "manifest.json"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        names = ("package", "version", "commit", "artefacts", "cells")
        fields = {name: manifest[name] for name in names}
        for artefact in fields["artefacts"]:
            if not all(isinstance(artefact[name], str) for name in ("path", "kind", "sha256")):
                raise TypeError("an artefact has no path, kind or sha256")
            if artefact["kind"] in OF_ONE_CELL and not artefact["cells"]:
                raise TypeError("an artefact has no cell")
        fields["usable"] = {name for name, cell in fields["cells"].items() if is_usable(cell)}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        refuse(f"{path}: is no whole manifest ({error}); build again")
    return fields


def is_usable(cell: Mapping[str, Any]) -> bool:
    """Whether users may get what a cell packed: not if it failed afterwards."""
    return cell["state"] in ("done", "partial") and cell["wheel"] is not None


def find_problems(
    platform: str, dist: Path, artefacts: Sequence[Mapping[str, str]]
) -> Iterator[str]:
    """Finds files that are not as listed, or not listed, or of another platform."""
    for artefact in artefacts:
        name = artefact["path"]
        path = dist / name
        if not path.resolve().is_relative_to(dist.resolve()):
            yield f"{name} leads out of the folder"
        elif not path.is_file():
            yield f"{name} is missing"
        elif hashlib.sha256(path.read_bytes()).hexdigest() != artefact["sha256"]:
            yield f"{name} is not the file that was made (its hash differs)"
        elif not is_of_platform(artefact["kind"], path, platform):
            yield f"{name} is not for {platform}"
    listed = {dist / artefact["path"] for artefact in artefacts}
    for path in sorted(dist.rglob("*")):
        if path.name.endswith(SUFFIXES) and path not in listed and not is_nested(path, dist):
            yield f"{str(path.relative_to(dist))!r} is not in its manifest; remove it"


def is_of_platform(kind: str, path: Path, platform: str) -> bool:
    if kind in ("fat", "thin"):
        return path.name.endswith(f"_{platform.removeprefix('linux-')}.whl")
    if kind == "conda":
        return path.parent.name == ("linux-64" if platform == "linux-x86_64" else platform)
    if kind == "pure":
        return path.name.endswith("-none-any.whl")
    if kind == "noarch":
        return path.parent.name == "noarch"
    return True


def is_nested(path: Path, dist: Path) -> bool:
    """Whether a file lies in `dist/PLATFORM`, where a run for another platform puts its own."""
    top = path.relative_to(dist).parts[0]
    return top.startswith("linux-") and (dist / top / "manifest.json").is_file()


def main(arguments: Sequence[str]) -> None:
    manifests: dict[str, dict[str, Any]] = {}
    files = []
    for argument in arguments:
        platform, _, name = argument.partition("=")
        if not platform or not name or platform in manifests:
            refuse(f"{argument}: needs PLATFORM=DIST, each platform once")
        dist = Path(name)
        manifest = read_manifest(dist)
        manifests[platform] = manifest
        for first in manifests.values():
            for field in ("package", "version", "commit"):
                if manifest[field] != first[field]:
                    refuse(
                        f"{dist}: {field} is {manifest[field]}, another platform has "
                        f"{first[field]}; build all platforms from one commit"
                    )
        if problems := list(find_problems(platform, dist, manifest["artefacts"])):
            refuse("\n  ".join([f"{dist} is not as it was made:", *problems]))
        for artefact in manifest["artefacts"]:
            if artefact["kind"] not in OF_ONE_CELL or {*artefact["cells"]} <= manifest["usable"]:
                files.append((platform, name, artefact["path"]))
    sys.stdout.write("".join(f"{word}\0" for file in files for word in file))


if __name__ == "__main__":
    main(sys.argv[1:])
