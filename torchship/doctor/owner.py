"""Probe: the distribution that owns a file, and the torch that the distribution names.

Only the metadata in a site folder counts, and only in one that nobody else may write to:
what lies in another parent folder, such as `/tmp`, may be anybody's, and would vouch for
any object.
"""

import grp
import operator
import os
import pwd
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from urllib.parse import unquote

from ..judge import interpreter
from ..judge.named_torch import Minor
from ..judge.project import Record
from ..judge.records import NOTHING, Owner, parse_minor, parse_version
from ..judge.text import (
    is_file,
    list_names,
    parse_json,
    printable,
    read_json,
    read_regular,
    read_table,
)
from .wheel_tags import wheel_tags

_PAIRS = "pairs.json"
_MAX_METADATA = 1 << 20
_MAX_RECORD = 8 << 20
_MAX_ORIGIN = 1 << 16
#: Of all lists of files in one folder, in bytes. An environment of 500 packages has about 10
#: MB of RECORDs, or 60 MB of conda metadata.
_MAX_RECORDS = 128 << 20
_MAX_DISTRIBUTIONS = 10_000
_MAX_OBJECTS = 20_000
_MAX_FOLDERS = 1000
_MAX_SOURCE_FILES = 50_000
#: Of all source folders that one site folder names.
_MAX_ALL_SOURCE_FILES = 400_000
_MAX_PINS = 100
_MAX_MODULES = 100
_MAX_PIN = 1000
_MAX_PATH = 4096
_MAX_VERSION_FILES = 100
#: In all folders of a distribution; a RECORD may name one folder in a thousand ways.
_MAX_NAMES_BESIDE = 50_000
_MAX_VERSION_FILE = 1 << 16
SITE_NAMES = ("site-packages", "dist-packages")
_OBJECT_SUFFIXES = (".so", ".dylib", ".pyd", ".dll")
#: More minors of torch 1 and 2 than there will be; (0, 0) stands for older torch, (9, 0) for newer.
_MINORS = [(0, 0), *((major, minor) for major in (1, 2) for minor in range(100)), (9, 0)]
_SIGNS = {
    ">=": operator.ge, "<=": operator.le, "==": operator.eq, "!=": operator.ne,
    "~=": operator.eq, ">": operator.ge, "<": operator.lt,
}  # fmt: skip


class _Index(Record):
    """The shared objects of a site folder: the metadata that lists each, and the reverse. A
    name is relative to the folder, and absolute for an object of a source folder
    ("editable")."""

    place_of: Mapping[str, Path]
    names_of: Mapping[Path, list[str]]


_EMPTY = _Index(place_of=NOTHING, names_of=NOTHING)


@dataclass
class _Allowance:
    """What may still be read to index one site folder."""

    bytes_left: int = _MAX_RECORDS  #: of the lists of files
    files_left: int = _MAX_ALL_SOURCE_FILES  #: in source folders

    def read(self, path: Path) -> bytes:
        """A list of files, or its start. Raises OSError."""
        content = read_regular(path, min(_MAX_RECORD, self.bytes_left))
        self.bytes_left -= len(content)
        return content

    def look_at(self, files: int) -> bool:
        """Count files of a source folder; returns whether they are within the allowance."""
        self.files_left -= files
        return self.files_left >= 0


def find_owner(path: Path, sites: Iterable[Path] = ()) -> Owner | None:
    """The distribution whose RECORD or conda metadata lists the file; None if none lists it.

    Site folders are the entries of the judged Python's `sys.path`, those of `sites`, and the
    parents of the file that are named like one or are conda environments. A distribution that is
    installed from a source folder ("editable") owns the objects that `_built_in` finds in the
    folder.
    """
    with suppress(OSError, RuntimeError, ValueError):
        path = Path(os.path.normpath(path.absolute()))
        searched = [*map(Path, interpreter.search_path()), *sites]
        own_sites = [Path(os.path.normpath(entry)) for entry in searched if entry.is_absolute()]
        counting = {*own_sites, *_sites_above(path)}
        above = [folder for folder in path.parents if folder in counting]
        names = [(folder, path.relative_to(folder).as_posix()) for folder in above]
        names += [(folder, str(path)) for folder in own_sites]  # of a source folder
        places = []
        for folder, name in names:
            place = _index(folder).place_of.get(name)
            if place is not None:
                places.append((place, folder))
        return _read(*_installed_by_conda(places)) if places else None
    return None


