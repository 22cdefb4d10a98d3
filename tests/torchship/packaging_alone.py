"""A folder that holds the package `packaging` alone, for processes without site-packages."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

import packaging


@cache
def packaging_alone() -> str:
    folder = Path(tempfile.mkdtemp(prefix="packaging-alone-"))
    atexit.register(shutil.rmtree, folder)
    folder.chmod(0o755)  # tests run the doctor as other users, too
    shutil.copytree(Path(packaging.__file__).parent, folder / "packaging")
    return str(folder)
