"""scripts/new_project.py refuses names that cannot work, and never loses a file of an author."""

from __future__ import annotations

import hashlib
import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

pytest.importorskip("pydantic")
pytest.importorskip("ruamel.yaml")

REPO = Path(__file__).resolve().parents[2]
PROGRAM = REPO / "scripts" / "new_project.py"
ENGINE_FOLDER = "torchship/include/torchship"
ENGINE_FILE = f"{ENGINE_FOLDER}/guards.h"


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, PROGRAM, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(REPO)}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def why_not() -> Callable[[str], str]:
    sys.path.insert(0, str(REPO))
    return runpy.run_path(str(PROGRAM))["why_not"]


@pytest.mark.parametrize("name", ["my-op", "rms-norm", "fast_attention", "op2"])
def test_a_name_that_nobody_has_is_accepted(name: str, why_not: Callable[[str], str]) -> None:
    assert why_not(name) == ""


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("build", "folder"),
        ("dist", "folder"),
        ("recipe", "folder"),
        ("template", "C++"),
        ("namespace", "C++"),
        ("not-eq", "C++"),
        ("lambda", "Python"),
        ("json", "Python's library"),
        ("aten", "PyTorch's own"),
        ("prim", "PyTorch's own"),
        ("torchvision", "beside torch"),
        ("numpy", "torch or a build needs"),
        ("pytest", "the engine's tools need"),
        ("lltm", "the engine comes from"),
        ("lltm-conda", "the engine comes from"),
        ("help", "CMake"),
        ("Upper", "lower-case words"),
        ("../up", "lower-case words"),
    ],
)
def test_a_name_that_cannot_work_is_refused_with_the_reason(
    name: str, reason: str, why_not: Callable[[str], str]
) -> None:
    assert reason in why_not(name)


def test_no_namespace_of_the_installed_torch_is_accepted(why_not: Callable[[str], str]) -> None:
    # In a process of its own: tests of this one may have registered others.
    code = (
        "import torch; names = torch._C._dispatch_get_all_op_names();"
        "print(*{name.partition('::')[0] for name in names})"
    )
    listing = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    own = {name for name in listing.stdout.split() if hasattr(torch.ops, name)}
    assert {"aten", "c10d", "quantized"} <= own
    assert [name for name in sorted(own) if not why_not(name)] == []


def test_a_refused_name_leaves_nothing(tmp_path: Path) -> None:
    result = run("build", tmp_path / "repo")
    assert result.returncode == 1
    assert "NAME is 'build', which is a folder" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def new_repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repo = tmp_path_factory.mktemp("made") / "my-op"
    result = run("my-op", repo, "--template", "aten")
    assert result.returncode == 0, result.stderr
    return repo


@pytest.fixture
def repo(new_repo: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(new_repo, tmp_path / "repo", symlinks=True))


def files(repo: Path) -> dict[str, str]:
    """The hash of every file and the target of every link, without those of git."""
    return {
        str(path.relative_to(repo)): (
            str(path.readlink())
            if path.is_symlink()
            else hashlib.sha256(path.read_bytes()).hexdigest()
        )
        for path in repo.rglob("*")
        if ".git" not in path.parts and (path.is_symlink() or path.is_file())
    }


def edit_record(repo: Path, change: Callable[[dict], object]) -> None:
    path = repo / "engine.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    change(record)
    path.write_text(json.dumps(record), encoding="utf-8")


def forget(name: str) -> Callable[[dict], object]:
    """As if the engine of the project had no such file, and a later engine brings it."""
    return lambda record: record["files"].pop(name)


def check_refused(repo: Path, *parts: str) -> None:
    """Fails if the update is not refused with these parts of a message, or changes a file."""
    before = files(repo)
    result = run("--update", repo)
    assert result.returncode == 1, result.stdout
    for part in parts:
        assert part in result.stderr
    assert "Traceback" not in result.stderr
    assert files(repo) == before


def test_an_update_to_the_same_engine_changes_nothing(repo: Path) -> None:
    before = files(repo)
    result = run("--update", repo)
    assert result.returncode == 0, result.stderr
    assert files(repo) == before