def metadata_of(path: Path) -> Path | None:
    """The metadata folder of the distribution that owns a file in a site folder of pip's; None
    if there is none."""
    with suppress(OSError, RuntimeError, ValueError):
        for folder in path.absolute().parents:
            place = _index(folder).place_of.get(path.absolute().relative_to(folder).as_posix())
            if place is not None and place.suffix == ".dist-info":
                return place
    return None


def _sites_above(path: Path) -> Iterator[Path]:
    """The parents of a file that are site folders or conda environments by their names, and
    belong to root, to this user or to the owner of the file."""
    owners = {0, os.geteuid()}
    with suppress(OSError):
        owners.add(path.lstat().st_uid)
    for folder in path.parents:
        metadata = folder if folder.name in SITE_NAMES else folder / "conda-meta"
        with suppress(OSError):
            if stat.S_ISDIR(metadata.stat().st_mode) and _belongs_to(owners, folder, metadata):
                yield folder


def _belongs_to(owners: set[int], *folders: Path) -> bool:
    return all(folder.stat().st_uid in owners for folder in folders)


def _installed_by_conda(places: list[tuple[Path, Path]]) -> tuple[Path, Path]:
    """The metadata that counts: conda's, if conda installed the package."""
    installer = b""
    with suppress(OSError):
        installer = read_regular(places[0][0] / "INSTALLER", 100).strip()
    if installer == b"conda":
        return next((pair for pair in places if pair[0].suffix == ".json"), places[0])
    return places[0]


def distributions(folder: Path) -> Mapping[Path, list[Path]]:
    """The shared objects of every distribution in a folder, by the place of its metadata."""
    return {
        place: [folder / name for name in names] for place, names in _index(folder).names_of.items()
    }


def is_shared_object_name(name: str) -> bool:
    """Whether a file is named like a shared object, as `x.so` and `libx.so.1.2` are."""
    stem = name.rstrip("0123456789.")
    version = name[len(stem) :]
    is_version = not version or (version.startswith(".") and len(version) > 1)
    return is_version and stem.endswith(_OBJECT_SUFFIXES)


def shared_objects(folder: Path) -> list[Path]:
    """The files under a folder that are named like shared objects."""
    objects = []
    for place, _, files in os.walk(folder):
        for name in files:
            path = Path(place, name)
            if is_shared_object_name(name) and is_file(path):
                objects.append(path)
    return sorted(objects)


@cache
def _index(folder: Path) -> _Index:
    """The index of a folder; empty for one that is closed, or open for others to write."""
    with suppress(OSError, ValueError):
        if not _is_closed_to_others(folder):
            return _EMPTY
        place_of: dict[str, Path] = {}
        for name, place in _listed_objects(folder):
            place_of[name] = place
        names_of: dict[Path, list[str]] = {}
        for name, place in place_of.items():
            names_of.setdefault(place, []).append(name)
        return _Index(place_of=place_of, names_of=names_of)
    return _EMPTY


def _listed_objects(folder: Path) -> Iterator[tuple[str, Path]]:
    """(name, metadata) of each shared object that a site folder's metadata lists."""
    entries = list_names(folder)
    allowance = _Allowance()
    infos = [folder / name for name in entries if name.endswith(".dist-info")]
    for place in infos[:_MAX_DISTRIBUTIONS]:
        if not _is_closed_to_others(place):
            continue
        with suppress(OSError):
            names = islice(_objects_in_record(allowance.read(place / "RECORD")), _MAX_OBJECTS)
            yield from ((name, place) for name in names)
        source = _source_of_editable(place)
        if source is not None:
            yield from ((str(path), place) for path in _built_in(source, allowance))
    for name in entries:
        if name.endswith(".egg-link"):  # made by `setup.py develop`
            yield from _objects_of_egg_link(folder / name, allowance)
        elif name.endswith(".egg-info"):  # made by `setup.py install`, and by distributors
            objects = _objects_of_egg_info(folder, name, allowance)
            yield from ((inner, folder / name) for inner in objects)
    if "EGG-INFO" in entries:  # the folder is an egg, which easy_install put on the path
        for path in _built_in(folder, allowance):
            yield path.relative_to(folder).as_posix(), folder / "EGG-INFO"
    if "conda-meta" in entries and _is_closed_to_others(folder / "conda-meta"):
        yield from _objects_of_conda(folder / "conda-meta", allowance)


