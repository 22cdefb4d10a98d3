"""Where binaries are looked for: the package's own folder, then the user's build cache."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ..project import Project
from . import cache
from .records import Finding, TorchInstall
from .text import printable


def find_binaries(
    project: Project, torch: TorchInstall | None
) -> tuple[list[Path], Finding | None]:
    """The shared objects to judge, and why the build cache was not trusted, if it was not.

    CUDA kernels that the user built come first, then the package's own objects, then the others
    that the user built for this torch.
    """
    paths: list[Path] = []
    with suppress(OSError):
        # Not by `glob`, which compiles a pattern.
        files = sorted((project.folder / "lib").iterdir())
        paths += [path for path in files if path.suffix == ".so"]
    try:
        if torch is not None and cache.entry_folder(project, torch, "").parent.is_dir():
            sources = source_hash(project.folder)  # slower than the check of the folder above
            folder = cache.entry_folder(project, torch, sources or "")
            if sources is not None and folder.is_dir():
                built = cache.trusted_files(project, folder)
                # An import does not ask for the GPU, so it cannot tell which CUDA kernels have code
                # for it, and prefers those that the user built.
                device = [path for path in built if path.name.startswith("kernels-cuda")]
                paths = [*device, *paths, *(path for path in built if path not in device)]
    except cache.CacheError as error:
        what = printable(f"{error.path} {error.reason}")
        needed = "folders and files that only you can write: they are code that is executed"
        why = f"the build cache is refused: {what}"
        return paths, Finding.rejected("build cache", what, needed, why, printable(error.fix))
    except (OSError, RuntimeError):
        pass  # no home folder, or no permission to read it
    return paths, None


def source_hash(package: Path) -> str | None:
    """A hash of the C++ and CUDA sources beside a package, None when they are not shipped."""
    import hashlib

    root, digest = source_root(package), hashlib.sha256()
    if root is None:
        return None
    for path in sorted(root.glob("csrc/**/*")):
        if path.is_file():
            data = path.read_bytes()
            digest.update(bytes(path.relative_to(root)) + b"\0%d\0" % len(data) + data)
    return digest.hexdigest()[:16]


def source_root(package: Path) -> Path | None:
    """The folder with `csrc/`: the installed package or the checkout around it; else None."""
    for folder in (package, package.parent):
        if (folder / "csrc" / "project.h").is_file():
            return folder
    return None
