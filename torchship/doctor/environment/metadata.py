"""Reads what installers wrote beside a package: the one module that knows these files.

It knows METADATA and PKG-INFO, RECORD and installed-files.txt, WHEEL, `.egg-link`,
direct_url.json and conda-meta. A place is the folder or the file of a distribution's metadata,
such as `site-packages/alpha-1.0.dist-info` or `conda-meta/alpha-1.0-0.json`. Nothing is raised
for a file that is missing or malformed: what cannot be read is not there. Every reading is
bounded.
"""

from __future__ import annotations

import csv
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from email.parser import HeaderParser
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote

from ...judge.project import Record
from ...judge.text import is_file, list_names, parse_json, printable, read_json, read_regular

_MAX_METADATA = 1 << 20
_MAX_RECORD = 8 << 20
_MAX_FILES = 100_000  # of one distribution
_MAX_SMALL_FILE = 1 << 16  # WHEEL, direct_url.json and the like
_MAX_NEEDS = 1000
_MAX_TAGS = 100
_MAX_MODULES = 100
_MAX_PATH = 4096
_SUFFIXES = (".dist-info", ".egg-info")
#: Of all lists of files in one folder, in bytes. An environment of 500 packages has about 10
#: MB of RECORDs, or 60 MB of conda metadata.
_MAX_LISTS = 128 << 20


class Core(Record, kw_only=True):
    """The core metadata of a distribution."""

    name: str
    version: str
    needs: tuple[str, ...] = ()  #: the requirements, with their markers
    requires_python: str = ""


class Listed(Record, kw_only=True):
    """A file that a distribution lists as its own."""

    path: Path
    name: str  #: as it is listed
    hash: str = ""  #: such as `sha256=...`; "" if not told
    size: int | None = None


class Allowance:
    """What may still be read of the lists of files in one folder."""

    def __init__(self) -> None:
        self._bytes_left = _MAX_LISTS

    def read(self, path: Path) -> bytes:
        """A list of files, or its start. Raises OSError."""
        content = read_regular(path, min(_MAX_RECORD, self._bytes_left))
        self._bytes_left -= len(content)
        return content


def places_in(folder: Path) -> list[Path]:
    """The metadata of pip's distributions in a folder, in the order in which Python sees them."""
    try:
        names = os.listdir(folder)  # noqa: PTH208  # importlib.metadata takes this order, too
    except (OSError, ValueError):
        return []
    return [folder / name for name in names if name.endswith(_SUFFIXES)]


def is_conda(place: Path) -> bool:
    return place.suffix == ".json"


def core_of(place: Path) -> Core | None:
    """The name, version and requirements; None where there is no name."""
    if is_conda(place):
        return _core_of_conda(place)
    for file in (place / "METADATA", place / "PKG-INFO", place):
        with suppress(OSError, ValueError):
            status = file.stat()
            if stat.S_ISREG(status.st_mode):
                return _read_core(file, place, (status.st_mtime_ns, status.st_size))
    return None


@lru_cache(maxsize=10_000)
def _read_core(file: Path, place: Path, _written: tuple[int, int]) -> Core | None:
    """The core metadata in a file that was written at that time. Raises OSError."""
    content = read_regular(file, _MAX_METADATA).decode("utf-8", "replace")
    head = content.replace("\r\n", "\n").partition("\n\n")[0]
    fields = HeaderParser().parsestr(head, headersonly=True)
    name = _one_line(fields["Name"])
    if not name:
        return None
    needs = tuple(_one_line(line) for line in fields.get_all("Requires-Dist", [])[:_MAX_NEEDS])
    return Core(
        name=name,
        version=_one_line(fields["Version"]),
        needs=needs or tuple(_needs_of_egg(place)),
        requires_python=_one_line(fields["Requires-Python"]),
    )


def _one_line(value: object) -> str:
    """A header's value, which may be folded over several lines."""
    return printable(" ".join(str(value or "").split()))


def _needs_of_egg(place: Path) -> Iterator[str]:
    """The requirements of an egg: in sections such as `[extra:marker]`."""
    content = ""
    with suppress(OSError):
        content = read_regular(place / "requires.txt", _MAX_METADATA).decode("utf-8", "replace")
    section = ""
    for line in map(str.strip, content.splitlines()[:_MAX_NEEDS]):
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            extra, _, marker = section.partition(":")
            of_extra = f'extra == "{extra}"' if extra else ""
            condition = f"({marker}) and {of_extra}" if marker and extra else marker or of_extra
            yield printable(f"{line} ; {condition}" if condition else line)


def _core_of_conda(place: Path) -> Core | None:
    package = read_json(place)
    name = package.get("name")
    if not isinstance(name, str):
        return None
    depends = package.get("depends")
    needs = [need for need in depends if isinstance(need, str)] if isinstance(depends, list) else []
    return Core(
        name=printable(name),
        version=printable(str(package.get("version", ""))),
        needs=tuple(map(printable, needs[:_MAX_NEEDS])),
    )


