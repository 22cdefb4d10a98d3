"""What was taken back of a folder that a web server shows: yanked versions.

The folder keeps it in `taken-back.json`, so that each later upload indexes the folder like this,
too. No file is removed and none is changed: who has pinned one still gets it.
"""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.version import Version
from pydantic import Field, ValidationError

from .. import ReleaseError
from ..matrix.schema import Strict
from ..paths import write_atomically
from ..steps.conda.archives import write_package

NAME = "taken-back.json"


class TakenBack(Strict):
    """The reasons of yanked versions."""

    yanked: dict[str, str] = Field(default_factory=dict)


def read_taken_back(folder: Path) -> TakenBack:
    """What was taken back of a folder; nothing if it has no such file. Raises ReleaseError."""
    path = folder / NAME
    if not path.exists():
        return TakenBack()
    try:
        return TakenBack.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        first = str(error).splitlines()[1:3] or [str(error)]
        raise ReleaseError(
            f"{path}: says nothing that can be applied ({' '.join(map(str.strip, first))}); "
            "see docs/ship/take-back.md for its form"
        ) from error


def write_taken_back(taken_back: TakenBack, folder: Path) -> None:
    write_atomically(folder / NAME, taken_back.model_dump_json(indent=1) + "\n")


def version_of(file: str) -> str:
    """The public version in the name of a wheel or of a conda package."""
    if file.endswith(".conda"):
        return file.rsplit("-", 2)[1]
    return Version(file.split("-")[1]).public


def leave_out(channel: Path, package: str, yanked: dict[str, str]) -> str | None:
    """Writes what makes an index of a channel leave the yanked versions out.

    rattler reads it from a conda package of the name `package` in `channel/noarch`, as
    conda-forge's own patches are. Returns the name of its file; None if nothing is yanked.
    """
    path = channel / "noarch" / f"{package}-1-0.conda"
    path.unlink(missing_ok=True)
    names = {
        subdir: sorted(p.name for p in subdir.glob("*.conda") if version_of(p.name) in yanked)
        for subdir in sorted({file.parent for file in channel.glob("*/*.conda")})
    }
    if not any(names.values()):
        return None
    index = {"name": package, "version": "1", "build": "0", "build_number": 0}
    documents: dict[str, object] = {
        f"{subdir.name}/patch_instructions.json": {
            "patch_instructions_version": 1,
            "packages": {},
            "packages.conda": {},
            "revoke": [],
            "remove": files,
        }
        for subdir, files in names.items()
    }
    documents["info/index.json"] = {**index, "subdir": "noarch", "depends": []}
    documents["info/paths.json"] = {"paths": [], "paths_version": 1}
    with TemporaryDirectory(prefix="yanked-") as folder:
        for name, document in documents.items():
            file = Path(folder, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(document, indent=1), encoding="utf-8")
        write_package(path, Path(folder), epoch=0)
    return path.name
