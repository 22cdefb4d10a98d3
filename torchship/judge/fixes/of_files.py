"""The fixes for a file or a folder that is in the way, closed or left over."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from ..records import Fix
from ..text import quoted
from .kinds import Kind, command_alone, command_in_words


def open_path(path: Path) -> Fix:
    """Let this user read a file: open the first folder above it that is closed, else the file."""
    for folder in (*reversed(path.absolute().parents),):
        if not os.access(folder, os.X_OK):
            return command_alone(Kind.OPEN_FILE, f"chmod a+rx {quoted(folder)}")
    mode = "a+rx" if _is_folder(path) else "a+r"
    return command_alone(Kind.OPEN_FILE, f"chmod {mode} {quoted(path)}")


def _is_folder(path: Path) -> bool:
    with suppress(OSError):
        return path.is_dir()
    return False


def compiled_at_run_time(path: Path) -> Path | None:
    """The folder of one build in the cache of torch's or Triton's compiler; None elsewhere."""
    parts = path.parts
    for index, part in enumerate(parts[:-1]):
        inner = len(parts) - 1 - index
        if part == "torch_extensions" and inner > 2:  # then `py311_cu130`, and the name
            return Path(*parts[: index + 3])
        if part == ".triton" and parts[index + 1] == "cache" and inner > 3:
            return Path(*parts[: index + 3])
    variable = os.environ.get("TORCH_EXTENSIONS_DIR")
    if variable and Path(variable) in path.parents and path.parent != Path(variable):
        return Path(variable, path.relative_to(variable).parts[0])
    return None


def remove_folder(folder: Path) -> Fix:
    """Remove what a compiler has cached in a folder: its next use compiles again."""
    return command_in_words(
        Kind.REMOVE_CACHE,
        "{command}   (its next use compiles it for this torch)",
        f"rm -r {quoted(folder)}",
    )


def remove_file(path: Path) -> Fix:
    """Remove a file that is left over, and hides the right one."""
    return command_alone(Kind.REMOVE_FILE, f"rm {quoted(path)}")


def make_package(folder: Path) -> Fix:
    """Give a folder of modules the file that makes it a package, which others of its name then do
    not hide."""
    return command_alone(Kind.MAKE_PACKAGE, f"touch {quoted(folder / '__init__.py')}")


def remove_leftover(folder: Path, words: str, install: str = "") -> Fix:
    """Remove what a package left behind, and install the package with a command; in `words`."""
    commands = filter(None, (f"rm -r {quoted(folder)}", install))
    return command_in_words(Kind.REMOVE_FILE, words, " && ".join(commands))


def remove_lock(lock: Path) -> Fix:
    """Remove the lock of a build that is dead."""
    return command_alone(Kind.REMOVE_LOCK, f"rm {quoted(lock)}")