def _is_closed_to_others(folder: Path) -> bool:
    """Whether nobody else may write to a folder, and so say anything in it.

    A site folder of the judged Python, and a folder of metadata in it, may be open to a group, as
    shared conda environments are: whatever the group puts there is executed anyway.
    """
    with suppress(OSError):
        status = folder.stat()
        if status.st_mode & stat.S_IWOTH:
            return False
        if not status.st_mode & stat.S_IWGRP:
            return True
        own = {Path(os.path.normpath(name)) for name in interpreter.own_folders()}
        return folder in own or folder.parent in own or _is_private(status.st_gid, status.st_uid)
    return False


def _is_private(group: int, owner: int) -> bool:
    """Whether a group is that of a user alone, of a folder's owner or of root.

    Such a group has the user's name and no other member. A group or a user that this
    machine does not know may be anybody.
    """
    with suppress(KeyError):
        entry = grp.getgrgid(group)
        names = {pwd.getpwuid(user).pw_name for user in (owner, 0)}
        return entry.gr_name in names and {*entry.gr_mem} <= {entry.gr_name, "root"}
    return False


def _objects_in_record(record: bytes) -> Iterator[str]:
    """The shared objects that a RECORD lists, each with its hash and size in one line."""
    for line in record.splitlines():
        name, separator, _ = line.lstrip(b'"').partition(b'"' if line[:1] == b'"' else b",")
        if separator and len(name) <= _MAX_PATH:
            decoded = name.decode("utf-8", "replace")
            if is_shared_object_name(decoded):
                yield decoded


def _source_of(place: Path) -> str:
    """Where pip took a distribution from: a folder that is still here, or a revision of a
    repository, as pip takes it; "" for another place."""
    origin = read_json(place / "direct_url.json", _MAX_ORIGIN)
    url = origin.get("url")
    if not isinstance(url, str) or not url.isprintable():
        return ""
    revision = origin.get("vcs_info")
    if isinstance(revision, dict) and isinstance(revision.get("commit_id"), str):
        return f"{revision.get('vcs')}+{url}@{revision['commit_id']}"
    if isinstance(origin.get("dir_info"), dict) and url.startswith("file://"):
        folder = unquote(url.removeprefix("file://"))
        return folder if Path(folder).is_dir() else ""
    return ""


def _source_of_editable(place: Path) -> Path | None:
    """The source folder of a distribution that is installed from it; None for other ones."""
    origin = read_json(place / "direct_url.json", _MAX_ORIGIN)
    details = origin.get("dir_info")
    url = origin.get("url")
    if isinstance(details, dict) and details.get("editable") and isinstance(url, str):
        return Path(unquote(url.removeprefix("file://")))
    return None


def _objects_of_egg_link(link: Path, allowance: _Allowance) -> Iterator[tuple[str, Path]]:
    with suppress(OSError, ValueError):
        first_line = read_regular(link, _MAX_PATH).decode("utf-8").partition("\n")[0]
        source = Path(first_line)
        start = link.stem.replace("-", "_")
        names = list_names(source) if allowance.look_at(0) else []
        if not allowance.look_at(len(names)):
            return
        for name in names:
            if name.startswith(start) and name.endswith(".egg-info"):
                objects = _built_in(source, allowance)
                yield from ((str(path), source / name) for path in objects)


def _objects_of_egg_info(folder: Path, name: str, allowance: _Allowance) -> Iterator[str]:
    """The shared objects of a distribution without a RECORD, relative to its site folder."""
    place = folder / name
    if not _is_closed_to_others(place):
        return
    with suppress(OSError):
        for line in allowance.read(place / "installed-files.txt").decode("utf-8").splitlines():
            inner = os.path.normpath(f"{name}/{line}")
            if is_shared_object_name(inner) and not inner.startswith((".", "/")):
                yield inner
        return
    with suppress(OSError, UnicodeDecodeError):
        modules = allowance.read(place / "top_level.txt").decode("utf-8").split()
        for module in modules[:_MAX_MODULES]:
            if "/" not in module and module not in (".", ".."):
                for path in _built_in(folder / module, allowance):
                    yield path.relative_to(folder).as_posix()


