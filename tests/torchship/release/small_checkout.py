"""The checkout of a small client: what `torchship new` writes, for tests that only read it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from small_clients import REPO

from torchship.project.render import names_of, render
from torchship.release.matrix import load
from torchship.release.settings import make_settings

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
MATRIX = CHECKOUT / "build_matrix.yaml"
SETTINGS = make_settings(load(MATRIX), CHECKOUT)
#: Of programs that load this checkout's torchship, with the client as their project.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(REPO), "RELEASE_PROJECT": str(CHECKOUT)}
