"""Folders that a removed package left behind, which Python takes for an empty package."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...judge.linking.search import is_folder
from ...judge.target import Target
from ...judge.text import is_file, list_names
from .built_for import paired_releases
from .catalog import tops_of
from .installed import SITE_NAMES, installed, site_folders
from .known_packages import CAN_DO_WITHOUT, COMPILES, NEEDS
from .standards import normal

_OF_CODE = (".py", ".so")


def leftover(target: Target, name: str, *, is_missed: bool = False) -> Path | None:
    """The folder that Python takes for a module though it is no package any more; None if there is
    none: it has no `__init__.py`, and no distribution lists it.

    Such a folder may also be somebody's own, with parts that can be imported. So it must have been
    a package, or have nothing to import, unless it `is_missed`: the folder was seen to lack what a
    program wants of it.
    """
    folder = _taken_without_code(target, name)
    if folder is None or folder.parent.name not in SITE_NAMES:
        return None
    here = installed(target, site_folders(target)).values()
    if any(name in tops_of(target, one.place) for one in here):
        return None
    is_sure = is_missed or _was_package(folder) or _holds_nothing(folder)
    return folder if is_sure else None


def leftovers(target: Target) -> Iterator[Path]:
    """The folders of well-known packages that are left over, and of those that were packages."""
    sites = (site for site in map(Path, target.search_path()) if site.name in SITE_NAMES)
    names = dict.fromkeys(name for site in sites for name in _names_of_packages(site))
    for name in names:
        folder = leftover(target, name)
        if folder is not None:
            yield folder


def _names_of_packages(site: Path) -> list[str]:
    """The names in a folder that were packages."""
    return [name for name in list_names(site) if name.isidentifier() and _was_package(site / name)]


def _taken_without_code(target: Target, name: str) -> Path | None:
    """The only folder of a name on the path, if no entry has a module of it."""
    if not name.isidentifier():
        return None
    entries = [Path(entry) for entry in target.search_path() if entry]
    for entry in entries:
        files = [file for file in list_names(entry) if file.startswith(f"{name}.")]
        if is_file(entry / name / "__init__.py") or any(f.endswith(_OF_CODE) for f in files):
            return None
    folders = [entry / name for entry in entries if is_folder(target, entry / name)]
    return folders[0] if len(folders) == 1 else None  # several are the parts of one package


def _was_package(folder: Path) -> bool:
    """Whether a folder has the name of a package with an `__init__.py`, or what Python compiled of
    one."""
    if is_file(folder / "__init__.py"):
        return False
    name = normal(folder.name)
    if name == "torch" or name in {*NEEDS, *CAN_DO_WITHOUT, *COMPILES} or paired_releases(name):
        return True
    compiled = list_names(folder / "__pycache__")
    return any(file.startswith("__init__.") for file in compiled)


def _holds_nothing(folder: Path) -> bool:
    names = list_names(folder)
    has_modules = any(name.endswith(_OF_CODE) for name in names)
    return not has_modules and not any(is_file(folder / name / "__init__.py") for name in names)
