"""The checkout that `torchship new` writes for small_client, for tests that only read it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import small_client

from torchship.project.render import names_of, render

_FOLDER = tempfile.TemporaryDirectory(prefix="small-checkout-")


def write_checkout(folder: Path) -> Path:
    """The files of a new project that has small_client's names, without git."""
    for name, file in render("rms_norm", names_of("tiny-client")).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
        path.chmod(file.mode)
    return folder


CHECKOUT = write_checkout(Path(_FOLDER.name))
PROJECT = small_client.PROJECT._replace(
    namespace="tiny_client",
    prefix="TINY_CLIENT",
    operator="rms_norm",
    folder=CHECKOUT / "tiny_client",
)
