"""An editable install: the sources are used where they lie."""

from __future__ import annotations

from pathlib import Path

import pytest
from build_places import Place

from lltm_conda.engine.judge.reading.elf import Elf

# It compiles the op; test_checkout_backend.py has an editable install that takes binaries.
pytestmark = pytest.mark.rehearsal


@pytest.fixture(scope="module")
def place(source_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = Place(tmp_path_factory.mktemp("editable"))
    options = ("--no-build-isolation", "--no-deps", "-e", ".")
    place.pip("install", *options, cwd=source_tree, DEBUG="1").good()
    return place


def test_editable_install_computes_from_the_source_tree(place: Place, source_tree: Path) -> None:
    assert f"computed right with {source_tree}" in place.smoke()


def test_debug_leaves_debugging_symbols(place: Place, source_tree: Path) -> None:
    binaries = sorted((source_tree / "lltm_conda" / "lib").glob("*.so"))
    assert binaries
    for path in binaries:
        with Elf(path) as elf:
            assert elf.section(".debug_info") is not None, path.name
