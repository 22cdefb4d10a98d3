"""Our sources can be compiled by torch.utils.cpp_extension."""

from __future__ import annotations

from collections import Counter

import pytest

from lltm_conda.engine.builder import linked_sources


@pytest.mark.parametrize("lane", ["stable", "aten"])
def test_sources_of_one_object_have_names_of_their_own(lane: str) -> None:
    # torch.utils.cpp_extension names an object after its source's stem, CUDA's apart.
    stems = Counter((path.stem, path.suffix) for path in linked_sources(lane, cuda=True))
    assert {stem for stem, times in stems.items() if times > 1} == set()