def test_an_authors_file_is_not_replaced_by_one_of_a_later_engine(repo: Path) -> None:
    edit_record(repo, forget(ENGINE_FILE))
    (repo / ENGINE_FILE).write_text("// mine, never committed\n")
    check_refused(repo, ENGINE_FILE, "rename yours")


def test_an_ignored_file_of_the_author_is_not_replaced(repo: Path) -> None:
    edit_record(repo, forget(ENGINE_FILE))
    (repo / ".git" / "info" / "exclude").write_text(f"{ENGINE_FILE}\n")
    (repo / ENGINE_FILE).write_text("// mine, ignored by git\n")
    check_refused(repo, ENGINE_FILE, "rename yours")


def test_an_authors_file_is_not_replaced_by_one_that_a_later_engine_generates(repo: Path) -> None:
    edit_record(repo, lambda record: record["generated"].remove("project.env"))
    (repo / "project.env").write_text("MINE=1\n")
    check_refused(repo, "project.env", "rename yours")


def test_a_changed_file_of_the_engine_is_not_replaced(repo: Path) -> None:
    (repo / ENGINE_FILE).write_text("// changed\n")
    check_refused(repo, f"{ENGINE_FILE}: this file of the engine was changed", "git checkout")


@pytest.mark.parametrize("name", ["../outside", "a/../../outside", "/etc/outside", ".git/config"])
def test_a_record_that_names_files_outside_deletes_none(repo: Path, name: str) -> None:
    (repo.parent / "outside").write_text("mine\n")
    digest = hashlib.sha256(b"mine\n").hexdigest()
    edit_record(repo, lambda record: record["files"].update({name: digest}))
    check_refused(repo, name, "no file of this repository")
    assert (repo.parent / "outside").read_text() == "mine\n"


def test_a_link_to_a_folder_outside_is_not_followed(repo: Path) -> None:
    outside = repo.parent / "outside"
    (repo / ENGINE_FOLDER).rename(outside)
    (repo / ENGINE_FOLDER).symlink_to(outside)
    (outside / "guards.h").unlink()
    check_refused(repo, f"{ENGINE_FOLDER}: must be a folder")
    assert not (outside / "guards.h").exists()


def test_a_folder_in_the_way_stops_it_before_it_begins(repo: Path) -> None:
    (repo / ENGINE_FILE).unlink()
    (repo / ENGINE_FILE).mkdir()
    (repo / ENGINE_FILE / "mine").touch()
    check_refused(repo, f"{ENGINE_FILE}: must be a file")


def test_a_file_in_the_place_of_a_folder_stops_it_before_it_begins(repo: Path) -> None:
    shutil.rmtree(repo / "cmake")
    (repo / "cmake").write_text("mine\n")
    check_refused(repo, "cmake: must be a folder")


@pytest.mark.parametrize("content", ["{", "[]", '{"files": {}}', '{"files": 1, "generated": []}'])
def test_a_damaged_record_is_named(repo: Path, content: str) -> None:
    (repo / "engine.json").write_text(content)
    check_refused(repo, "engine.json is damaged")


def test_a_mistake_in_the_matrix_stops_it_before_it_begins(repo: Path) -> None:
    matrix = repo / "build_matrix.yaml"
    matrix.write_text(matrix.read_text().replace("package: my_op", "package: 3"))
    check_refused(repo, "build_matrix.yaml")


def test_a_stopped_update_can_be_started_again(repo: Path) -> None:
    """Some files are the new engine's, and the record is still the old one's."""
    edit_record(repo, lambda record: record["files"].update({ENGINE_FILE: "0" * 64}))
    result = run("--update", repo)
    assert result.returncode == 0, result.stderr


def test_what_a_later_engine_no_longer_has_is_removed(repo: Path) -> None:
    (repo / ENGINE_FOLDER / "gone.h").write_text("// old\n")
    digest = hashlib.sha256(b"// old\n").hexdigest()
    edit_record(repo, lambda record: record["files"].update({f"{ENGINE_FOLDER}/gone.h": digest}))
    (repo / ENGINE_FILE).unlink()
    result = run("--update", repo)
    assert result.returncode == 0, result.stderr
    assert not (repo / ENGINE_FOLDER / "gone.h").exists()
    assert (repo / ENGINE_FILE).read_bytes() == (REPO / ENGINE_FILE).read_bytes()
