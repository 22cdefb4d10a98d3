"""Reads what installers wrote beside a package: the one module that knows these files.

It knows METADATA and PKG-INFO, RECORD and installed-files.txt, WHEEL, `.egg-link`,
direct_url.json and conda-meta. A place is the folder or the file of a distribution's metadata,
such as `site-packages/alpha-1.0.dist-info` or `conda-meta/alpha-1.0-0.json`. Nothing is raised
for a file that is missing or malformed: what cannot be read is not there. Every reading asks the
budget of the run, and raises BudgetSpentError.
"""

from __future__ import annotations

import csv
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from email.parser import HeaderParser
from itertools import groupby
from pathlib import Path
from urllib.parse import unquote

from ...judge.project import Record
from ...judge.target import Target, once
from ...judge.text import is_file, list_names, parse_json, printable, read_json, read_regular

_SUFFIXES = (".dist-info", ".egg-info")
_IN_DATA = re.compile(r"[^/]+\.data/(?:purelib|platlib)/")
#: Of memory that a line of a list takes, or a path in it.
_BYTES_OF_LINE = 200


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


def _read(target: Target, path: Path) -> str:
    """The text of a file. Raises OSError."""
    return read_regular(path, budget=target.budget).decode("utf-8", "replace")


def _read_lines(target: Target, path: Path) -> list[str]:
    """The lines of a list of files. Raises OSError."""
    content = _read(target, path)
    target.budget.take(content.count("\n") * _BYTES_OF_LINE)
    return content.splitlines()


def places_in(folder: Path) -> list[Path]:
    """The metadata of pip's distributions in a folder, in the order in which Python sees them."""
    try:
        names = os.listdir(folder)  # noqa: PTH208  # importlib.metadata takes this order, too
    except (OSError, ValueError):
        return []
    return [folder / name for name in names if name.endswith(_SUFFIXES)]


def is_conda(place: Path) -> bool:
    return place.suffix == ".json"


def core_of(target: Target, place: Path) -> Core | None:
    """The name, version and requirements; None where there is no name."""
    if is_conda(place):
        return _core_of_conda(target, place)
    for file in (place / "METADATA", place / "PKG-INFO", place):
        with suppress(OSError, ValueError):
            status = file.stat()
            if stat.S_ISREG(status.st_mode):
                return _read_core(target, file, place, (status.st_mtime_ns, status.st_size))
    return None


@once
def _read_core(target: Target, file: Path, place: Path, _written: tuple[int, int]) -> Core | None:
    """The core metadata in a file that was written at that time. Raises OSError."""
    content = _read(target, file)
    head = content.replace("\r\n", "\n").partition("\n\n")[0]
    fields = HeaderParser().parsestr(head, headersonly=True)
    name = _one_line(fields["Name"])
    if not name:
        return None
    needs = tuple(_one_line(line) for line in fields.get_all("Requires-Dist", []))
    return Core(
        name=name,
        version=_one_line(fields["Version"]),
        needs=needs or tuple(_needs_of_egg(target, place)),
        requires_python=_one_line(fields["Requires-Python"]),
    )


def _one_line(value: object) -> str:
    """A header's value, which may be folded over several lines."""
    return printable(" ".join(str(value or "").split()))


def _needs_of_egg(target: Target, place: Path) -> Iterator[str]:
    """The requirements of an egg: in sections such as `[extra:marker]`."""
    content = ""
    with suppress(OSError):
        content = _read(target, place / "requires.txt")
    section = ""
    for line in map(str.strip, content.splitlines()):
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            extra, _, marker = section.partition(":")
            of_extra = f'extra == "{extra}"' if extra else ""
            condition = f"({marker}) and {of_extra}" if marker and extra else marker or of_extra
            yield printable(f"{line} ; {condition}" if condition else line)


def _core_of_conda(target: Target, place: Path) -> Core | None:
    package = read_json(place, target.budget)
    name = package.get("name")
    if not isinstance(name, str):
        return None
    depends = package.get("depends")
    needs = [need for need in depends if isinstance(need, str)] if isinstance(depends, list) else []
    return Core(
        name=printable(name),
        version=printable(str(package.get("version", ""))),
        needs=tuple(map(printable, needs)),
    )


def installer_of(place: Path) -> str:
    """The tool that installed a distribution; "" if it did not say."""
    with suppress(OSError):
        return read_regular(place / "INSTALLER", 100).decode("utf-8", "replace").strip()
    return ""


def wheel_tags(target: Target, place: Path) -> list[str]:
    """The tags of its wheel, such as `cp311-cp311-manylinux_2_28_x86_64`; none without WHEEL."""
    try:
        content = _read(target, place / "WHEEL")
    except OSError:
        return []
    tags = re.findall(r"^Tag: (\S{1,200})$", content, re.MULTILINE)
    return [printable(tag) for tag in tags]


