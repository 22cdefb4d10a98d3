"""Gives a torch extension a build record if one source includes <torch_extension.h>. In setup.py:

from PACKAGE.engine.extension import recorded
setup(ext_modules=[recorded(CppExtension("yours._C", ["yours.cpp"]), "yours", "1.0")])
"""

from typing import Protocol, TypeVar

from .builder.sources import INCLUDE

#: The folder of torch_extension.h and TorchExtensionConfig.cmake.
FOLDER = INCLUDE


class Extension(Protocol):
    """What this module uses of setuptools' Extension, which CppExtension returns, too."""

    include_dirs: list[str]
    define_macros: list[tuple[str, str | None]]


AnyExtension = TypeVar("AnyExtension", bound=Extension)


def recorded(extension: AnyExtension, package: str, version: str) -> AnyExtension:
    """Makes an extension's build record name this package and version; returns the extension."""
    extension.include_dirs.append(str(FOLDER))
    extension.define_macros += [
        ("TORCH_EXTENSION_PACKAGE", package),
        ("TORCH_EXTENSION_VERSION", version),
    ]
    return extension
