"""The shared objects that a run of the doctor judges: those of the environment, or named ones."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path

from ...judge.linking.search import is_folder
from ...judge.records import TorchInstall
from ...judge.target import Target
from ...judge.text import printable
from .archives import names_in
from .catalog import tops_of, with_module
from .installed import SITE_NAMES, installed, module_in, site_folders
from .leftover import leftover
from .owner import distributions, find_owner, shared_objects
from .standards import normal

#: The names of torch's own packages and of the binary packages that PyPI's torch requires.
TORCHS_OWN = re.compile(r"(torch|pytorch|libtorch|triton|nvidia[-_].*|cuda[-_].*)", re.IGNORECASE)


class UsageError(ValueError):
    """The user named a file, package or torch that cannot be found, read or judged."""


class NotHereError(UsageError):
    """The user named what is nothing in this environment."""

    def __init__(self, name: str, words: str) -> None:
        super().__init__(words)
        self.name = name


def wheels_among(names: Sequence[str]) -> list[str]:
    """The names that are wheels. Raises UsageError if only some are."""
    wheels = [name for name in names if name.endswith(".whl")]
    if wheels and len(wheels) < len(names):
        raise UsageError(
            f"{printable(wheels[0])[:500]} is a wheel, and other names are not: "
            "check wheels in a call of their own."
        )
    return wheels


def find_files(target: Target, names: list[str], torch: TorchInstall | None) -> Iterator[Path]:
    """The shared objects that the user names; by default all but those of torch's own packages.
    Those that another module of their name hides are among them.

    Raises UsageError.
    """
    owned = [
        files
        for site in site_folders(target)
        for files in distributions(target, site).values()
        if files
    ]
    if not names:
        yield from _installed_files(target, owned, torch)
    for name in names:
        yield from _named_files(target, name, owned)


def _installed_files(
    target: Target, owned: list[list[Path]], torch: TorchInstall | None
) -> Iterator[Path]:
    for files in owned:
        owner = find_owner(target, files[0])
        if owner is None or not TORCHS_OWN.fullmatch(owner.name):
            yield from files
    # Files that no distribution lists: somebody copied them, or ran `setup.py install`.
    listed = {file for files in owned for file in files}
    for site in site_folders(target):
        if site.name not in SITE_NAMES:
            continue
        for file in shared_objects(site):
            if not (file in listed or (torch and torch.root in file.parents)):
                yield file


def files_named(target: Target, name: str) -> list[Path]:
    """The shared objects of this name that distributions of the environment own."""
    return [
        file
        for site in site_folders(target)
        for files in distributions(target, site).values()
        for file in files
        if file.name == name
    ]


def exists(path: str) -> bool:
    # Before Python 3.14, Path.exists raises for a file in a folder that is closed to this user.
    return os.path.exists(path)  # noqa: PTH110


def is_installed(target: Target, name: str) -> bool:
    """Whether a package of this name is installed, with shared objects or without."""
    owned = (
        files for site in site_folders(target) for files in distributions(target, site).values()
    )
    if is_distribution(target, name) or any(_is_named(target, files, name) for files in owned):
        return True
    return is_module(target, name) or leftover(target, name) is not None


def is_distribution(target: Target, name: str) -> bool:
    """Whether the metadata of a distribution of this name is in the environment."""
    return normal(name) in installed(target, site_folders(target))


def is_module(target: Target, name: str) -> bool:
    """Whether a distribution of the environment has a module of this name, or its path has. One in
    a package that is there counts, for its import tells more than its absence."""
    here = installed(target, site_folders(target)).values()
    top = name.partition(".")[0]
    if any(with_module(target, here, one) or _place_of_module(target, one) for one in (name, top)):
        return True
    entries = [Path(entry) for entry in target.search_path() if entry]
    if name != top and any(is_folder(target, entry / top) for entry in entries):
        return True  # a folder without code is a package, too
    inside = (name for entry in entries for name in names_in(entry))
    return top.isidentifier() and any(one.startswith((f"{top}/", f"{top}.py")) for one in inside)


def _place_of_module(target: Target, name: str) -> Path | None:
    """The folder or file of a module on the path, which no distribution need list."""
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        return None
    *folders, last = parts
    entries = (Path(entry, *folders) for entry in target.search_path() if entry)
    return next(filter(None, (module_in(entry, last) for entry in entries)), None)


def _named_files(target: Target, name: str, owned: list[list[Path]]) -> list[Path]:
    """The shared objects of a package, else a file, or those of a folder."""
    files: list[Path] = []
    if os.sep not in name:
        files = [file for group in owned if _is_named(target, group, name) for file in group]
    if not files and os.path.isdir(name or "?"):  # noqa: PTH112  # see `exists`
        if not os.access(name, os.R_OK | os.X_OK):
            raise UsageError(f"{printable(name)} is not readable by this user")
        files = shared_objects(Path(name))
    elif not files and os.path.lexists(name):
        files = [Path(name)]
    if files or is_distribution(target, name):
        _refuse_other_spelling(target, name)
        return files
    place = _place_of_module(target, name)
    if place is not None:
        return shared_objects(place)
    if not is_module(target, name) and leftover(target, name) is None:
        raise NotHereError(name, _not_here(target, name))
    return files


def _not_here(target: Target, name: str) -> str:
    """That a name is nothing in this environment: which one that is, and the names near it."""
    how = target.python.found_by if target.python else ""
    here = installed(target, site_folders(target)).values()
    names = dict.fromkeys(one.name for one in here)
    names.update(dict.fromkeys(top for one in here for top in tops_of(target, one.place)))
    near = get_close_matches(name, names, n=3)
    return (
        f"{printable(name)[:500] or 'an empty name'} is neither a file nor a folder of shared "
        f"objects, nor a package of {printable(target.executable())} "
        f"({how or 'the Python that runs this'}). "
        + (f"Did you mean {' or '.join(near)}? " if near else "Check the name. ")
        + "Or name the Python that has it, as in --python /env/bin/python, or a whole path."
    )


def _refuse_other_spelling(target: Target, name: str) -> None:
    """Distributions are named alike in either case, and modules are not: `pyro` of pyro-ppl is not
    there where Pyro has a module `Pyro`. Raises UsageError."""
    here = installed(target, site_folders(target)).get(normal(name))
    if here is None:
        return
    modules = tops_of(target, here.place)
    meant = next((one for one in modules if one.lower() == name.lower()), name)
    if name in (here.name, meant) or _place_of_module(target, name) is not None:
        return
    raise UsageError(
        f"{here.name} {here.version} is installed here and has the module {meant}; there is no "
        f"module {name}. Name the module that is meant, or install what has {name}."
    )


def _is_named(target: Target, files: list[Path], name: str) -> bool:
    """Whether this is the name of the files' distribution, or of a part of one of their paths."""
    owner = find_owner(target, files[0])
    if owner is None:
        return False
    return normal(name) == normal(owner.name) or any(name in file.parts for file in files)
