"""What follows from a matrix is written into a project's files, and stays true to it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from processes import clean_environment
from rendered_client import write_checkout
from small_checkout import CHECKOUT
from small_client import PROJECT
from small_clients import REPO

from torchship.release import ReleaseError
from torchship.release.matrix.cells import all_cells, for_conda
from torchship.release.matrix.generated import drifted, named, project_record, project_variables
from torchship.release.matrix.settings import make_project


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A checkout of the client that a test may change."""
    return write_checkout(tmp_path / "checkout")


def test_the_files_of_a_new_project_are_what_its_matrix_says(settings) -> None:
    assert list(drifted(settings)) == []


@pytest.mark.parametrize("name", ["recipe/recipe.yaml", "environment.yml", "pyproject.toml"])
def test_another_project_finds_its_own_name_wherever_one_stands(matrix, name: str) -> None:
    content = (CHECKOUT / name).read_text(encoding="utf-8")
    keys = ("distribution", "package", "prefix", "url", "summary")
    other = {key: f"other-{key}" for key in keys}
    project = matrix.project.model_copy(update={**other, "maintainers": ["somebody"]})
    changed = matrix.model_copy(update={"project": project})
    assert re.search("tiny.client", content)
    renamed = named(content, changed, PROJECT.version)
    assert "other-" in renamed
    assert not re.search("tiny.client", renamed, re.IGNORECASE)


def test_a_shell_and_a_regular_expression_read_the_same_names(matrix, tmp_path) -> None:
    """As scripts do, and as setup.py, CMake and the smoke test do."""
    content = project_variables(matrix)
    (tmp_path / "project.env").write_text(content, encoding="utf-8")
    pairs = dict(re.findall(r'^(PROJECT_\w+)="(.*)"$', content, re.MULTILINE))
    assert pairs["PROJECT_PACKAGE"] == matrix.project.package
    script = ". ./project.env && set | grep ^PROJECT_"
    env = {"PATH": os.environ["PATH"]}
    result = subprocess.run(["sh", "-c", script], cwd=tmp_path, env=env, capture_output=True)
    lines = result.stdout.decode().replace("'", "").splitlines()
    assert sorted(lines) == sorted(f"{name}={value}" for name, value in pairs.items())


@pytest.mark.parametrize("name", ["a b", "$HOME", 'a"b', "a;b", "a`b`"])
def test_a_name_that_a_shell_would_change_is_refused(matrix, name: str) -> None:
    project = matrix.project.model_copy(update={"distribution": name})
    with pytest.raises(ReleaseError, match=r"distribution is .*; choose another name"):
        project_variables(matrix.model_copy(update={"project": project}))


def run_python(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs Python in a checkout, with this torchship."""
    env = clean_environment(PYTHONPATH=str(REPO), PYTHONDONTWRITEBYTECODE="1")
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=env, cwd=checkout, capture_output=True, text=True)


OLD_RECORD = "from .engine.judge.project import Project\nProject(old=1)\n"


@pytest.mark.parametrize("record", [None, pytest.param(OLD_RECORD, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_record_that_does_not_fit_the_engine_is_written_again(checkout, record) -> None:
    path = checkout / "tiny_client" / "_project.py"
    right = path.read_text(encoding="utf-8")
    path.unlink() if record is None else path.write_text(record)
    refused = run_python(checkout, "-m", "torchship.release", "--list")
    assert refused.returncode == 2
    assert "tiny_client/_project.py: not what build_matrix.yaml says" in refused.stdout
    written = run_python(checkout, "-m", "torchship.release", "generate")
    assert written.returncode == 0, written.stdout + written.stderr
    assert path.read_text(encoding="utf-8") == right


IMPORT_ALL = """
import importlib, os, pkgutil, sys
variables, hooks, path = dict(os.environ), list(sys.meta_path), list(sys.path)
import torchship.release
for module in pkgutil.iter_modules(torchship.release.__path__):
    if module.name != "fatbinary":
        importlib.import_module(f"torchship.release.{module.name}")
assert dict(os.environ) == variables, "a variable was set"
assert (sys.meta_path, sys.path) == (hooks, path), "an import hook or a folder was added"
assert "tiny_client" not in sys.modules, "the package was imported"
"""


def test_an_import_of_the_tool_has_no_effect(checkout) -> None:
    """Not even where the matrix and the generated files are missing."""
    (checkout / "build_matrix.yaml").unlink()
    (checkout / "tiny_client" / "_project.py").unlink()
    files = sorted(checkout.rglob("*"))
    process = run_python(checkout, "-c", IMPORT_ALL)
    assert (process.returncode, process.stderr) == (0, "")
    assert sorted(checkout.rglob("*")) == files


def test_the_record_in_the_package_is_that_of_the_tool(matrix) -> None:
    namespace: dict[str, object] = {}
    record = project_record(matrix).replace("from ._version import __version__", "")
    record = record.replace("from .engine.judge", "from torchship.judge")
    exec(record, namespace | {"__version__": PROJECT.version, "__file__": "x"}, namespace)
    expected = make_project(matrix, CHECKOUT)
    assert namespace["PROJECT"]._replace(folder=expected.folder) == expected


def test_no_conda_variant_is_for_an_abi_that_conda_forge_never_had(matrix) -> None:
    assert not [c.name for c in all_cells(matrix) if for_conda(c) and c.name.find("abi0") > 0]
