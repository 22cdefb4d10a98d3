"""The distribution that owns a file.

Only the metadata in a site folder count, and only in one that nobody else may write to: what
lies in another parent folder, such as `/tmp`, may be anybody's, and would vouch for any object.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from ...judge.project import Record
from ...judge.records import NOTHING, Owner
from ...judge.target import Target, once
from ...judge.text import is_file, list_names
from .built_for import (
    has_sdist,
    minors_named_beside,
    minors_pinned,
    minors_released,
    paired_releases,
)
from .installed import SITE_NAMES
from .metadata import (
    conda_places,
    core_of,
    eggs_of_link,
    folder_of_link,
    has_list,
    installer_of,
    is_conda,
    listed_objects,
    origin_of,
    places_in,
    top_modules,
    wheel_tags,
)
from .standards import Python, fits_python

_MAX_SOURCE_FILES = 50_000
#: Of all source folders that one site folder names.
_MAX_ALL_SOURCE_FILES = 400_000
_OBJECT_SUFFIXES = (".so", ".dylib", ".pyd", ".dll")


class _Index(Record):
    """The shared objects that the metadata of a site folder list, wherever they lie, and the
    metadata that list each. Their paths are text, since a list may be long."""

    place_of: Mapping[str, Path]
    files_of: Mapping[Path, list[str]]


_EMPTY = _Index(place_of=NOTHING, files_of=NOTHING)


class _SourceFiles:
    """How many files of source folders may still be looked at, to index one site folder."""

    def __init__(self) -> None:
        self._left = _MAX_ALL_SOURCE_FILES

    def look_at(self, files: int) -> bool:
        """Count files; returns whether they are within the allowance."""
        self._left -= files
        return self._left >= 0


def find_owner(target: Target, path: Path, sites: Iterable[Path] = ()) -> Owner | None:
    """The distribution whose RECORD or conda metadata lists the file; None if none lists it. Raises
    BudgetSpentError.

    Site folders are the entries of the target's `sys.path`, those of `sites`, and the
    parents of the file that are named like one or are conda environments. A distribution that is
    installed from a source folder ("editable") owns the objects that `_built_in` finds in the
    folder.
    """
    place = _place_of(target, path, sites)
    return _read(target, place[0], place[1]) if place is not None else None


def metadata_of(target: Target, path: Path) -> Path | None:
    """The metadata folder of the distribution of pip's that owns a file; None if there is none."""
    place = _place_of(target, path, ())
    return place[0] if place is not None and place[0].suffix == ".dist-info" else None


def _place_of(target: Target, path: Path, sites: Iterable[Path]) -> tuple[Path, Path] | None:
    """The metadata that list a file, and the folder whose index holds them."""
    with suppress(OSError, RuntimeError, ValueError):
        path = Path(os.path.normpath(path.absolute()))
        searched = [*map(Path, target.search_path()), *sites]
        own_sites = [Path(os.path.normpath(entry)) for entry in searched if entry.is_absolute()]
        counting = {*own_sites, *_sites_above(path)}
        above = [folder for folder in path.parents if folder in counting]
        places = []
        for folder in dict.fromkeys((*above, *own_sites)):
            place = _index(target, folder).place_of.get(str(path))
            if place is not None:
                places.append((place, folder))
        return _installed_by_conda(places) if places else None
    return None


def _installed_by_conda(places: list[tuple[Path, Path]]) -> tuple[Path, Path]:
    """The metadata that count: conda's, if conda installed the package."""
    if installer_of(places[0][0]) == "conda":
        return next((pair for pair in places if is_conda(pair[0])), places[0])
    return places[0]


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


@once
def distributions(target: Target, folder: Path) -> Mapping[Path, list[Path]]:
    """The shared objects of every distribution in a folder, by the place of its metadata."""
    files_of = _index(target, folder).files_of
    return {place: [*map(Path, files)] for place, files in files_of.items()}


def is_shared_object_name(name: str) -> bool:
    """Whether a file is named like a shared object, as `x.so` and `libx.so.1.2` are."""
    stem = name.rstrip("0123456789.")
    version = name[len(stem) :]
    is_version = not version or (version.startswith(".") and len(version) > 1)
    return is_version and stem.endswith(_OBJECT_SUFFIXES)


def shared_objects(folder: Path) -> list[Path]:
    """The files under a folder that are named like shared objects."""
    objects = (
        Path(place, name)
        for place, _, files in os.walk(folder)
        for name in files
        if is_shared_object_name(name)
    )
    return sorted(filter(is_file, objects))


@once
def _index(target: Target, folder: Path) -> _Index:
    """The index of a folder; empty for one that is closed, or open for others to write. Of two
    metadata that list a file, those count that Python sees first, and conda's last."""
    with suppress(OSError, ValueError):
        if not _is_closed_to_others(target, folder):
            return _EMPTY
        place_of: dict[str, Path] = {}
        for path, place in _listed_objects(target, folder):
            if is_conda(place):
                place_of[path] = place
            else:
                place_of.setdefault(path, place)
        files_of: dict[Path, list[str]] = {}
        for path, place in place_of.items():
            files_of.setdefault(place, []).append(path)
        return _Index(place_of=place_of, files_of=files_of)
    return _EMPTY


