"""Writes files and folders so that a killed or failed write leaves nothing half done."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def fresh(folder: Path) -> Path:
    """Makes an empty folder, after deleting an existing one; returns `folder`."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return folder


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields the path of a new file, which replaces `path` in one step unless the block raises."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")  # what a killed run left is written over
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_atomically(path: Path, content: str) -> None:
    with replacing(path) as part:
        part.write_text(content, encoding="utf-8")


def write_script(path: Path, commands: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{commands}\n", encoding="utf-8")
    path.chmod(0o755)


def publish(source: Path, target: Path) -> Path:
    """Copies a finished file to `target` in one step, over an older file.

    Returns `target`.
    """
    with replacing(target) as part:
        shutil.copy2(source, part)
    return target


def replace_wheel(source: Path, folder: Path, *, any_version: bool = False) -> Path:
    """Copies a wheel into `folder`; deletes other wheels of its version there; returns the copy.

    With `any_version`, the function also deletes the distribution's wheels of other versions.
    """
    target = publish(source, folder / source.name)
    name, version, *_ = source.name.split("-")
    for path in folder.glob(f"{name}-*.whl" if any_version else f"{name}-{version}-*.whl"):
        if path != target:
            path.unlink()
    return target


def tool(name: str) -> str:
    """The path of a program in the tool's environment or else on PATH.

    `name` if there is none.
    """
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name) or name
