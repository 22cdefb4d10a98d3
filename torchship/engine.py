"""The engine of a client, `PACKAGE.engine`: the parts of torchship that a client's package holds.

A wheel has a copy of them, and so has the package of a checkout once a build, an editable install
or `torchship build` was there. In a bare checkout, `PACKAGE.engine` is torchship itself.
"""

import shutil
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

_TORCHSHIP = Path(__file__).resolve().parent
#: The folders that run time and local builds need.
PARTS = ("builder", "include", "judge", "runtime")
#: The modules beside these folders: the one for the setup.py of other extensions.
MODULES = ("__init__", "extension")
#: In the folder of a copy: git takes the copy for no source of the project.
_IGNORED = "# Copied by a build; what git has here is __init__.py.\n/*\n!/__init__.py\n"


def copy_engine(package: Path) -> None:
    """Puts a copy of the engine into the folder of a client's package, instead of an older one.

    The package's own `engine/__init__.py` stays as it is.
    """
    target = package / "engine"
    target.mkdir(exist_ok=True)
    for part in PARTS:
        shutil.rmtree(target / part, ignore_errors=True)
        unwanted = shutil.ignore_patterns("__pycache__")
        shutil.copytree(_TORCHSHIP / part, target / part, ignore=unwanted)
    for name in MODULES:
        if name != "__init__":
            shutil.copyfile(_TORCHSHIP / f"{name}.py", target / f"{name}.py")
    (target / ".gitignore").write_text(_IGNORED, encoding="utf-8")


def stand_in(engine: str) -> None:
    """Makes torchship's own modules those of the package `engine`, which has no copy of them.

    So each module exists once. A module that needs torch is left out where there is no torch.
    """
    names = [name for name in MODULES if name != "__init__"]
    for part in PARTS:
        inside = walk_packages([str(_TORCHSHIP / part)], f"{part}.")
        names += [part, *(module.name for module in inside)]
    for name in names:
        with suppress(ModuleNotFoundError):
            module = import_module(f"{__package__}.{name}")
            sys.modules[f"{engine}.{name}"] = module
            if "." not in name:
                setattr(sys.modules[engine], name, module)
