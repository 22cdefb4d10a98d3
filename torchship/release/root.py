"""Finds the folder of the project that a command is for."""

import os
from pathlib import Path

from . import ReleaseError

MATRIX_NAME = "build_matrix.yaml"
# Names the project's folder to the processes that a command starts in other folders.
PROJECT_VARIABLE = "RELEASE_PROJECT"


# The folder in which an `import torchship` finds this one; `start` may have made it.
IMPORT_PATH = Path(__file__).absolute().parents[2]


def find_root(folder: Path | None = None) -> Path:
    """The project's folder, as an absolute path without links.

    It is `folder`, else what the variable RELEASE_PROJECT names, else the nearest folder with a
    build_matrix.yaml, from the current one upwards. Raises ReleaseError if there is none.
    """
    if folder is None and os.environ.get(PROJECT_VARIABLE):
        folder = Path(os.environ[PROJECT_VARIABLE])
    if folder is not None:
        if not (folder / MATRIX_NAME).is_file():
            raise ReleaseError(
                f"{folder} is not a project: it has no {MATRIX_NAME}; name the folder that has one"
            )
        return folder.resolve()
    current = Path.cwd()
    for candidate in (current, *current.parents):
        if (candidate / MATRIX_NAME).is_file():
            return candidate
    raise ReleaseError(
        f"{current} is in no project: neither it nor a folder above has a {MATRIX_NAME}; "
        "change to a project's folder, name it with --project, or make one: torchship new NAME"
    )
