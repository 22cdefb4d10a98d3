"""The user's build cache: code that is executed, so it belongs to the user alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from made_facts import make_torch
from sick_environment import carries_out
from small_client import PROJECT
from small_clients import PYTHONPATH

from torchship.judge import cache, fixes
from torchship.judge.cache import CacheError


@pytest.fixture(autouse=True)
def own_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TINY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def entry() -> Path:
    folder = cache.entry_folder(PROJECT, make_torch(), "abc")
    cache.make(PROJECT, folder)
    (folder / "kernels-cpu.so").touch(0o700)
    return folder


def test_folders_are_made_for_the_user_alone_whatever_the_umask(own_root: Path) -> None:
    before = os.umask(0)
    try:
        folder = cache.entry_folder(PROJECT, make_torch(), "abc")
        cache.make(PROJECT, folder)
    finally:
        os.umask(before)
    for path in (own_root, folder.parent, folder):
        assert path.stat().st_mode & 0o777 == 0o700


def test_own_files_are_trusted(entry: Path) -> None:
    assert [path.name for path in cache.trusted_files(PROJECT, entry)] == ["kernels-cpu.so"]


@pytest.mark.parametrize("mode", [0o701, 0o710, 0o720, 0o770, 0o777])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_folder_open_to_others_is_refused(entry: Path, level: int, mode: int) -> None:
    (entry, entry.parent, cache.root(PROJECT))[level].chmod(mode)
    with pytest.raises(CacheError, match=f"{mode:04o}"):
        cache.trusted_files(PROJECT, entry)


@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_a_file_writable_for_others_is_refused(entry: Path, mode: int) -> None:
    (entry / "kernels-cpu.so").chmod(mode)
    with pytest.raises(CacheError, match="writable for others"):
        cache.trusted_files(PROJECT, entry)


def test_a_symlink_is_refused(entry: Path, tmp_path: Path) -> None:
    (entry / "glue-stable210.so").symlink_to(entry / "kernels-cpu.so")
    with pytest.raises(CacheError, match="symlink"):
        cache.trusted_files(PROJECT, entry)
    cache.root(PROJECT).rename(tmp_path / "elsewhere")
    cache.root(PROJECT).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CacheError, match="symlink"):
        cache.make(PROJECT, entry)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_what_belongs_to_somebody_else_is_refused(entry: Path) -> None:
    os.chown(entry / "kernels-cpu.so", 65534, 65534)
    with pytest.raises(CacheError, match="belongs to user 65534"):
        cache.trusted_files(PROJECT, entry)


@carries_out(fixes.Kind.RESTRICT_CACHE)
@pytest.mark.parametrize("name", ["cache", "a 'cache'"])
def test_the_command_of_the_error_closes_the_cache_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("TINY_CACHE", str(tmp_path / name))
    folder = cache.entry_folder(PROJECT, make_torch(), "abc")
    cache.make(PROJECT, folder)
    folder.chmod(0o755)
    with pytest.raises(CacheError) as raised:
        cache.trusted_files(PROJECT, folder)
    subprocess.run(["bash", "-c", raised.value.fix.command], check=True)
    assert cache.trusted_files(PROJECT, folder) == ()


def test_the_error_names_the_path_and_the_command(entry: Path) -> None:
    entry.chmod(0o755)
    with pytest.raises(CacheError) as raised:
        cache.trusted_files(PROJECT, entry)
    assert raised.value.path == entry
    assert raised.value.fix.text.startswith("chmod -R go= ")


def test_the_error_prints_a_foreign_name_on_one_line(tmp_path: Path) -> None:
    base = tmp_path / "x\n  to fix: rm -rf ~"
    base.mkdir(0o755)
    with pytest.raises(CacheError) as raised:
        cache.make(PROJECT._replace(cache=base), base)
    assert str(raised.value).isprintable()


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
    folders = [cache.entry_folder(PROJECT, torch, s) for torch in torches for s in ("a", "b")]
    assert len(set(folders)) == len(folders)
    assert all(folder.parents[1] == cache.root(PROJECT) for folder in folders)


def test_builds_of_different_machines_lie_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may share a home folder: x86 and Arm, or two releases of one distribution."""
    folders = set()
    for processor in ("x86_64", "aarch64"):
        monkeypatch.setattr(cache, "machine", lambda name=processor: name)
        for library in (("glibc", (2, 28)), ("glibc", (2, 39)), ("musl", ())):
            monkeypatch.setattr(cache, "libc", lambda facts=library: facts)
            folders.add(cache.entry_folder(PROJECT, make_torch(), "a"))
    assert len(folders) == 6
    assert all(folder.parents[1] == cache.root(PROJECT) for folder in folders)