def _objects_of_conda(folder: Path, allowance: _Allowance) -> Iterator[tuple[str, Path]]:
    names = [name for name in list_names(folder) if name.endswith(".json")]
    for name in names[:_MAX_DISTRIBUTIONS]:
        content = b""
        with suppress(OSError):
            content = allowance.read(folder / name)
        # Most packages have no shared object, and need not be parsed.
        files = parse_json(content).get("files") if b".so" in content else None
        if isinstance(files, list):
            objects = (file for file in files if isinstance(file, str) and ".so" in file)
            yield from ((file, folder / name) for file in objects)


def _built_in(source: Path, allowance: _Allowance) -> Iterator[Path]:
    """A source folder's shared objects, except in build, dist, hidden and environment
    folders. At most 50,000 files are looked at, and no more than the allowance has."""
    if not allowance.look_at(0):
        return
    files_left = _MAX_SOURCE_FILES
    with suppress(ValueError):  # a name with a zero byte
        for place, folders, files in os.walk(source):
            if "pyvenv.cfg" in files or "conda-meta" in folders:
                folders.clear()
                continue
            files_left -= len(files) + len(folders)
            is_allowed = allowance.look_at(len(files) + len(folders))
            if files_left < 0 or not is_allowed:
                return
            folders[:] = [
                name for name in folders if name not in ("build", "dist") and name[0] != "."
            ]
            yield from (Path(place, name) for name in files if is_shared_object_name(name))


@cache
def _read(place: Path, folder: Path) -> Owner | None:
    """The distribution of the metadata at `place`, with files in `folder`; None if unreadable."""
    with suppress(OSError, ValueError, KeyError, TypeError, StopIteration):
        is_conda = place.suffix == ".json"
        name, version, pins = _conda_facts(place) if is_conda else _wheel_facts(place)
        names = _index(folder).names_of.get(place, [])
        releases = paired_releases(name)
        files = [folder / inner for inner in names]
        vouchers = [
            *_minors_pinned(pins),
            *_minors_released(releases, name, version),
            *_named_by_files({file.parent for file in files}),
        ]
        return Owner(
            name=printable(name),
            version=printable(version),
            libraries={file.name: file for file in files},
            built_for=tuple(vouchers),
            release_for=releases,
            channel="conda" if is_conda else "pip",
            has_sdist=has_sdist(name),
            source="" if is_conda else _source_of(place),
            wheel_tags=() if is_conda else tuple(wheel_tags(place)),
        )
    return None


def _conda_facts(place: Path) -> tuple[str, str, list[str]]:
    """Name, version and requirements on torch in a file of conda-meta. Raises KeyError."""
    package = read_json(place)
    requirements = [need for need in package.get("depends", ()) if isinstance(need, str)]
    of_torch = [need for need in requirements if need.startswith(("pytorch ", "libtorch "))]
    pins = [need.partition(" ")[2] for need in of_torch]
    return str(package["name"]), str(package["version"]), pins


def _wheel_facts(place: Path) -> tuple[str, str, list[str]]:
    """Name, version and requirements on torch in a metadata folder. Raises StopIteration."""
    lines = metadata_lines(place)
    name = next(line.removeprefix("Name: ") for line in lines if line.startswith("Name: "))
    version = next(line.removeprefix("Version: ") for line in lines if line.startswith("Version: "))
    return name, version, torch_requirements(place)


def metadata_lines(place: Path) -> list[str]:
    """The header lines of METADATA or PKG-INFO, up to the first empty line."""
    name = "PKG-INFO" if place.suffix == ".egg-info" or place.name == "EGG-INFO" else "METADATA"
    # distutils wrote a file of this name instead of a folder.
    path = place if is_file(place) else place / name
    content = read_regular(path, _MAX_METADATA).decode("utf-8", "replace")
    return content.replace("\r\n", "\n").partition("\n\n")[0].split("\n")


def required_by(place: Path) -> list[str]:
    """The lines `Requires-Dist` in a metadata folder. Raises OSError."""
    start = "Requires-Dist: "
    return [line.removeprefix(start) for line in metadata_lines(place) if line.startswith(start)]


def torch_requirements(place: Path) -> list[str]:
    """The requirements on torch, such as `>=2.9`, in a metadata folder, without those of extras."""
    pins = []
    for line in metadata_lines(place):
        start, torch, rest = line.partition("Requires-Dist: torch")
        if start or not torch or re.match(r"[\w.-]", rest):
            continue
        pin, _, marker = rest.partition(";")
        if "extra" not in marker:
            pins.append(pin.strip(" "))
    return pins[:_MAX_PINS]


