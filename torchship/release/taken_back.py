"""What was taken back of a folder that a web server shows: yanked versions, corrected metadata.

The folder keeps it in `taken-back.json`, so that each later upload indexes the folder like this,
too. No file is removed and none is changed: who has pinned one still gets it.
"""

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import Field, ValidationError

from . import ReleaseError
from .paths import write_atomically
from .schema import Strict

NAME = "taken-back.json"
#: The requirement that no package meets, by which conda-build marks a revoked package.
REVOKED = "package_has_been_revoked"


class Fix(Strict):
    """The metadata that a conda package should have had; None leaves what it has."""

    depends: list[str] | None = None
    constrains: list[str] | None = None


class TakenBack(Strict):
    """The reasons of yanked versions, and fixes by patterns of file names of conda packages."""

    yanked: dict[str, str] = Field(default_factory=dict)
    fixes: dict[str, Fix] = Field(default_factory=dict)

    def patches_of(self, packages: Mapping[str, "Facts"]) -> dict[str, dict[str, Sequence[str]]]:
        """What the index is to say instead of what packages say of themselves, by file name."""
        patches: dict[str, dict[str, Sequence[str]]] = {}
        for name, facts in packages.items():
            patch: dict[str, Sequence[str]] = {}
            for fix in self._fixes_of(name):
                patch |= fix.model_dump(exclude_none=True)
            if facts.version in self.yanked:
                patch["depends"] = [*patch.get("depends", facts.depends), REVOKED]
            if patch:
                patches[name] = patch
        return patches

    def _fixes_of(self, name: str) -> Iterator[Fix]:
        for pattern, fix in self.fixes.items():
            if fnmatch.fnmatchcase(name, pattern):
                yield fix


class Facts(Strict):
    """What a conda package says of itself."""

    version: str
    depends: list[str]


def read_taken_back(folder: Path) -> TakenBack:
    """What was taken back of a folder; nothing if it has no such file. Raises ReleaseError."""
    path = folder / NAME
    if not path.exists():
        return TakenBack()
    return _parse(path, TakenBack)


def write_taken_back(taken_back: TakenBack, folder: Path) -> None:
    write_atomically(folder / NAME, taken_back.model_dump_json(indent=1, exclude_none=True) + "\n")


def read_fixes(path: Path) -> dict[str, Fix]:
    """The fixes of a file: `{"my-op-0.1.0-*": {"depends": [...]}}`. Raises ReleaseError."""

    class Fixes(Strict):
        fixes: dict[str, Fix]

    try:
        content = path.read_text(encoding="utf-8")
        return Fixes.model_validate_json('{"fixes": ' + content + "}").fixes
    except OSError as error:
        raise ReleaseError(f"{path}: cannot be read ({error.strerror}); name a file") from error
    except (UnicodeDecodeError, ValidationError) as error:
        raise _unreadable(path, error) from error


def _parse(path: Path, model: type[TakenBack]) -> TakenBack:
    try:
        return model.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> ReleaseError:
    first = str(error).splitlines()[1:3] or [str(error)]
    return ReleaseError(
        f"{path}: says nothing that can be applied ({' '.join(map(str.strip, first))}); "
        "see docs/ship/take-back.md for its form"
    )
