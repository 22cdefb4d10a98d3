"""The table: whose an object is, and what is wrong with it, to what to do."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from ..records import BinaryRecord, Fix, Runtime
from . import of_files, of_packages, of_project


class Whose(Enum):
    """Who owns an object."""

    PROJECT = auto()  #: the project whose package was imported
    CACHE = auto()  #: a compiler's cache: its next use compiles the object again
    PACKAGE = auto()  #: another distribution
    NOBODY = auto()  #: no distribution that is known


class Wrong(Enum):
    """What is wrong with an object."""

    TORCH = auto()  #: it was built for another torch
    BUILD = auto()  #: it lacks symbols, libraries or flags, which another build would have
    MACHINE = auto()  #: it was built for another machine, or a newer system
    FILES = auto()  #: its files are damaged, missing, or those of another build


def whose(binary: BinaryRecord, runtime: Runtime) -> Whose:
    if runtime.is_ours(binary):
        return Whose.PROJECT
    if of_files.compiled_at_run_time(binary.path) is not None:
        return Whose.CACHE
    return Whose.PACKAGE if binary.owner is not None else Whose.NOBODY


def _build(binary: BinaryRecord, runtime: Runtime) -> Fix:
    return of_project.build(runtime.project)


def _compile_again(binary: BinaryRecord, runtime: Runtime) -> Fix:
    folder = of_files.compiled_at_run_time(binary.path)
    assert folder is not None
    return of_files.remove_folder(folder)


TABLE: dict[tuple[Whose, Wrong], Callable[[BinaryRecord, Runtime], Fix]] = {
    (Whose.PROJECT, Wrong.TORCH): lambda _, runtime: of_project.fit_torch(runtime),
    (Whose.PROJECT, Wrong.BUILD): _build,
    (Whose.PROJECT, Wrong.MACHINE): _build,
    (Whose.PROJECT, Wrong.FILES): lambda _, runtime: of_project.reinstall(runtime),
    (Whose.CACHE, Wrong.TORCH): _compile_again,
    (Whose.CACHE, Wrong.BUILD): _compile_again,
    (Whose.CACHE, Wrong.MACHINE): _compile_again,
    (Whose.CACHE, Wrong.FILES): _compile_again,
    (Whose.PACKAGE, Wrong.TORCH): of_packages.fit_package,
    (Whose.PACKAGE, Wrong.BUILD): of_packages.fit_package,
    (Whose.PACKAGE, Wrong.MACHINE): of_packages.compile_here,
    (Whose.PACKAGE, Wrong.FILES): of_packages.install_again,
    (Whose.NOBODY, Wrong.TORCH): of_packages.fit_package,
    (Whose.NOBODY, Wrong.BUILD): of_packages.fit_package,
    (Whose.NOBODY, Wrong.MACHINE): of_packages.compile_here,
    (Whose.NOBODY, Wrong.FILES): of_packages.install_again,
}


def fix_for(wrong: Wrong, binary: BinaryRecord, runtime: Runtime) -> Fix:
    """What to do about an object that does not work."""
    return TABLE[whose(binary, runtime), wrong](binary, runtime)
