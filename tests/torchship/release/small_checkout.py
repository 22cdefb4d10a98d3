"""The settings of a run in the checkout of a small client."""

from __future__ import annotations

import os

from rendered_client import CHECKOUT
from small_clients import REPO

from torchship.release.matrix.load import load
from torchship.release.matrix.settings import make_settings

__all__ = ["CHECKOUT", "ENVIRONMENT", "MATRIX", "SETTINGS"]

MATRIX = CHECKOUT / "build_matrix.yaml"
SETTINGS = make_settings(load(MATRIX), CHECKOUT)
#: Of programs that load this checkout's torchship, with the client as their project.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(REPO), "RELEASE_PROJECT": str(CHECKOUT)}
