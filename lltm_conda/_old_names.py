"""The names that parts of the engine had before it was a package: `lltm_conda.compat` and so on.

They stay importable, submodules too, and are the very modules of `lltm_conda.engine`, not copies.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_MOVED = ("compat", "builder", "jit", "loader", "local_build")
_PACKAGE = __name__.rpartition(".")[0]


class _OldNames(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, rest = fullname.partition(".")
        if package != _PACKAGE or rest.partition(".")[0] not in _MOVED:
            return None
        return ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(f"{_PACKAGE}.engine{spec.name.removeprefix(_PACKAGE)}")
        self._own = module.__spec__, getattr(module, "__loader__", None)
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has just written the old name's spec into the module.
        module.__spec__, module.__loader__ = self._own


def keep() -> None:
    """Let `import lltm_conda.compat` and the like find the modules of the engine."""
    if not any(isinstance(finder, _OldNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, _OldNames())
