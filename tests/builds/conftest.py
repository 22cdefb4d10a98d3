"""What the tests of building share."""

from __future__ import annotations

from pathlib import Path

import pytest
from build_places import copy_sources


@pytest.fixture(scope="module")
def source_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources, in a folder with a space in its path: every build must cope."""
    return copy_sources(tmp_path_factory.mktemp("sources") / "lltm source")
