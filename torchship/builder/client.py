"""Reads the record of the client whose sources are in a folder."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

from ..judge import project as record
from ..judge.project import LAYOUTS, Project
from .programs import BuildError


def package_places(root: Path) -> tuple[Path, ...]:
    """The folders of a checkout in which its package may lie."""
    return (root, *(root / layout for layout in LAYOUTS))


def package_folder(root: Path, name: str) -> Path:
    """Where a checkout has its package, or would have it if there is none yet."""
    folders = [place / name for place in package_places(root) if (place / name).is_dir()]
    # A folder of the name may hold something else, such as the C++ sources.
    packages = (folder for folder in folders if (folder / "__init__.py").is_file())
    return next(packages, folders[0] if folders else root / name)


def find_package(root: Path) -> Path:
    """The folder of the one package of a checkout that has a `_project.py`; raises BuildError."""
    files = [file for place in package_places(root) for file in place.glob("*/_project.py")]
    if len(files) != 1:
        packages = ", ".join(sorted(file.parent.name for file in files)) or "none"
        raise BuildError(
            f"{root} must hold one package with a _project.py, got {packages}; "
            "run it in the folder of the project's pyproject.toml"
        )
    return files[0].parent


def read_project(root: Path) -> Project:
    """The `PROJECT` of the checkout's one package.

    The package itself is not imported: its import would load binaries, which may not be there.
    Raises BuildError.
    """
    folder = find_package(root)
    package = ModuleType(folder.name)
    package.__path__ = [str(folder)]
    loaded = {name: sys.modules.pop(name) for name in [*sys.modules] if _is_in(name, folder)}
    sys.modules[folder.name] = package
    # The class of this engine: the package's own may be missing, or that of another torchship.
    sys.modules[f"{folder.name}.engine.judge.project"] = record
    try:
        project: Project = importlib.import_module(f"{folder.name}._project").PROJECT
    finally:
        for name in [name for name in sys.modules if _is_in(name, folder)]:
            del sys.modules[name]
        sys.modules.update(loaded)
    return project


def _is_in(module: str, package: Path) -> bool:
    return module.partition(".")[0] == package.name
