"""Fixes: what is wrong with an object, and whose it is, to what mends it.

In come its `BinaryRecord`, a `Runtime` and what a rule has found; out goes a `Fix`: words for
people, and the command in them. For these words, and for nothing else, the rules' checks come to
read the system: `/etc/os-release`, a variable, the names in a folder.

Begin with `table.py`, which says what to do about an object of each owner. The modules `of_*` have
the fixes for each owner, `installers.py` the commands of pip and of conda, each with install,
reinstall and remove, and `kinds.py` the kinds of commands. `system_packages.py` knows which
packages of Debian and Ubuntu have a library or a part of Python.

Here the unhappy path begins: an import of a package that works makes no fix, so the first use of a
name imports the modules below.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .names import *  # noqa: F403
else:

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(import_module(".names", __name__), name)
