"""`torchship update` brings a later torchship, and never loses a file of an author."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from new_projects import commit, files, make, torchship

from torchship.project.archive import make_archive

pytest.importorskip("pydantic")
pytest.importorskip("ruamel.yaml")

#: A generated file that comes from a template, and one that follows from the matrix.
TEMPLATED = "scripts/test.sh"
RECORD = "vendor/torchship.json"
LATER = "# of a later torchship\n"


@pytest.fixture(scope="module")
def today(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of this torchship as it is installed, which makes an archive quickly."""
    folder = tmp_path_factory.mktemp("today")
    zipfile.ZipFile(make_archive(folder)).extractall(folder / "site")
    return folder / "site"


@pytest.fixture(scope="module")
def later(today: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of another torchship: 0.1.1, with another scripts/test.sh."""
    folder = tmp_path_factory.mktemp("later") / "site"
    shutil.copytree(today, folder)
    (folder / "torchship-0.1.0.dist-info").rename(folder / "torchship-0.1.1.dist-info")
    with (folder / "torchship" / "templates" / "project" / TEMPLATED).open("a") as file:
        file.write(LATER)
    return folder


@pytest.fixture(scope="module")
def new_repo(today: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    repo = make(folder, "my-op", "--template", "aten", path=today)
    commit(repo)
    return repo


@pytest.fixture
def repo(new_repo: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(new_repo, tmp_path / "repo", symlinks=True))


def update(repo: Path, later: Path) -> subprocess.CompletedProcess[str]:
    return torchship("update", repo, cwd=repo.parent, path=later)


def changed(repo: Path) -> set[str]:
    command = ["git", "-C", str(repo), "status", "--porcelain", "-uall"]
    status = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {line[3:] for line in status.splitlines()}


def edit_record(repo: Path, change: Callable[[dict], object]) -> None:
    path = repo / RECORD
    record = json.loads(path.read_text(encoding="utf-8"))
    change(record)
    path.write_text(json.dumps(record), encoding="utf-8")


def check_refused(repo: Path, later: Path, *parts: str) -> None:
    """Fails if the update is not refused with these parts of a message, or changes a file."""
    before = files(repo)
    result = update(repo, later)
    assert result.returncode == 2, result.stdout
    for part in parts:
        assert part in result.stderr
    assert "Traceback" not in result.stderr
    assert files(repo) == before


@pytest.mark.slow
def test_an_update_to_the_same_torchship_changes_nothing(repo: Path, today: Path) -> None:
    before = files(repo)
    result = update(repo, today)
    assert result.returncode == 0, result.stderr
    assert files(repo) == before


@pytest.mark.slow
def test_write_generated_names_each_file_that_it_changes(repo: Path, today: Path) -> None:
    matrix = repo / "build_matrix.yaml"
    content = matrix.read_text(encoding="utf-8")
    matrix.write_text(content.replace("operator: affine", "operator: other"), encoding="utf-8")
    result = torchship("generate", cwd=repo, path=today)
    assert result.returncode == 0, result.stdout + result.stderr
    assert RECORD in changed(repo)
    named = {line.removeprefix("written ") for line in result.stdout.splitlines()}
    assert named == changed(repo) - {"build_matrix.yaml"}


@pytest.mark.slow
def test_the_archive_and_the_generated_files_move(repo: Path, later: Path) -> None:
    result = update(repo, later)
    assert result.returncode == 0, result.stderr
    assert "torchship 0.1.0 -> 0.1.1" in result.stdout
    assert changed(repo) == {
        RECORD,
        TEMPLATED,
        "vendor/torchship-0.1.0-py3-none-any.whl",
        "vendor/torchship-0.1.1-py3-none-any.whl",
    }
    assert (repo / TEMPLATED).read_text().endswith(LATER)
    assert (repo / TEMPLATED).stat().st_mode & 0o111


def test_files_of_the_author_are_not_touched(repo: Path, later: Path) -> None:
    mine = ["README.md", "pyproject.toml", "my_op/functions.py", "tests/test_affine.py"]
    for name in mine:
        (repo / name).write_text("mine, not committed\n")
    before = {name: digest for name, digest in files(repo).items() if name in mine}
    assert update(repo, later).returncode == 0
    assert {name: digest for name, digest in files(repo).items() if name in mine} == before


@pytest.mark.slow
def test_a_generated_file_that_was_changed_is_shown_and_left(repo: Path, later: Path) -> None:
    (repo / TEMPLATED).write_text("# mine\n")
    result = update(repo, later)
    assert result.returncode == 0, result.stderr
    assert (repo / TEMPLATED).read_text() == "# mine\n"
    assert f"left as it is, because you changed it: {TEMPLATED}" in result.stdout
    assert "    -# mine\n" in result.stdout
    assert f"    +{LATER}" in result.stdout
    again = update(repo, later)
    assert (repo / TEMPLATED).read_text() == "# mine\n", again.stdout


@pytest.mark.slow
def test_what_init_kept_stays_the_authors(repo: Path, later: Path) -> None:
    """init records an empty hash for a file that was there, by which the linters leave it alone."""
    (repo / TEMPLATED).write_text("#!/bin/sh\n", encoding="utf-8")
    edit_record(repo, lambda record: record["generated"].update({TEMPLATED: ""}))
    assert update(repo, later).returncode == 0
    assert json.loads((repo / RECORD).read_text())["generated"][TEMPLATED] == ""
    assert (repo / TEMPLATED).read_text() == "#!/bin/sh\n"


def test_a_generated_file_that_was_deleted_stays_deleted(repo: Path, later: Path) -> None:
    (repo / TEMPLATED).unlink()
    result = update(repo, later)
    assert result.returncode == 0, result.stderr
    assert not (repo / TEMPLATED).exists()
    assert "you deleted it" in result.stdout


@pytest.mark.slow
def test_a_file_of_the_author_where_a_later_torchship_generates_one_is_left(
    repo: Path, later: Path
) -> None:
    """As if the torchship of the project had not generated it; git ignores it, too."""
    edit_record(repo, lambda record: record["generated"].pop(TEMPLATED))
    (repo / ".git" / "info" / "exclude").write_text(f"{TEMPLATED}\n")
    (repo / TEMPLATED).write_text("# mine, never committed\n")
    result = update(repo, later)
    assert result.returncode == 0, result.stderr
    assert (repo / TEMPLATED).read_text() == "# mine, never committed\n"


@pytest.mark.slow
def test_what_a_later_torchship_does_not_generate_is_removed_unless_changed(
    repo: Path, later: Path
) -> None:
    old = b"of an old torchship\n"
    for name in ("scripts/old.sh", "scripts/mine.sh"):
        (repo / name).write_bytes(old)
        digest = hashlib.sha256(old).hexdigest()
        edit_record(repo, lambda record, name=name, d=digest: record["generated"].update({name: d}))
    (repo / "scripts" / "mine.sh").write_text("mine\n")
    assert update(repo, later).returncode == 0
    assert not (repo / "scripts" / "old.sh").exists()
    assert (repo / "scripts" / "mine.sh").read_text() == "mine\n"


@pytest.mark.slow
def test_values_of_the_matrix_are_no_change_of_the_author(repo: Path, today: Path) -> None:
    matrix = repo / "build_matrix.yaml"
    summary = "An affine map for PyTorch"
    matrix.write_text(matrix.read_text().replace(summary, "Said otherwise"))
    result = update(repo, today)
    assert "left as it is" not in result.stdout
    assert changed(repo) == {"build_matrix.yaml", "recipe/recipe.yaml"}
    assert "  summary: Said otherwise  #=" in (repo / "recipe" / "recipe.yaml").read_text()


def test_a_mistake_in_the_matrix_stops_it_before_it_begins(repo: Path, later: Path) -> None:
    matrix = repo / "build_matrix.yaml"
    matrix.write_text(matrix.read_text().replace("schema: 1", "schema: 9"))
    check_refused(repo, later, "build_matrix.yaml", "schema")


@pytest.mark.parametrize("name", ["../outside", "a/../../outside", "/etc/outside", ".git/config"])
def test_a_record_that_names_files_outside_deletes_none(repo: Path, later: Path, name: str) -> None:
    (repo.parent / "outside").write_text("mine\n")
    digest = hashlib.sha256(b"mine\n").hexdigest()
    edit_record(repo, lambda record: record["generated"].update({name: digest}))
    check_refused(repo, later, name, "not a file of this repository")
    assert (repo.parent / "outside").read_text() == "mine\n"


def test_a_record_whose_archive_lies_outside_is_refused(repo: Path, later: Path) -> None:
    edit_record(repo, lambda record: record.update(archive="../README.md"))
    check_refused(repo, later, "not a file of this repository")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"archive": 1}', '{"version": "1"}'])
def test_a_damaged_record_is_refused(repo: Path, later: Path, content: str) -> None:
    (repo / RECORD).write_text(content)
    check_refused(repo, later, "is damaged", "git checkout")


def test_a_folder_without_a_record_is_refused(tmp_path: Path, later: Path) -> None:
    (tmp_path / "repo").mkdir()
    check_refused(tmp_path / "repo", later, "`torchship new` did not make it")


def test_a_link_to_a_folder_outside_is_not_followed(repo: Path, later: Path) -> None:
    outside = repo.parent / "outside"
    (repo / "scripts").rename(outside)
    (repo / "scripts").symlink_to(outside)
    check_refused(repo, later, "scripts: must be a folder")


def test_a_link_in_the_place_of_a_file_is_not_replaced(repo: Path, later: Path) -> None:
    outside = repo.parent / "outside"
    (repo / TEMPLATED).rename(outside)
    (repo / TEMPLATED).symlink_to(outside)
    check_refused(repo, later, f"{TEMPLATED}: must be a file")


def test_a_folder_in_the_way_stops_it_before_it_begins(repo: Path, later: Path) -> None:
    (repo / TEMPLATED).unlink()
    (repo / TEMPLATED).mkdir()
    (repo / TEMPLATED / "mine").touch()
    check_refused(repo, later, f"{TEMPLATED}: must be a file")


def test_a_file_in_the_place_of_a_folder_stops_it_before_it_begins(repo: Path, later: Path) -> None:
    shutil.rmtree(repo / "recipe")
    (repo / "recipe").write_text("mine\n")
    check_refused(repo, later, "recipe: must be a folder")


STOPPED = """
import sys
from pathlib import Path
from torchship.project import record, update
changes = update.plan(Path(sys.argv[1]))
number = 0
def replace(path, content, **options):
    global number
    if number == int(sys.argv[2]):
        raise SystemExit("stopped")
    number += 1
    write(path, content, **options)
write = record.replace_file
update.replace_file = record.replace_file = replace
update.apply(changes)
"""


@pytest.mark.parametrize("writes", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 2))])
@pytest.mark.slow
def test_an_update_that_was_stopped_leaves_a_project_that_the_next_one_finishes(
    repo: Path, later: Path, writes: int
) -> None:
    command = [sys.executable, "-c", STOPPED, str(repo), str(writes)]
    environment = {"PYTHONPATH": str(later), "PATH": "/usr/bin:/bin"}
    stopped = subprocess.run(
        command, env=environment, cwd=repo.parent, capture_output=True, text=True
    )
    assert stopped.stderr == "stopped\n"
    record = json.loads((repo / RECORD).read_text())
    assert record["version"] == "0.1.0"
    assert (repo / "vendor" / record["archive"]).is_file()
    assert update(repo, later).returncode == 0
    assert json.loads((repo / RECORD).read_text())["version"] == "0.1.1"
    assert [path.name for path in (repo / "vendor").glob("*.whl")] == [
        "torchship-0.1.1-py3-none-any.whl"
    ]
    assert (repo / TEMPLATED).read_text().endswith(LATER)
