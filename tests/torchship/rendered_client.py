"""The checkout that `torchship new` writes for small_client, for tests that only read it.

Its matrix is one of the tests' own, so that they may name torches that ours has no more.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import small_client

from torchship.project.render import names_of, render
from torchship.release.matrix.generated import write_stale
from torchship.release.matrix.load import load
from torchship.release.matrix.settings import make_settings

_MATRIX = Path(__file__).with_name("tiny_client_matrix.yaml")
_FOLDER = tempfile.TemporaryDirectory(prefix="small-checkout-")


def write_checkout(folder: Path) -> Path:
    """The files of a new project that has small_client's names, without git."""
    for name, file in render("rms_norm", names_of("tiny-client")).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
        path.chmod(file.mode)
    matrix = folder / "build_matrix.yaml"
    if matrix.read_bytes() != _MATRIX.read_bytes():
        matrix.write_bytes(_MATRIX.read_bytes())
        write_stale(make_settings(load(matrix), folder))
    return folder


CHECKOUT = write_checkout(Path(_FOLDER.name))
PROJECT = small_client.PROJECT._replace(
    namespace="tiny_client",
    prefix="TINY_CLIENT",
    operator="rms_norm",
    folder=CHECKOUT / "tiny_client",
)
