"""Accidents of a release: a few of those that measurements/release_accidents.py draws."""

from __future__ import annotations

from pathlib import Path

import pytest

for name in ("rattler", "twine"):
    pytest.importorskip(name)

from measurements import release_accidents  # noqa: E402


@pytest.fixture(scope="module")
def plant(tmp_path_factory):
    return release_accidents.Plant(tmp_path_factory.mktemp("plant"))


@pytest.mark.slow
def test_no_accident_certifies_loses_or_replaces_in_silence() -> None:
    accidents = release_accidents.run(seed=7, count=40)
    assert {kind for accident in accidents for kind in accident.kinds}
    assert [f"{a.kinds}: {a.wrong}" for a in accidents if a.wrong] == []


def test_the_oracle_sees_a_merge_that_loses_a_file(plant, tmp_path: Path, monkeypatch) -> None:
    """Otherwise no accident would be wrong."""

    def merge_and_lose(scene: release_accidents.Scene) -> int:
        code = merge_shards(scene)
        next((scene.dist / "simple" / "lltm").glob("*.whl")).unlink()
        return code

    merge_shards = release_accidents.merge_shards
    monkeypatch.setattr(release_accidents, "merge_shards", merge_and_lose)
    monkeypatch.setattr(release_accidents, "KINDS", (release_accidents.add_an_unlisted_file,) * 3)
    assert release_accidents.happen(plant, 1, tmp_path / "accident").wrong.startswith("lost: ")
