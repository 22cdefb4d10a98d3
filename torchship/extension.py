"""Gives a torch extension a build record if one source includes <torch_extension.h>. In setup.py:

from PACKAGE.engine.extension import recorded
setup(ext_modules=[recorded(CppExtension("yours._C", ["yours.cpp"]), "yours", "1.0")])
"""

from typing import Any

from .builder.sources import source_root

#: The folder of torch_extension.h and TorchExtensionConfig.cmake.
FOLDER = source_root() / "engine"


def recorded(extension: Any, package: str, version: str) -> Any:
    """Makes an extension's build record name this package and version; returns the extension."""
    extension.include_dirs.append(str(FOLDER))
    names = {"TORCH_EXTENSION_PACKAGE": package, "TORCH_EXTENSION_VERSION": version}
    extension.define_macros += names.items()
    return extension