def installer_of(place: Path) -> str:
    """The tool that installed a distribution; "" if it did not say."""
    with suppress(OSError):
        return read_regular(place / "INSTALLER", 100).decode("utf-8", "replace").strip()
    return ""


def wheel_tags(place: Path) -> list[str]:
    """The tags of its wheel, such as `cp311-cp311-manylinux_2_28_x86_64`; none without WHEEL."""
    try:
        content = read_regular(place / "WHEEL", _MAX_SMALL_FILE).decode("utf-8", "replace")
    except OSError:
        return []
    tags = re.findall(r"^Tag: (\S{1,200})$", content, re.MULTILINE)
    return [printable(tag) for tag in tags[:_MAX_TAGS]]


def listed_files(
    place: Path,
    allowance: Allowance | None = None,
    is_wanted: Callable[[str], bool] = lambda name: True,
) -> list[Listed]:
    """The files that a distribution lists, wherever they lie, and whose names are wanted; none
    without a list."""
    allowance = allowance or Allowance()
    with suppress(OSError):
        if is_conda(place):
            return list(_listed_by_conda(place, allowance, is_wanted))
        return list(_listed_in_record(place, allowance, is_wanted))
    with suppress(OSError):
        content = allowance.read(place / "installed-files.txt").decode("utf-8", "replace")
        lines = filter(is_wanted, content.splitlines()[:_MAX_FILES])
        return [Listed(path=_path(place, line), name=line) for line in lines]
    return []


def has_list(place: Path) -> bool:
    """Whether a distribution lists its files."""
    names = ("RECORD", "installed-files.txt")
    return is_conda(place) or any(is_file(place / name) for name in names)


def _listed_in_record(
    place: Path, allowance: Allowance, is_wanted: Callable[[str], bool]
) -> Iterator[Listed]:
    """Raises OSError."""
    content = allowance.read(place / "RECORD").decode("utf-8", "replace")
    rows = csv.reader(content.splitlines()[:_MAX_FILES])
    with suppress(csv.Error):
        for row in rows:
            if row and row[0] and len(row[0]) <= _MAX_PATH and is_wanted(row[0]):
                _, digest, size = (*row, "", "")[:3]
                yield Listed(
                    path=_path(place.parent, row[0]),
                    name=row[0],
                    hash=digest,
                    size=int(size) if size.isdecimal() and len(size) < 20 else None,
                )


def _listed_by_conda(
    place: Path, allowance: Allowance, is_wanted: Callable[[str], bool]
) -> Iterator[Listed]:
    """Raises OSError."""
    content = allowance.read(place)
    # Most packages have no shared object, and need not be parsed.
    files = parse_json(content).get("files") if b".so" in content else None
    for name in files[:_MAX_FILES] if isinstance(files, list) else ():
        if isinstance(name, str) and is_wanted(name):
            yield Listed(path=_path(place.parent.parent, name), name=name)


def _path(folder: Path, name: str) -> Path:
    """A listed file: the name may lead out of the folder, or begin with `./`."""
    return Path(os.path.normpath(folder / name))


def top_modules(place: Path) -> list[str]:
    """The modules of top_level.txt."""
    with suppress(OSError):
        content = read_regular(place / "top_level.txt", _MAX_SMALL_FILE).decode("utf-8", "replace")
        return [name for name in content.split()[:_MAX_MODULES] if re.fullmatch(r"\w{1,200}", name)]
    return []


class Origin(Record, kw_only=True):
    """Where pip took a distribution from (direct_url.json)."""

    folder: Path | None = None  #: the folder of the sources; None for another place
    is_editable: bool = False
    repository: str = ""  #: such as `git+https://...@revision`, as pip takes it


def origin_of(place: Path) -> Origin:
    origin = read_json(place / "direct_url.json", _MAX_SMALL_FILE)
    url, details, revision = origin.get("url"), origin.get("dir_info"), origin.get("vcs_info")
    if not isinstance(url, str) or not url.isprintable():
        return Origin()
    if isinstance(revision, dict) and isinstance(revision.get("commit_id"), str):
        return Origin(repository=f"{revision.get('vcs')}+{url}@{revision['commit_id']}")
    if isinstance(details, dict) and url.startswith("file://"):
        folder = Path(unquote(url.removeprefix("file://")))
        return Origin(folder=folder, is_editable=bool(details.get("editable")))
    return Origin()


def folder_of_link(link: Path) -> Path | None:
    """The source folder that an `.egg-link` names, which `setup.py develop` made."""
    with suppress(OSError, ValueError):
        return Path(read_regular(link, _MAX_PATH).decode("utf-8").partition("\n")[0].strip())
    return None


def eggs_of_link(link: Path, names: list[str], source: Path) -> list[Path]:
    """The `.egg-info` in the source folder of an `.egg-link`, whose files are `names`."""
    start = link.stem.replace("-", "_")
    return [
        source / name for name in names if name.startswith(start) and name.endswith(".egg-info")
    ]


def conda_places(folder: Path) -> list[Path]:
    """The metadata of the distributions in a folder `conda-meta`."""
    return [folder / name for name in list_names(folder) if name.endswith(".json")]
