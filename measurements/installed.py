"""Imports a package as it is installed, not from the sources beside the programs of this checkout.

`python -m` puts the checkout first on the path, and the package there may lack binaries.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType

CHECKOUT = Path(__file__).resolve().parents[1]


def import_installed(name: str) -> ModuleType:
    """The package of this name that is installed; that of the checkout if none is.

    Raises what the import raises, such as ImportError.
    """
    if name not in sys.modules:
        elsewhere = [entry for entry in sys.path if Path(entry or ".").resolve() != CHECKOUT]
        spec = PathFinder.find_spec(name, elsewhere)
        if spec is not None and spec.loader is not None:
            module = module_from_spec(spec)
            sys.modules[name] = module
            try:
                spec.loader.exec_module(module)
            except BaseException:
                del sys.modules[name]
                raise
    return importlib.import_module(name)
