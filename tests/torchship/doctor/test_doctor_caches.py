"""Caches of code that is made at run time: stale locks, builds that do not fit, the hub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from environments import add_torch, make_environment, run_doctor
from made_facts import make_runtime
from shared_objects import shared_object
from sick_environment import carries_out

from torchship.doctor.checks import caches
from torchship.judge import fixes
from torchship.judge.budget import Budget
from torchship.judge.machine.torch_probe import release
from torchship.judge.words import codes

VERSION = f"py{sys.version_info[0]}{sys.version_info[1]}"


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    site = make_environment(tmp_path / "env")
    root = add_torch(site)
    (root / "utils").mkdir()
    (root / "utils" / "cpp_extension.py").write_text("baton = FileBaton(lock)\n")
    return tmp_path / "env"


def notices(environment: Path, home: Path, **variables: str) -> list[tuple[str, str, str]]:
    """(code, state, name of the file or folder) of each notice, for this home folder."""
    process = run_doctor("--json", "--python", str(environment), HOME=str(home), **variables)
    rows = json.loads(process.stdout)["notices"]
    return [(row["code"], row["state"], Path(row["path"]).name) for row in rows]


def make_lock(build: Path, age: float) -> Path:
    build.mkdir(parents=True, exist_ok=True)
    lock = build / "lock"
    lock.touch()
    then = lock.stat().st_mtime - age
    os.utime(lock, (then, then))
    return lock


@carries_out(fixes.Kind.REMOVE_LOCK)
def test_a_stale_lock_fails_until_it_is_removed(environment: Path, tmp_path: Path) -> None:
    folder = tmp_path / ".cache" / "torch_extensions" / f"{VERSION}_cpu" / "op"
    lock = make_lock(folder, age=7200)
    process = run_doctor("--json", "--python", str(environment), HOME=str(tmp_path))
    (row,) = json.loads(process.stdout)["notices"]
    assert (row["code"], row["state"]) == (codes.STALE_LOCK, "fails")
    assert process.returncode == 1
    assert lock.exists()
    subprocess.run(["bash", "-c", row["cause"]["fix"]], check=True)
    assert notices(environment, tmp_path) == []


def test_a_young_lock_is_a_remark(environment: Path, tmp_path: Path) -> None:
    make_lock(tmp_path / "jit" / "op", age=60)
    rows = notices(environment, tmp_path, TORCH_EXTENSIONS_DIR=str(tmp_path / "jit"))
    assert rows == [(codes.STALE_LOCK, "note", "lock")]


def test_a_lock_that_a_process_holds_is_none(environment: Path, tmp_path: Path) -> None:
    lock = make_lock(tmp_path / "jit" / "op", age=7200)
    with lock.open():
        assert notices(environment, tmp_path, TORCH_EXTENSIONS_DIR=str(tmp_path / "jit")) == []


def test_a_torch_whose_locks_die_with_their_process_waits_for_none(
    environment: Path, tmp_path: Path
) -> None:
    (source,) = environment.glob("lib/*/site-packages/torch/utils/cpp_extension.py")
    source.write_text("lock = FileLock(path)\n")
    make_lock(tmp_path / "jit" / "op", age=7200)
    assert notices(environment, tmp_path, TORCH_EXTENSIONS_DIR=str(tmp_path / "jit")) == []


def test_the_builds_of_another_python_are_left_alone(environment: Path, tmp_path: Path) -> None:
    make_lock(tmp_path / ".cache" / "torch_extensions" / "py27_cpu" / "op", age=7200)
    assert notices(environment, tmp_path) == []


@pytest.mark.parametrize("cache", ["torch_extensions", "triton"])
def test_a_damaged_build_is_to_be_removed_by_its_folder(
    environment: Path, tmp_path: Path, cache: str
) -> None:
    folders = {
        "torch_extensions": tmp_path / ".cache" / "torch_extensions" / f"{VERSION}_cpu" / "op",
        "triton": tmp_path / ".triton" / "cache" / "op",
    }
    folder = folders[cache]
    folder.mkdir(parents=True)
    (folder / "op.so").write_bytes(b"\x7fELF")
    process = run_doctor("--json", "--python", str(environment), HOME=str(tmp_path))
    (row,) = json.loads(process.stdout)["notices"]
    assert row["code"] == codes.STALE_BUILD
    assert row["cause"]["fix"].startswith(f"rm -r {folder} ")


def test_a_build_that_lacks_symbols_of_torch_is_stale(environment: Path, tmp_path: Path) -> None:
    (lib,) = environment.glob("lib/*/site-packages/torch/lib")
    flags = [f"-L{lib}", "-Wl,--no-as-needed", "-l:libtorch_cpu.so"]
    symbols = ["_ZN2at6absentEv"]
    shared_object(tmp_path / "jit" / "op" / "op.so", undefined=symbols, flags=flags)
    rows = notices(environment, tmp_path, TORCH_EXTENSIONS_DIR=str(tmp_path / "jit"))
    assert rows == [(codes.STALE_BUILD, "fails", "op.so")]


def test_a_good_build_needs_no_word(environment: Path, tmp_path: Path) -> None:
    shared_object(tmp_path / ".triton" / "cache" / "hash" / "cuda_utils.so")
    assert notices(environment, tmp_path) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_a_closed_cache_is_named(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "jit").mkdir(mode=0o000)
    rows = notices(environment, tmp_path, TORCH_EXTENSIONS_DIR=str(tmp_path / "jit"))
    assert rows == [(codes.CACHE_CLOSED, "note", "jit")]


def hub_variant(home: Path, variant: str) -> None:
    folder = home / ".cache" / "huggingface" / "hub" / "models--org--kernel" / "snapshots" / "1"
    (folder / "build" / variant / "kernel").mkdir(parents=True)


@pytest.mark.parametrize(("offline", "state"), [("1", "fails"), ("0", "note")])
def test_a_kernel_of_the_hub_without_a_build_for_this_torch(
    environment: Path, tmp_path: Path, offline: str, state: str
) -> None:
    hub_variant(tmp_path, "torch28-cxx11-cu128-x86_64-linux")
    rows = notices(environment, tmp_path, HF_HUB_OFFLINE=offline)
    assert rows == [(codes.NO_FILE_FOR_CUDA, state, "1")]


def test_a_kernel_of_the_hub_with_a_build_for_this_torch(environment: Path, tmp_path: Path) -> None:
    hub_variant(tmp_path, "torch28-cxx11-cu128-x86_64-linux")
    hub_variant(tmp_path, "torch29-cxx11-cpu-x86_64-linux")
    assert notices(environment, tmp_path) == []


@pytest.mark.parametrize(
    ("variant", "fits"),
    [
        ("torch29-cxx11-cu128-x86_64-linux", True),
        ("torch29-cxx98-cu128-x86_64-linux", False),
        ("torch29-cxx11-cu126-x86_64-linux", False),
        ("torch29-cxx11-cu128-aarch64-linux", False),
        ("torch210-cxx11-cu128-x86_64-linux", False),
        ("torch-universal", True),
        ("torch", False),
    ],
)
def test_builds_of_the_hub_are_told_apart(variant: str, fits: bool) -> None:
    torch = release("2.9.1", (2, 9))._replace(cuda="12.8")
    assert caches.fits_variant(variant, torch, "x86_64") is fits


def test_the_folders_are_those_of_the_variables(tmp_path: Path) -> None:
    assert caches.find({}, tmp_path).torch_extensions == tmp_path / ".cache" / "torch_extensions"
    variables = {"XDG_CACHE_HOME": "/x", "TRITON_CACHE_DIR": "/t", "HF_HOME": "/h"}
    folders = caches.find(variables, tmp_path)
    assert folders.torch_extensions == Path("/x/torch_extensions")
    assert (folders.triton, folders.hub) == (Path("/t"), Path("/h/hub"))
    assert caches.find({**variables, "KERNELS_CACHE": "/k"}, tmp_path).hub == Path("/k")


def test_a_cache_for_which_the_budget_does_not_suffice_is_said_to_be_one(tmp_path: Path) -> None:
    build = tmp_path / ".triton" / "cache" / "key"
    shared_object(build / "x.so")
    runtime = make_runtime()
    runtime.target.budget = Budget(seconds=0.0)
    (row,) = caches.notices(caches.find({}, tmp_path), runtime)
    assert (row.state, row.code) == ("note", codes.BUDGET_SPENT)
