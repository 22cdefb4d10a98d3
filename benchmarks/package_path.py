"""Which `lltm_conda` is measured: the installed one, unless the source folder has binaries."""

import sys
import tempfile
from pathlib import Path

from .machine import ROOT


def source_has_binaries(root: Path = ROOT) -> bool:
    """Whether the repository's package can be loaded as it is."""
    return any((root / "lltm_conda" / "lib").glob("glue-*.so"))


def prefer_installed(root: Path = ROOT) -> None:
    """Keep sources without binaries from hiding an installed package.

    ``python -m benchmarks`` puts the repository first on the path. This moves it to the end, so
    that the sources are still found where nothing is installed, and say what to do.
    """
    if source_has_binaries(root):
        return
    own = [entry for entry in sys.path if Path(entry or ".").resolve() == root]
    sys.path[:] = [entry for entry in sys.path if entry not in own] + own


def working_directory(root: Path = ROOT) -> Path:
    """The folder in which a fresh process starts, so that it imports the same package."""
    return root if source_has_binaries(root) else Path(tempfile.gettempdir())