def test_the_source_hash_tells_names_and_contents_apart(tmp_path: Path) -> None:
    def hashed(folder: str, **contents: str) -> str | None:
        for name, content in {"project.h": "", **contents}.items():
            (tmp_path / folder / "csrc").mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / "csrc" / name).write_text(content)
        return cache.source_hash(tmp_path / folder)

    hashes = [hashed("1", a="x", b="y"), hashed("2", a="y", b="x"), hashed("3", a="x", c="y")]
    assert len({*hashes, hashed("4", a="x")}) == 4
    assert hashed("5", b="y", a="x") == hashes[0]  # the order does not matter


def test_a_tilde_is_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    monkeypatch.setenv("TINY_CACHE", "~/x")
    assert cache.root(PROJECT) == Path("/somewhere/x")
    monkeypatch.setenv("TINY_CACHE", "~nobody-of-that-name/x")
    with pytest.raises(cache.NoCacheFolderError, match="write the whole path"):
        cache.root(PROJECT)


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder of another user, which may be written to, as by root."""
    folder = tmp_path / "home"
    folder.mkdir()
    if os.getuid() == 0:
        os.chown(folder, 65534, 65534)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    return folder


@pytest.mark.parametrize("below", [".cache/tiny_client", "tiny_client"])
@pytest.mark.parametrize("linked", [False, True], ids=["folder", "symlink"])
def test_nothing_is_made_in_a_folder_of_another_user(
    foreign: Path, tmp_path: Path, below: str, linked: bool
) -> None:
    base = foreign / below
    if linked:
        (tmp_path / "link").symlink_to(foreign)
        base = tmp_path / "link" / below
    with pytest.raises(CacheError, match=r"belongs to user .*set TINY_CACHE"):
        cache.make(PROJECT._replace(cache=base), base)
    assert list(foreign.iterdir()) == []


def test_folders_can_be_used_whatever_the_umask(tmp_path: Path) -> None:
    base = tmp_path / "new" / "cache"
    before = os.umask(0o777)
    try:
        cache.make(PROJECT._replace(cache=base), base / "torch")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (base.parent, base, base / "torch")} == {0o700}


def test_a_file_in_the_place_of_the_cache_is_named(own_root: Path) -> None:
    own_root.touch(0o600)
    with pytest.raises(CacheError, match=r"cache is not a folder\. To fix it: set TINY_CACHE"):
        cache.make(PROJECT, own_root)


def test_no_advice_removes_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINY_CACHE", "/dev/null")
    with pytest.raises(CacheError, match="set TINY_CACHE to a folder of your own") as raised:
        cache.make(PROJECT, cache.root(PROJECT))
    assert "rm " not in str(raised.value)


def test_one_at_a_time_holds_the_lock() -> None:
    cache.make(PROJECT, cache.root(PROJECT))
    with cache.locked(PROJECT) as first, cache.locked(PROJECT, wait=False) as second:
        assert (first, second) == (True, False)
    with cache.locked(PROJECT, wait=False) as third:
        assert third


def test_a_lock_ends_with_its_process() -> None:
    """Also where every process has the same number, as the first of a container has."""
    cache.make(PROJECT, cache.root(PROJECT))
    code = (
        "from small_client import PROJECT\nfrom torchship.judge import cache\n"
        "with cache.locked(PROJECT):\n    print('held', flush=True)\n    input()"
    )
    command = [sys.executable, "-c", code]
    env = {**os.environ, "PYTHONPATH": PYTHONPATH}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=env, **pipes) as child:  # type: ignore[call-overload]
        assert child.stdout.readline() == b"held\n"
        with cache.locked(PROJECT, wait=False) as is_locked:
            assert is_locked is False
        child.kill()
        child.wait()
    with cache.locked(PROJECT, wait=False) as is_locked:
        assert is_locked


def test_a_lock_that_is_a_symlink_is_refused_and_its_target_left_alone(tmp_path: Path) -> None:
    cache.make(PROJECT, cache.root(PROJECT))
    victim = tmp_path / "victim"
    victim.write_text("kept")
    (cache.root(PROJECT) / "lock").symlink_to(victim)
    with pytest.raises(CacheError, match="is a symlink"), cache.locked(PROJECT):
        pass
    assert victim.read_text() == "kept"


def test_what_killed_builds_leave_is_seen(entry: Path) -> None:
    (cache.root(PROJECT) / "building-x").mkdir(0o700)
    (cache.root(PROJECT) / "building-x" / "file").write_text("12")
    entries = [(entries.key, entries.finished) for entries in cache.entries(PROJECT)]
    build = str(entry.relative_to(cache.root(PROJECT)))  # one without its build.json too
    assert entries == [(build, True), ("building-x", False)]


def test_cuda_kernels_of_the_user_come_first_and_all_else_after_the_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were built for a GPU mend a package without code for it (class 4)."""
    package = tmp_path / "package"
    (package / "lib").mkdir(parents=True)
    names = ["glue-stable210.so", "kernels-cpu.so", "kernels-cuda13.so"]
    for name in names:
        (package / "lib" / name).touch()
    monkeypatch.setattr(cache, "source_hash", lambda _: "abc")
    folder = cache.entry_folder(PROJECT, make_torch(), "abc")
    cache.make(PROJECT, folder)
    for name in names:
        (folder / name).touch(0o700)
    paths, distrusted = cache.find_binaries(PROJECT._replace(folder=package), make_torch())
    assert distrusted is None
    assert paths[0] == folder / "kernels-cuda13.so"
    assert paths[1:4] == [package / "lib" / name for name in names]
    assert paths[4:] == [folder / name for name in names[:2]]


