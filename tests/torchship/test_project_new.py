"""A new project is small and its author's own, and nothing in it speaks of another project."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import tomllib
from new_projects import REPO, TEMPLATES, make, torchship, tracked

from torchship.project import archive, render
from torchship.project.archive import make_archive
from torchship.project.errors import ProjectError

MOST_FILES = 40
MOST_LINES_OF_SHIM = 30


@pytest.fixture(scope="module", params=TEMPLATES)
def repo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    options = ("--author", "Ada O'Brien", "--url", "https://github.com/ada/my-op")
    folder = tmp_path_factory.mktemp(request.param)
    return make(folder, "my-op", "--template", request.param, *options)


def texts(repo: Path) -> dict[str, str]:
    return {
        name: (repo / name).read_text(encoding="utf-8")
        for name in tracked(repo)
        if not name.endswith(".whl")
    }


def test_it_has_few_files_and_git_has_all(repo: Path) -> None:
    names = tracked(repo)
    on_disk = {str(path.relative_to(repo)) for path in repo.rglob("*") if path.is_file()}
    assert {name for name in on_disk if not name.startswith(".git/")} == {*names}
    assert len(names) <= MOST_FILES


def test_no_name_of_the_templates_or_of_another_project_is_left(repo: Path) -> None:
    names = re.compile(r"own[-_]op|lltm|YOUR NAME|THIS YEAR|example\.org", re.IGNORECASE)
    assert [
        (name, names.findall(text)) for name, text in texts(repo).items() if names.search(text)
    ] == []


def test_the_author_stands_where_a_licence_and_an_index_look(repo: Path) -> None:
    content = texts(repo)
    assert re.search(r"^Copyright \(c\) 20\d\d Ada O'Brien$", content["LICENSE"], re.MULTILINE)
    assert "- name: Ada O'Brien" in content["CITATION.cff"]
    project = tomllib.loads(content["pyproject.toml"])["project"]
    assert project["authors"] == [{"name": "Ada O'Brien"}]
    assert project["urls"]["Repository"] == "https://github.com/ada/my-op"


def test_the_readme_says_first_what_the_op_does(repo: Path) -> None:
    lines = texts(repo)["README.md"].splitlines()
    assert lines[:2] == ["# my-op", ""]
    assert re.match(r"(RMSNorm|An affine map) for PyTorch, ", lines[2])


def test_nothing_cites_a_file_that_the_project_has_not(repo: Path) -> None:
    cited = re.compile(
        r"(?<![\w/.$-])(?:scripts|docs|requirements|measurements|cmake|\.ci)/[\w./-]+\w"
    )
    missing = {
        (name, path)
        for name, text in texts(repo).items()
        for path in cited.findall(text)
        if not (repo / path).exists()
    }
    assert missing == set()


def test_what_torchship_generated_says_so_and_is_recorded(repo: Path) -> None:
    content = texts(repo)
    record = json.loads(content["vendor/torchship.json"])
    marked = {
        name
        for name, text in content.items()
        if re.search("^\\W*Generated (by|from) ", text, re.MULTILINE)
    }
    unmarkable = {"my_op/support.json"}  # JSON has no comments
    assert {*record["generated"]} == marked | unmarkable


def test_no_index_is_asked_for_torchship(repo: Path) -> None:
    build = tomllib.loads(texts(repo)["pyproject.toml"])["build-system"]
    assert [name for name in build["requires"] if "torchship" in name] == []
    assert (build["build-backend"], build["backend-path"]) == ("backend", ["vendor"])
    assert "Once it is, `pyproject.toml` can require it by name" in texts(repo)["README.md"]


def test_the_shim_is_short(repo: Path) -> None:
    assert len(texts(repo)["vendor/backend.py"].splitlines()) <= MOST_LINES_OF_SHIM


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_command_says_that_the_operator_is_an_example(template: str, tmp_path: Path) -> None:
    result = torchship("new", "fine", "--template", template, cwd=tmp_path)
    name, operator, next_steps = result.stdout.splitlines()
    assert name == "fine: fine, with torchship in fine/vendor"
    example = {"rms_norm": "RMSNorm", "aten": "affine"}[template]
    assert re.match(rf"its operator is an example for you to replace: .*{example}", operator)
    assert next_steps == "commit it, then: cd fine; scripts/build_all.sh host; scripts/test.sh"


def test_the_command_of_the_page_makes_its_project(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    page = (REPO / "docs" / "ship" / "own-op.md").read_text(encoding="utf-8")
    commands = page.replace("\\\n", "")  # which continues a line
    (command,) = re.findall(r"^python -m torchship (new .*)$", commands, re.MULTILINE)
    result = torchship(*shlex.split(command), cwd=checkout)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "my-scale" / "build_matrix.yaml").is_file()


def test_a_folder_with_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = torchship("new", "fine", tmp_path, cwd=tmp_path)
    assert result.returncode == 2
    assert "must be empty" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--author", 'a "quoted" name'),
        ("--author", ""),
        ("--author", "two\nlines"),
        ("--url", "http://example.com"),
        ("--url", "https://example.com/{package}"),
    ],
)
def test_what_would_break_a_file_is_refused(option: str, value: str, tmp_path: Path) -> None:
    result = torchship("new", "fine", option, value, cwd=tmp_path)
    assert result.returncode == 2
    assert option in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_an_old_setuptools_is_named_with_what_to_do(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(archive, "version", lambda _: "65.5.0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    message = r'needs setuptools 77 .* has 65, .* pip install --upgrade "setuptools>=77"'
    with pytest.raises(ProjectError, match=message):
        make_archive(tmp_path)


@pytest.mark.network
def test_pip_fetches_the_setuptools_that_this_python_lacks(tmp_path: Path, monkeypatch) -> None:
    with zipfile.ZipFile(make_archive(tmp_path)) as wheel:
        names = {*wheel.namelist()}
    monkeypatch.setattr(archive, "version", lambda _: "65.5.0")
    with zipfile.ZipFile(make_archive(tmp_path)) as wheel:
        assert {*wheel.namelist()} == names


def test_an_archive_of_a_checkout_leaves_nothing_in_it(tmp_path: Path) -> None:
    def files() -> set[Path]:
        return {path for path in (REPO / "torchship").rglob("*") if "__pycache__" not in path.parts}

    before = files()
    make_archive(tmp_path)
    assert files() == before


@pytest.mark.slow
def test_one_torchship_makes_one_archive(tmp_path: Path) -> None:
    archives = [
        make_archive(tmp_path / name) for name in ("a", "b") if not (tmp_path / name).mkdir()
    ]
    assert archives[0].read_bytes() == archives[1].read_bytes()


@pytest.mark.slow
def test_an_installed_torchship_makes_the_wheel_that_it_came_from(tmp_path: Path) -> None:
    wheel = make_archive(tmp_path)
    site = tmp_path / "site"
    uv = Path(sys.executable).with_name("uv")
    command = [uv, "pip", "install", "-q", "--no-deps", "--offline", "--target", site, wheel]
    subprocess.run(command, check=True, capture_output=True)
    result = torchship("new", "my-op", cwd=tmp_path, path=site)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "my-op" / "vendor" / wheel.name).read_bytes() == wheel.read_bytes()


def test_the_archive_is_a_whole_torchship(tmp_path: Path) -> None:
    names = set(zipfile.ZipFile(make_archive(tmp_path)).namelist())
    sources = tracked(REPO / "torchship")
    metadata = {"LICENSE", "README.md", "pyproject.toml"}
    packed = {f"torchship/{name}" for name in sources if Path(name).name not in metadata}
    packed |= {f"torchship/{name}" for name in sources if name.startswith("templates/")}
    # The top of a package that only the distribution torch-doctor has.
    packed -= {f"torchship/doctor/torch_doctor/{name}" for name in ("__init__.py", "__main__.py")}
    assert packed - names == set()


@pytest.mark.slow
def test_the_workflows_pin_the_actions_that_ours_pin() -> None:
    def pins(folder: Path) -> set[str]:
        return {
            pin
            for path in folder.glob("*.yml")
            for pin in re.findall(r"uses: (\S+)", path.read_text(encoding="utf-8"))
        }

    theirs = pins(render.TEMPLATES / "project" / "dot-github" / "workflows")
    assert len(theirs) > 3
    assert theirs - pins(REPO / ".github" / "workflows") == set()
