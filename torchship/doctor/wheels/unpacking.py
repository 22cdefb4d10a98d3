"""Reads wheels: their names, and the members that a verdict needs, unpacked within bounds."""

from __future__ import annotations

import io
import os
import re
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from ...judge.budget import Budget, BudgetSpentError
from ...judge.project import Record
from ...judge.target import Target
from ...judge.text import is_file, printable
from ..environment.metadata import Core, core_of, places_in
from ..environment.owner import is_shared_object_name
from ..environment.standards import Tag, tags_of_wheel

_MAX_UNPACKED = 2_000_000_000
_MAX_MEMBERS = 100_000
_MAX_NAME = 1024
#: Of the list of all members, which `zipfile` reads at once.
MAX_DIRECTORY = 20_000_000
_CHUNK = 1 << 20


class WheelError(ValueError):
    """The file is no wheel that can be read."""


class RemoteError(RuntimeError):
    """A server does not answer, or what it holds is too large to fetch."""


class WheelName(Record, kw_only=True):
    """The parts of a wheel's file name (PEP 427)."""

    distribution: str
    version: str  #: with its local part, as in `2.8.3+cu12torch2.8`
    tags: frozenset[Tag]  #: the Pythons, ABIs and platforms that it is for, each combination
    compatibility: str  #: as the name has them: `cp311-cp311-linux_x86_64`

    @classmethod
    def parse(cls, name: str) -> WheelName:
        """Read a name such as `theirs-1.0-cp311-cp311-linux_x86_64.whl`. Raises WheelError."""
        try:
            tags = tags_of_wheel(name)
        except ValueError:
            raise WheelError(
                f"{printable(name)[:200]} is not named as a wheel is: "
                "NAME-VERSION-PYTHON-ABI-PLATFORM.whl"
            ) from None
        parts = name.removesuffix(".whl").split("-")
        return cls(
            distribution=printable(parts[0]),
            version=printable(parts[1]),
            tags=tags,
            compatibility="-".join(parts[-3:]),
        )

    @property
    def torch(self) -> tuple[int, int] | None:
        """The torch minor in the local version, as `torch2.8`, `pt28` and `torch28` name it."""
        named = re.search(r"(?:torch|pt)(\d)[._]?(\d{1,2})", self.version.partition("+")[2])
        return (int(named[1]), int(named[2])) if named else None

    @property
    def cuda(self) -> int | None:
        """The CUDA major in the local version, as `cu12` and `cu128` name it."""
        named = re.search(r"cu(\d{2})\d{0,2}(?!\d)", self.version.partition("+")[2])
        return int(named[1]) if named else None

    @property
    def cxx11_abi(self) -> int | None:
        """The C++ ABI flavour in the local version, as `cxx11abiTRUE` names it."""
        named = re.search(r"cxx11abi(TRUE|FALSE|0|1)", self.version, re.IGNORECASE)
        return int(named[1].upper() in ("TRUE", "1")) if named else None


class WheelFile(io.BufferedReader):
    """A file that `zipfile` reads. It reads the list of all members at once, which may have
    the size of the whole file and takes ten times as much memory."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path))
        self._size = os.fstat(self.fileno()).st_size

    def read(self, size: int | None = -1, /) -> bytes:
        rest = max(0, self._size - self.tell())
        expected = rest if size is None or size < 0 else min(size, rest)
        check_directory(expected)
        return super().read(size)


def check_directory(size: int) -> None:
    """Raises WheelError if one read is larger than any list of members."""
    if size > MAX_DIRECTORY:
        raise WheelError(f"its list of members has more than {MAX_DIRECTORY // 10**6} MB")


def open_file(wheel: Path) -> WheelFile:
    """Open a wheel of this machine. Raises WheelError."""
    if not is_file(wheel):
        raise WheelError("there is no such regular file")
    try:
        return WheelFile(wheel)
    except OSError as error:
        raise WheelError(printable(str(error))) from error


def unpack_file(wheel: Path, place: Path, budget: Budget) -> None:
    """Unpack what a verdict needs from a wheel of this machine: see `unpack`."""
    with open_file(wheel) as content:
        unpack(content, place, budget)


def is_metadata(member: zipfile.ZipInfo) -> bool:
    """Whether a member lies in the metadata folder of the wheel."""
    path = PurePosixPath(member.filename)
    return path.parent.suffix == ".dist-info" and len(path.parts) == 2


def is_code(member: zipfile.ZipInfo) -> bool:
    """Whether a member is a shared object, or a file that may name its torch."""
    path = PurePosixPath(member.filename)
    is_version_file = "version" in path.name and path.suffix == ".py"
    return is_version_file or path.name == "cpp_lib.json" or is_shared_object_name(path.name)


def is_needed(member: zipfile.ZipInfo) -> bool:
    """Whether a verdict needs a member."""
    return is_metadata(member) or is_code(member)


def unpack(
    content: io.BufferedIOBase,
    place: Path,
    budget: Budget,
    is_wanted: Callable[[zipfile.ZipInfo], bool] = is_needed,
) -> None:
    """Unpack the wanted members below `place`.

    The sizes in a zip file are claims, so the unpacked bytes are counted. Raises
    WheelError, and BudgetSpentError.
    """
    bytes_left = _MAX_UNPACKED
    try:
        with zipfile.ZipFile(content) as file:
            members = file.infolist()
            if len(members) > _MAX_MEMBERS:
                raise WheelError(f"it has {len(members)} members, more than {_MAX_MEMBERS}")
            for member in members:
                if is_wanted(member) and not member.is_dir():
                    bytes_left = _unpack_member(
                        file, member, place=place, bytes_left=bytes_left, budget=budget
                    )
    except (WheelError, BudgetSpentError, RemoteError):
        raise
    except Exception as error:  # for a damaged file, zipfile raises a dozen types of errors
        raise WheelError(printable(str(error))[:500] or type(error).__name__) from error


def _unpack_member(
    file: zipfile.ZipFile,
    member: zipfile.ZipInfo,
    *,
    place: Path,
    bytes_left: int,
    budget: Budget,
) -> int:
    """Unpack a file below `place`; returns how many of `bytes_left` are left then."""
    parts = PurePosixPath(member.filename).parts
    if not parts or ".." in parts or parts[0] == "/" or "\\" in member.filename:
        raise WheelError(f"its member {printable(member.filename)[:200]} lies outside the wheel")
    if len(member.filename) > _MAX_NAME:
        raise WheelError(f"the name {printable(member.filename)[:200]}... is too long")
    target = place.joinpath(*parts)
    target.parent.mkdir(parents=True, exist_ok=True)
    with file.open(member) as source, target.open("xb") as unpacked:
        while chunk := source.read(_CHUNK):
            bytes_left -= len(chunk)
            if bytes_left < 0:
                raise WheelError(f"it unpacks to more than {_MAX_UNPACKED // 10**9} GB")
            budget.check_time()
            unpacked.write(chunk)
    return bytes_left


def core_of_wheel(target: Target, root: Path) -> Core:
    """The metadata of an unpacked wheel; without a name if it has none."""
    cores = (core_of(target, place) for place in places_in(root) if is_file(place / "METADATA"))
    return next((core for core in cores if core is not None), Core(name="", version=""))