def test_no_fix_touches_a_folder_that_holds_something_else(own_root: Path) -> None:
    """The user named it by mistake, as `/tmp` or a home folder."""
    own_root.mkdir(mode=0o755)
    (own_root / "thesis.tex").touch()
    with pytest.raises(CacheError, match="has mode 0755") as raised:
        cache.make(PROJECT, own_root)
    assert raised.value.fix.text == "set TINY_CACHE to a folder of your own"


@pytest.mark.parametrize("name", [".", "lock"])
def test_no_fix_removes_what_is_no_cache(name: str, own_root: Path) -> None:
    """A regular file in place of the cache, and a folder in place of its lock."""
    if name == "lock":
        cache.make(PROJECT, own_root)
        (own_root / name).mkdir()
    else:
        own_root.touch()
    with pytest.raises(CacheError) as raised:
        cache.make(PROJECT, own_root)
        with cache.locked(PROJECT):
            pass
    assert raised.value.fix.text == "set TINY_CACHE to a folder of your own"


def test_of_a_source_without_end_there_is_no_hash(tmp_path: Path) -> None:
    sources = tmp_path / "package" / "csrc"
    sources.mkdir(parents=True)
    (sources / "project.h").write_text("x" * 1000)
    before = cache.source_hash(tmp_path / "package")
    os.mkfifo(sources / "fifo.h")
    assert cache.source_hash(tmp_path / "package") == before
    os.truncate(sources / "project.h", 64 << 30)
    with pytest.raises(OSError, match="too large"):
        cache.source_hash(tmp_path / "package")


def test_a_build_with_a_fifo_is_not_whole(entry: Path) -> None:
    cache.write_manifest(entry, cache.Manifest(settings={}, files={}))
    assert cache.is_whole(entry)
    os.mkfifo(entry / "glue-stable210.so")
    assert not cache.is_whole(entry)