def listed_files(
    target: Target,
    place: Path,
    is_wanted: Callable[[str], bool] = lambda name: True,
) -> list[Listed]:
    """The files that a distribution lists, wherever they lie, and whose names are wanted; none
    without a list."""
    with suppress(OSError):
        if is_conda(place):
            return list(_listed_by_conda(target, place, is_wanted))
        return list(_listed_in_record(target, place, is_wanted))
    with suppress(OSError):
        lines = filter(is_wanted, _read_lines(target, place / "installed-files.txt"))
        return [Listed(path=_path(place, line), name=line) for line in lines]
    return []


def listed_objects(target: Target, place: Path, is_wanted: Callable[[str], bool]) -> list[str]:
    """The files that a distribution lists and whose names are wanted, as whole paths in text: a
    list may have a hundred thousand, of which few become paths."""
    with suppress(OSError):
        if is_conda(place):
            names = filter(is_wanted, _names_of_conda(target, place))
            return [_joined(place.parent.parent, name) for name in names]
        rows = _rows_of_record(target, place)
        return [_joined(place.parent, row[0]) for row in rows if is_wanted(row[0])]
    with suppress(OSError):
        lines = filter(is_wanted, _read_lines(target, place / "installed-files.txt"))
        return [_joined(place, line) for line in lines]
    return []


@once
def listed_names(target: Target, place: Path) -> tuple[str, ...]:
    """The files that a distribution lists, as they are listed, which costs less than paths."""
    with suppress(OSError):
        if is_conda(place):
            return tuple(_names_of_conda(target, place))
        return tuple(row[0] for row in _rows_of_record(target, place))
    with suppress(OSError):
        return tuple(_read_lines(target, place / "installed-files.txt"))
    return ()


def is_only_unpacked(target: Target, place: Path) -> bool:
    """Whether a wheel was unpacked and not installed: its `.data` folder has modules."""
    return any(map(_IN_DATA.match, listed_names(target, place)))


def has_list(place: Path) -> bool:
    """Whether a distribution lists its files."""
    names = ("RECORD", "installed-files.txt")
    return is_conda(place) or any(is_file(place / name) for name in names)


def _listed_in_record(
    target: Target, place: Path, is_wanted: Callable[[str], bool]
) -> Iterator[Listed]:
    """Raises OSError."""
    for row in _rows_of_record(target, place):
        if is_wanted(row[0]):
            _, digest, size = (*row, "", "")[:3]
            yield Listed(
                path=_path(place.parent, row[0]),
                name=row[0],
                hash=digest,
                size=int(size) if size.isdecimal() and len(size) < 20 else None,
            )


def _rows_of_record(target: Target, place: Path) -> Iterator[list[str]]:
    """The rows that name a file. Raises OSError."""
    lines = _read_lines(target, place / "RECORD")
    rows = csv.reader(line for line, _ in groupby(lines))  # the same line again tells nothing
    with suppress(csv.Error):
        yield from (row for row in rows if row and row[0])


def _listed_by_conda(
    target: Target, place: Path, is_wanted: Callable[[str], bool]
) -> Iterator[Listed]:
    """Raises OSError."""
    for name in filter(is_wanted, _names_of_conda(target, place)):
        yield Listed(path=_path(place.parent.parent, name), name=name)


def _names_of_conda(target: Target, place: Path) -> list[str]:
    """Raises OSError."""
    content = read_regular(place, budget=target.budget)
    # Most packages have no shared object, and need not be parsed.
    files = parse_json(content, target.budget).get("files") if b".so" in content else None
    return [name for name in files if isinstance(name, str)] if isinstance(files, list) else []


def _path(folder: Path, name: str) -> Path:
    """A listed file: the name may lead out of the folder, or begin with `./`."""
    return Path(_joined(folder, name))


def _joined(folder: Path, name: str) -> str:
    return os.path.normpath(os.path.join(folder, name))  # noqa: PTH118


def top_modules(target: Target, place: Path) -> list[str]:
    """The modules of top_level.txt."""
    with suppress(OSError):
        names = _read(target, place / "top_level.txt").split()
        return [name for name in names if re.fullmatch(r"\w{1,200}", name)]
    return []


class Origin(Record, kw_only=True):
    """Where pip took a distribution from (direct_url.json)."""

    folder: Path | None = None  #: the folder of the sources; None for another place
    is_editable: bool = False
    repository: str = ""  #: such as `git+https://...@revision`, as pip takes it


def origin_of(target: Target, place: Path) -> Origin:
    origin = read_json(place / "direct_url.json", target.budget)
    url, details, revision = origin.get("url"), origin.get("dir_info"), origin.get("vcs_info")
    if not isinstance(url, str) or not url.isprintable():
        return Origin()
    if isinstance(revision, dict) and isinstance(revision.get("commit_id"), str):
        return Origin(repository=f"{revision.get('vcs')}+{url}@{revision['commit_id']}")
    if isinstance(details, dict) and url.startswith("file://"):
        folder = Path(unquote(url.removeprefix("file://")))
        return Origin(folder=folder, is_editable=bool(details.get("editable")))
    return Origin()


def folder_of_link(target: Target, link: Path) -> Path | None:
    """The source folder that an `.egg-link` names, which `setup.py develop` made."""
    with suppress(OSError, ValueError):
        return Path(_read(target, link).partition("\n")[0].strip())
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
