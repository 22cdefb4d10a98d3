"""The user's build cache: code that is executed, so it belongs to the user alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from made_facts import make_torch

from lltm_conda.compat import cache, verdict_cache
from lltm_conda.compat.cache import CacheError


@pytest.fixture(autouse=True)
def own_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LLTM_CONDA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def entry() -> Path:
    folder = cache.entry_folder(make_torch(), "0.1.0", "abc")
    cache.make(folder)
    (folder / "kernels-cpu.so").touch(0o700)
    return folder


def test_folders_are_made_for_the_user_alone_whatever_the_umask(own_root: Path) -> None:
    before = os.umask(0)
    try:
        folder = cache.entry_folder(make_torch(), "0.1.0", "abc")
        cache.make(folder)
    finally:
        os.umask(before)
    for path in (own_root, folder.parent, folder):
        assert path.stat().st_mode & 0o777 == 0o700


def test_own_files_are_trusted(entry: Path) -> None:
    assert [path.name for path in cache.trusted_files(entry)] == ["kernels-cpu.so"]


@pytest.mark.parametrize("mode", [0o701, 0o710, 0o720, 0o770, 0o777])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_folder_open_to_others_is_refused(entry: Path, level: int, mode: int) -> None:
    (entry, entry.parent, cache.root())[level].chmod(mode)
    with pytest.raises(CacheError, match=f"{mode:04o}"):
        cache.trusted_files(entry)


@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_a_file_writable_for_others_is_refused(entry: Path, mode: int) -> None:
    (entry / "kernels-cpu.so").chmod(mode)
    with pytest.raises(CacheError, match="writable for others"):
        cache.trusted_files(entry)


def test_a_symlink_is_refused(entry: Path, tmp_path: Path) -> None:
    (entry / "glue-stable210.so").symlink_to(entry / "kernels-cpu.so")
    with pytest.raises(CacheError, match="symlink"):
        cache.trusted_files(entry)
    cache.root().rename(tmp_path / "elsewhere")
    cache.root().symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CacheError, match="symlink"):
        cache.make(entry)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_what_belongs_to_somebody_else_is_refused(entry: Path) -> None:
    os.chown(entry / "kernels-cpu.so", 65534, 65534)
    with pytest.raises(CacheError, match="belongs to user 65534"):
        cache.trusted_files(entry)


def test_the_error_names_the_path_and_the_command(entry: Path) -> None:
    entry.chmod(0o755)
    with pytest.raises(CacheError) as raised:
        cache.trusted_files(entry)
    assert raised.value.path == entry
    assert raised.value.fix.startswith("chmod -R go= ")


def test_builds_of_different_torches_and_sources_lie_apart() -> None:
    torches = [
        make_torch("2.9.0"),
        make_torch("2.9.1"),
        make_torch("2.9.0", cuda="12.8"),
        make_torch("2.9.0", cuda="13.0"),
        make_torch("2.6.0", cxx11_abi=0),
        make_torch("2.6.0", cxx11_abi=1),
        make_torch("2.9.0/../../x"),
    ]
    folders = [cache.entry_folder(torch, "0.1.0", s) for torch in torches for s in ("a", "b")]
    assert len(set(folders)) == len(folders)
    assert all(folder.parents[1] == cache.root() for folder in folders)


def test_the_source_hash_tells_names_and_contents_apart(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("x")
    two.write_text("y")
    hashes = {
        cache.source_hash([("a", one), ("b", two)]),
        cache.source_hash([("a", two), ("b", one)]),
        cache.source_hash([("a", one), ("c", two)]),
        cache.source_hash([("a", one)]),
    }
    assert len(hashes) == 4
    assert cache.source_hash([("b", two), ("a", one)]) in hashes  # the order does not matter


def test_a_choice_is_remembered_under_its_key_alone() -> None:
    verdict_cache.remember("k" * 32, {"variant": "stable210-cpu"})
    assert verdict_cache.recall("k" * 32) == {"variant": "stable210-cpu", "key": "k" * 32}
    assert verdict_cache.recall("l" * 32) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"key": "other"}', "\x00"])
def test_a_broken_memory_is_forgotten(text: str) -> None:
    verdict_cache.remember("k" * 32, {})
    (cache.root() / "verdicts" / ("k" * 32 + ".json")).write_text(text)
    assert verdict_cache.recall("k" * 32) is None


def test_the_memory_does_not_grow_without_end() -> None:
    for index in range(verdict_cache._KEPT + 20):
        verdict_cache.remember(f"{index:032}", {})
    assert len(list((cache.root() / "verdicts").iterdir())) == verdict_cache._KEPT


def test_any_changed_fact_changes_the_key(tmp_path: Path) -> None:
    assert verdict_cache.key_of(["a", "b"]) != verdict_cache.key_of(["a", "c"])
    file = tmp_path / "f"
    file.write_text("1")
    before = verdict_cache.file_fact(file)
    file.write_text("12")
    assert verdict_cache.file_fact(file) != before
