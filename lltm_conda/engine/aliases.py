"""Second names of modules. An import by the second name gives the same module, not a copy."""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import ClassVar


class _Aliases(MetaPathFinder, Loader):
    names: ClassVar[dict[str, str]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        for alias, module in self.names.items():
            if fullname == alias or fullname.startswith(f"{alias}."):
                return ModuleSpec(fullname, self, loader_state=module + fullname[len(alias) :])
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(spec.loader_state)
        spec.loader_state = module.__spec__, getattr(module, "__loader__", None)
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has just replaced the module's own spec by that of the alias.
        assert module.__spec__ is not None
        module.__spec__, module.__loader__ = module.__spec__.loader_state


sys.meta_path.insert(0, _Aliases())


def add(alias: str, module: str) -> None:
    """Makes `import ALIAS` and `import ALIAS.x` find `MODULE` and `MODULE.x`."""
    _Aliases.names[alias] = module
