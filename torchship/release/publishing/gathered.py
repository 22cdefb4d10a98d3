"""Lists the files of a release, for `launch/gather_release.sh`.

    python3 gathered.py PLATFORM=DIST ...

Prints the files to gather as PLATFORM, DIST and path, each with a NUL behind it: those that the
manifests list, but for those of a cell that failed. All platforms must be of one package, version
and commit, and each file as its manifest lists it. Needs nothing but Python's library, so that no
environment must be made first.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn


@dataclass(frozen=True)
class Dist:
    """What a manifest says of the files of a platform: their hashes, by path."""

    folder: Path
    sources: tuple[str, str, str]  #: package, version, commit
    files: dict[str, str]


def refuse(problem: str) -> NoReturn:
    sys.exit(f"error: {problem}")


def read_manifest(folder: Path) -> Dist:
    path = folder / "manifest.json"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        usable = {
            name
            for name, cell in manifest["cells"].items()
            if cell["state"] in ("done", "partial") and cell["wheel"] is not None
        }
        files = {
            str(artefact["path"]): str(artefact["sha256"])
            for artefact in manifest["artefacts"]
            if {*artefact["cells"]} <= usable
        }
        sources = (manifest["package"], manifest["version"], manifest["commit"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        refuse(f"{path}: the manifest is not whole ({error}); build again")
    return Dist(folder=folder, sources=sources, files=files)


def find_problems(dist: Dist) -> Iterator[str]:
    """Finds files that are not as listed."""
    for name, sha256 in dist.files.items():
        path = dist.folder / name
        if not path.is_file():
            yield f"{name} is missing"
        elif hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
            yield f"{name} is not the file that was made (its hash differs)"


def main(arguments: Sequence[str]) -> None:
    dists: dict[str, Dist] = {}
    for argument in arguments:
        platform, _, name = argument.partition("=")
        if not platform or not name or platform in dists:
            refuse(f"{argument}: needs PLATFORM=DIST, each platform once")
        dist = dists[platform] = read_manifest(Path(name))
        first = next(iter(dists.values()))
        for field, value, expected in zip(
            ("package", "version", "commit"), dist.sources, first.sources, strict=True
        ):
            if value != expected:
                refuse(
                    f"{name}: {field} is {value}, another platform has {expected}; "
                    "build all platforms from one commit"
                )
        if problems := list(find_problems(dist)):
            refuse("\n  ".join([f"{name} is not as it was made:", *problems]))
    for platform, dist in dists.items():
        for path in dist.files:
            sys.stdout.write(f"{platform}\0{dist.folder}\0{path}\0")


if __name__ == "__main__":
    main(sys.argv[1:])
