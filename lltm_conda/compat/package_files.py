"""Where binaries are looked for: the package's own folder, then the user's build cache."""

from __future__ import annotations

import contextlib
from pathlib import Path

from . import cache
from .records import REJECTED, Finding, TorchInstall
from .text import printable


def find_binaries(
    package: Path, torch: TorchInstall | None, version: str
) -> tuple[list[Path], Finding | None]:
    """The package's shared objects, then those that the user built for this torch.

    Args:
        package: the folder of the Python files.
        torch: for which torch local builds are wanted.
        version: the version of the Python files.

    Returns:
        The paths, and why the build cache was not trusted (None where it was, or where none is).
    """
    paths: list[Path] = []
    with contextlib.suppress(OSError):
        paths += sorted((package / "lib").glob("*.so"))
    if torch is None:
        return paths, None
    try:
        if (cache.root() / cache.torch_key(torch.version, torch.cuda, torch.cxx11_abi)).is_dir():
            paths += _built_here(package, torch, version)
    except cache.CacheError as error:
        return paths, Finding(
            "build cache",
            REJECTED,
            printable(f"{error.path} {error.reason}"),
            "folders and files that only you can write: they are code that is executed",
            printable(f"the build cache is refused: {error.path} {error.reason}"),
            printable(error.fix),
        )
    except (OSError, RuntimeError):
        pass  # no home folder, or no permission to look into it
    return paths, None


def _built_here(package: Path, torch: TorchInstall, version: str) -> tuple[Path, ...]:
    sources = source_hash(package)
    if sources is None:
        return ()
    folder = cache.entry_folder(torch, version, sources)
    return cache.trusted_files(folder) if folder.is_dir() else ()


def source_hash(package: Path) -> str | None:
    """The hash of the C++ and CUDA sources beside a package, None when they are not shipped."""
    root = source_root(package)
    if root is None:
        return None
    files = (path for path in (root / "csrc").rglob("*") if path.is_file())
    return cache.source_hash((str(path.relative_to(root)), path) for path in files)


def source_root(package: Path) -> Path | None:
    """What holds `csrc/`: the installed package itself, or the checkout round it; None if nothing
    does."""
    for folder in (package, package.parent):
        if (folder / "csrc" / "kernels").is_dir():
            return folder
    return None
