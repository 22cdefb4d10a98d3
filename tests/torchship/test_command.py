"""The command `torchship`: its commands, exit codes, and where it finds a project."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from new_projects import forks_of

from torchship.command import COMMANDS

REPO = Path(__file__).resolve().parents[2]


def torchship(
    *arguments: str | Path, cwd: Path = REPO, code: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs `python -m torchship` from the checkout in another folder, after the Python `code`: then
    in a fresh process, which has imported nothing."""
    env = {k: v for k, v in os.environ.items() if k != "RELEASE_PROJECT"} | variables
    if not code:
        env["PYTHONPATH"] = str(REPO)
        return forks_of(REPO).module("torchship", *map(str, arguments), cwd=cwd, env=env)
    program = "import runpy, sys; sys.path.insert(0, sys.argv.pop(1))\n" + code
    program += "\nrunpy.run_module('torchship', run_name='__main__', alter_sys=True)"
    command = [sys.executable, "-P", "-c", program, str(REPO), *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)


def test_without_a_command_it_shows_them_and_fails() -> None:
    process = torchship()
    assert process.returncode == 2
    shown = {line.split()[0] for line in process.stdout.splitlines() if line.startswith("    ")}
    assert shown >= {command.name for command in COMMANDS}


@pytest.mark.parametrize("arguments", [["--no-such"], ["merge"], ["build", "--no-such"]])
def test_wrong_usage_is_told_with_code_2(arguments: list[str]) -> None:
    process = torchship(*arguments)
    assert process.returncode == 2
    assert process.stderr.startswith("usage: torchship")


@pytest.mark.parametrize("command", ["build", "list", "release", "generate"])
def test_outside_of_a_project_it_says_what_to_do(tmp_path: Path, command: str) -> None:
    process = torchship(command, cwd=tmp_path)
    assert process.returncode == 2
    assert f"{tmp_path} is in no project" in process.stdout + process.stderr
    assert "--project" in process.stdout + process.stderr


def test_no_command_loads_more_than_it_needs() -> None:
    """Help comes at once, where neither torch nor what the release tool needs is installed."""
    heavy = ("torch", "rich", "pydantic", "ruamel", "setuptools", "rattler")
    code = f"""
for name in {heavy}: sys.modules[name] = None  # any import of it raises
from torchship.command import COMMANDS, main
for command in COMMANDS[1:]:
    try:
        main([command.name, "--help"])
    except SystemExit as end:
        assert not end.code
"""
    process = torchship(COMMANDS[0].name, "--help", code=code)
    assert process.returncode == 0, process.stderr
    for command in COMMANDS:
        assert f"usage: torchship {command.name}" in process.stdout


def test_a_misspelt_command_gets_the_one_that_is_meant() -> None:
    process = torchship("relase", "host")
    assert process.returncode == 2
    expected = "error: torchship has no command 'relase'; did you mean release?\n"
    assert process.stderr == expected


@pytest.mark.parametrize("line", ["list host --json", "release --list host --json"])
@pytest.mark.slow
def test_release_has_the_grammar_of_the_script(line: str) -> None:
    process = torchship(*line.split())
    assert process.returncode == 0, process.stderr
    assert [cell["cell"] for cell in json.loads(process.stdout)["cells"]] == ["stable210-cpu"]


PROJECT_RECORD = """
from pathlib import Path
from .engine.judge.project import Project
PROJECT = Project(
    distribution="bare-client", package="bare_client", namespace="bare", prefix="BARE",
    operator="gram", version="0.1", folder=Path(__file__).parent,
)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project without kernels, which compiles soonest, as it stands in a checkout."""
    shutil.copytree(REPO / "tests" / "torchship" / "clients" / "bare", tmp_path, dirs_exist_ok=True)
    package = tmp_path / "bare_client"
    (package / "engine").mkdir(parents=True)
    (package / "engine" / "__init__.py").touch()
    (package / "_project.py").write_text(PROJECT_RECORD)
    (tmp_path / "build_matrix.yaml").touch()
    return tmp_path


@pytest.mark.slow
def test_build_puts_the_binaries_where_the_checkout_looks_for_them(project: Path) -> None:
    lib = project / "bare_client" / "lib"
    lib.mkdir()
    (lib / "kernels-of-an-earlier-build.so").touch()
    process = torchship("build", "--json", "--jobs", "1", cwd=project / "csrc", DEBUG="1")
    assert process.returncode == 0, process.stderr
    report = json.loads(process.stdout)
    assert [path.name for path in lib.iterdir()] == report["files"]
    assert report["files"][0].startswith("glue-")
    assert (lib.parent / "engine" / "judge" / "records.py").is_file()


def test_a_build_that_fails_is_told_with_code_1(project: Path) -> None:
    process = torchship("build", "--project", project, CXX="no-such-compiler")
    assert process.returncode == 1
    assert process.stderr.startswith("error: nothing was built: no C++ compiler")
    assert not (project / "bare_client" / "lib").exists()


@pytest.fixture
def no_wheel(tmp_path: Path) -> Path:
    path = tmp_path / "pure-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("pure/__init__.py", "")
    return path


@pytest.mark.slow
def test_audit_prints_json_for_programs(no_wheel: Path) -> None:
    process = torchship("audit", no_wheel, "--json")
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout)["serves"] == []
    assert torchship("audit", no_wheel.with_name("none.whl")).returncode == 2
