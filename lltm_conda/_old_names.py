"""The names that parts of the engine had before it was a package: `lltm_conda.compat` and so on.

They stay importable, submodules too, and are the very modules of `lltm_conda.engine`, not copies.
"""

from __future__ import annotations

from .engine import aliases

_PACKAGE = __name__.rpartition(".")[0]

for _name in ("compat", "builder", "local_build"):
    aliases.add(f"{_PACKAGE}.{_name}", f"{_PACKAGE}.engine.{_name}")