def _listed_objects(target: Target, folder: Path) -> Iterator[tuple[str, Path]]:
    """(path, metadata) of each shared object that a site folder's metadata list."""
    sources = _SourceFiles()
    for place in places_in(folder):
        if _is_closed_to_others(target, place):
            yield from ((path, place) for path in _objects_of(target, place, sources))
    names = list_names(folder)
    for name in names:
        if name.endswith(".egg-link"):  # made by `setup.py develop`
            yield from _objects_of_egg_link(target, folder / name, sources)
    if "EGG-INFO" in names:  # the folder is an egg, which easy_install put on the path
        yield from ((path, folder / "EGG-INFO") for path in _built_in(folder, sources))
    if "conda-meta" in names and _is_closed_to_others(target, folder / "conda-meta"):
        for place in conda_places(folder / "conda-meta"):
            yield from ((path, place) for path in _objects_of(target, place, sources))


def _objects_of(target: Target, place: Path, sources: _SourceFiles) -> Iterator[str]:
    """The shared objects of a distribution."""
    yield from listed_objects(target, place, is_shared_object_name)
    if is_conda(place):
        return
    origin = origin_of(target, place)
    if origin.is_editable and origin.folder is not None:
        yield from _built_in(origin.folder, sources)
    if place.suffix == ".egg-info" and not has_list(place):  # as distributors leave it
        for module in top_modules(target, place):
            yield from _built_in(place.parent / module, sources)


def _is_closed_to_others(target: Target, folder: Path) -> bool:
    """Whether nobody else may write to a folder, and so say anything in it.

    A site folder of the target, and a folder of metadata in it, may be open to a group, as
    shared conda environments are: whatever the group puts there is executed anyway.
    """
    with suppress(OSError):
        status = folder.stat()
        if status.st_mode & stat.S_IWOTH:
            return False
        if not status.st_mode & stat.S_IWGRP:
            return True
        own = {Path(os.path.normpath(name)) for name in target.own_folders()}
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


def _objects_of_egg_link(
    target: Target, link: Path, sources: _SourceFiles
) -> Iterator[tuple[str, Path]]:
    source = folder_of_link(target, link)
    if source is None:
        return
    names = list_names(source) if sources.look_at(0) else []
    if not sources.look_at(len(names)):
        return
    for place in eggs_of_link(link, names, source):
        yield from ((path, place) for path in _built_in(source, sources))


def _built_in(source: Path, sources: _SourceFiles) -> Iterator[str]:
    """A source folder's shared objects, except in build, dist, hidden and environment
    folders. At most 50,000 files are looked at, and no more than the allowance has."""
    if not sources.look_at(0):
        return
    files_left = _MAX_SOURCE_FILES
    with suppress(ValueError):  # a name with a zero byte
        for place, folders, files in os.walk(source):
            if "pyvenv.cfg" in files or "conda-meta" in folders:
                folders.clear()
                continue
            files_left -= len(files) + len(folders)
            is_allowed = sources.look_at(len(files) + len(folders))
            if files_left < 0 or not is_allowed:
                return
            folders[:] = [
                name for name in folders if name not in ("build", "dist") and name[0] != "."
            ]
            yield from (str(Path(place, name)) for name in files if is_shared_object_name(name))


@once
def _read(target: Target, place: Path, folder: Path) -> Owner | None:
    """The distribution of the metadata at `place`, which the index of `folder` holds; None if
    they cannot be read."""
    core = core_of(target, place)
    if core is None:
        return None
    releases = paired_releases(core.name)
    files = _index(target, folder).files_of.get(place, [])
    by_conda = is_conda(place)
    tags = () if by_conda else tuple(wheel_tags(target, place))
    python = Python.of_target(target)
    vouchers = [
        *minors_pinned(core, python, by_conda=by_conda),
        *minors_released(releases, core.name, core.version),
        *minors_named_beside(target, {os.path.dirname(file) for file in files}),  # noqa: PTH120
    ]
    return Owner(
        name=core.name,
        version=core.version,
        libraries={os.path.basename(file): Path(file) for file in files},  # noqa: PTH119
        built_for=tuple(vouchers),
        release_for=releases,
        channel="conda" if by_conda else "pip",
        has_sdist=has_sdist(core.name),
        source="" if by_conda else _source_of(target, place),
        wheel_tags=tags,
        is_for_another_python=bool(tags) and not any(fits_python(tag, python) for tag in tags),
    )


def _source_of(target: Target, place: Path) -> str:
    """Where pip took a distribution from: a folder that is still here, or a revision of a
    repository, as pip takes it; "" for another place."""
    origin = origin_of(target, place)
    if origin.folder is not None and origin.folder.is_dir():
        return str(origin.folder)
    return origin.repository
