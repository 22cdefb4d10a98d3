"""The settings of this checkout, for tests of what a run has left in it."""

from __future__ import annotations

from release_places import MATRIX, REPO

from torchship.release.matrix.load import load
from torchship.release.matrix.settings import make_settings

SETTINGS = make_settings(load(MATRIX), REPO)
