"""The settings of a run in the checkout of a small client."""

from __future__ import annotations

import os

from rendered_client import CHECKOUT
from small_clients import REPO

from torchship.release.matrix import load
from torchship.release.settings import make_settings

__all__ = ["CHECKOUT", "ENVIRONMENT", "MATRIX", "SETTINGS"]

MATRIX = CHECKOUT / "build_matrix.yaml"
SETTINGS = make_settings(load(MATRIX), CHECKOUT)
#: Of programs that load this checkout's torchship, with the client as their project.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(REPO), "RELEASE_PROJECT": str(CHECKOUT)}