def _minors_pinned(pins: list[str]) -> Iterator[tuple[Minor, str]]:
    """Only a pin to one minor counts: `(==2.9.1)`, `<2.10,>=2.9` or conda's `2.9.* cuda*`."""
    for pin in pins[:_MAX_PINS]:
        admitted = list(islice((minor for minor in _MINORS if admits(pin, minor)), 2))
        if len(admitted) == 1:
            yield admitted[0], f"its metadata ({printable(pin.strip())})"


def _minors_released(
    releases: Mapping[Minor, str], name: str, version: str
) -> Iterator[tuple[Minor, str]]:
    for minor, versions in releases.items():
        if any(f"{version}.".startswith(f"{release}.") for release in versions.split()):
            yield minor, f"the list of releases ({printable(name)} {printable(version)})"


@lru_cache(maxsize=1024)
def _clauses(pin: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The comparisons of a requirement, each a sign and a version."""
    if len(pin) > _MAX_PIN:
        return ()
    explicit = re.sub(r"^[\s(]*(?=\d)", "==", pin)  # conda's `2.9.* cuda*`
    comparisons = re.findall(r"(>=|<=|==|!=|~=|>|<)\s*([\d.]+)", explicit)
    return tuple((sign, parse_version(number) or ()) for sign, number in comparisons)


def admits(pin: str, minor: Minor) -> bool:
    """Whether a requirement such as `>=2.9,<2.11` admits a minor of torch."""
    return all(_admits(sign, version, minor) for sign, version in _clauses(pin))


def _admits(sign: str, version: tuple[int, ...], minor: Minor) -> bool:
    if sign == "!=" and len(version) > 2:
        return True  # another patch of the same minor is admitted
    bound = version[:2]
    if sign == "~=" and len(version) < 3:
        sign = ">="  # ~=2.9 admits 2.10
    if sign == "<" and any(version[2:]):
        bound = (bound[0], bound[1] + 1)  # <2.9.1 admits 2.9.0
    return bool(_SIGNS[sign](minor, bound))


def _named_by_files(folders: set[Path]) -> Iterator[tuple[Minor, str]]:
    """The torch minors that a `*version*.py` or a `cpp_lib.json` beside the binaries names."""
    version = re.compile(r"""\b(?:py)?torch(?:_version)?["']?\s*[:=]\s*["'](\d+\.\d+)""")
    for file in islice(_version_files(folders), _MAX_VERSION_FILES):
        with suppress(OSError):
            content = read_regular(file, _MAX_VERSION_FILE).decode("utf-8", "replace")
            assigned = version.search(content)
            minor = parse_minor(assigned[1]) if assigned else None
            if minor:
                yield minor, f"its {printable(file.name)}"


def _version_files(folders: set[Path]) -> Iterator[Path]:
    names_left = _MAX_NAMES_BESIDE
    for folder in sorted(folders)[:_MAX_FOLDERS]:
        names = list_names(folder, names_left)
        names_left -= len(names)
        for name in names:
            if name == "cpp_lib.json" or ("version" in name and name.endswith(".py")):
                yield folder / name


def normal(name: str) -> str:
    """The normalized name of a distribution (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def paired_releases(distribution: str) -> Mapping[Minor, str]:
    """The releases of a distribution that go with each torch minor, the best one first."""
    return _pairs().get(normal(distribution), {})


def has_sdist(distribution: str) -> bool:
    """Whether the releases of a distribution on PyPI are known to hold sources that compile with
    torch and its tools alone."""
    return normal(distribution) in _with_sdists()


@cache
def _with_sdists() -> frozenset[str]:
    """The distributions for which `has_sdist` is true.

    The builds of flash-attn and others like it import packages that their metadata does not name,
    and take hours, so no test has carried out a command that compiles them.
    """
    names = read_table(__package__, _PAIRS).get("sdists", ())
    return frozenset(name for name in names if isinstance(name, str))


@cache
def _pairs() -> Mapping[str, Mapping[Minor, str]]:
    """The releases of each distribution that go with each torch minor, the best one first."""
    rows = read_table(__package__, _PAIRS).get("releases", {})
    return {n: {parse_minor(key) or (0, 0): row[key] for key in row} for n, row in rows.items()}
