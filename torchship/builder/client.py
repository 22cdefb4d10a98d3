"""Reads the record of the client whose sources are in a folder."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

from ..judge.project import Project
from .programs import BuildError


def read_project(root: Path) -> Project:
    """The `PROJECT` of the one package in `root` that has a `_project.py`.

    The package itself is not imported: its import would load binaries, which may not be there.
    Raises BuildError.
    """
    files = sorted(root.glob("*/_project.py"))
    if len(files) != 1:
        packages = ", ".join(file.parent.name for file in files) or "none"
        raise BuildError(
            f"{root} must hold one package with a _project.py, got {packages}; "
            "run the build in the folder of the project's pyproject.toml"
        )
    folder = files[0].parent
    package = ModuleType(folder.name)
    package.__path__ = [str(folder)]
    before = set(sys.modules)
    sys.modules[folder.name] = package
    try:
        project: Project = importlib.import_module(f"{folder.name}._project").PROJECT
    finally:
        for name in set(sys.modules) - before:
            if name.partition(".")[0] == folder.name:
                del sys.modules[name]
    return project
