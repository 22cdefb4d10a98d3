"""How the release tool starts: in an environment of its own, which one start makes."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small_checkout import ENVIRONMENT, MATRIX
from small_clients import REPO, TORCHSHIP

LAUNCHER = Path("torchship", "release", "launch", "run_module.py")
START = [sys.executable, str(REPO / LAUNCHER), "torchship.release.start", "torchship.release"]


@pytest.fixture
def elsewhere(tmp_path) -> Path:
    """A folder whose modules would be found before ours, if one looked there."""
    for name in ("torchship", "tiny_client"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('the wrong one')\n")
    return tmp_path


def test_the_folder_that_it_is_started_in_does_not_matter(elsewhere) -> None:
    command = [sys.executable, REPO / LAUNCHER, "torchship.release", "--help"]
    process = subprocess.run(
        command, cwd=elsewhere, env=ENVIRONMENT, capture_output=True, text=True
    )
    assert process.returncode == 0 and "build_matrix.yaml" in process.stdout, process.stderr


@pytest.fixture
def project(tmp_path) -> Path:
    """A project whose tool environment is made, and says how its Python is called."""
    root = tmp_path / "project"
    stub = root / "build" / "tools" / "bin" / "python"
    stub.parent.mkdir(parents=True)
    stub.write_text('#!/bin/sh\necho "$RELEASE_PROJECT" "$@"\n')
    stub.chmod(0o755)
    shutil.copy(MATRIX, root)
    lock = TORCHSHIP / "release" / "requirements" / "release.txt"
    required = lock.read_text(encoding="utf-8")
    made_for = hashlib.sha256((required + sys.version + sys.base_prefix).encode()).hexdigest()
    (stub.parents[1] / ".complete").write_text(f"{made_for}\n")
    return root


def environment(project: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "RELEASE_PROJECT": str(project), **more}


def start(
    project: Path, *arguments: str, cwd: Path | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """Starts the tool for a project as `torchship release` does."""
    env = environment(project, **more)
    command = [*START, *arguments]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)


@pytest.mark.parametrize("name", ["project", 'a b|c\'d "e" $f'])
def test_the_tool_runs_for_the_project_whatever_its_folder_is_called(
    project, name, elsewhere
) -> None:
    root = project.rename(project.with_name(name))
    process = start(root, "--list", cwd=elsewhere)
    head, _, program = process.stdout.removesuffix(" torchship.release --list\n").rpartition(
        f" {root}/"
    )
    assert head == str(root), process.stdout + process.stderr
    assert (root / program).resolve() == REPO / LAUNCHER


def test_the_workflows_of_a_project_find_files_of_torchship(project) -> None:
    assert start(project, "--list").returncode == 0
    workflows = TORCHSHIP / "templates" / "project" / "dot-github" / "workflows"
    named = re.findall(r"build/tools/path/(\S+)", (workflows / "release.yml").read_text("utf-8"))
    assert len(named) > 1
    path = project / "build" / "tools" / "path"
    assert [name for name in named if not (path / name).is_file()] == []


def test_the_environment_is_not_replaced_while_a_tool_runs_in_it(project) -> None:
    """A start with other requirements waits, and says so."""
    (project / "build" / "tools" / ".complete").write_text("for other requirements\n")
    env = environment(project)
    with (project / "build" / "tools.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)  # as a tool that runs
        with subprocess.Popen(START, env=env, stderr=subprocess.PIPE, text=True) as second:
            message = second.stderr.readline()
            second.kill()
    assert "waiting for another run" in message
    assert (project / "build" / "tools" / "bin" / "python").exists()


# A module `venv` whose environments take a while to make; it says where each is begun.
SLOW_VENV = """
import os, pathlib, sys, time
bin_folder = pathlib.Path(sys.argv[1], "bin")
bin_folder.mkdir(parents=True)
with open(os.environ["MADE"], "a") as made:
    made.write("begun\\n")
time.sleep(float(os.environ["PAUSE"]))
for name in ("python", "uv"):
    (bin_folder / name).write_text(os.environ["STUB"])
    (bin_folder / name).chmod(0o755)
"""
# The Python of such an environment.
STUB = """#!/bin/sh
case "$*" in
  *run_module.py*) [ -f "${0%/bin/python}/.complete" ] && echo started ;;
esac
"""


@pytest.fixture
def made(project, tmp_path) -> Path:
    """What `SLOW_VENV` writes, in whose folder it lies; the project has no environment yet."""
    shutil.rmtree(project / "build" / "tools")
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "venv.py").write_text(SLOW_VENV)
    return modules / "made"


def test_what_the_environment_gets_is_locked_by_hashes(project, made) -> None:
    modules = {"PYTHONPATH": str(made.parent), "MADE": str(made), "PAUSE": "0"}
    process = start(project, STUB='#!/bin/sh\necho "$@"\n', **modules)
    assert process.returncode == 0, process.stderr
    installs = (project / "build" / "logs" / "tools.log").read_text().splitlines()
    assert len(installs) == 2
    assert all("install --quiet --require-hashes -r /" in line for line in installs)


def test_no_package_is_advised_whose_name_nobody_holds_yet(project, made) -> None:
    modules = {"PYTHONPATH": str(made.parent), "MADE": str(made), "PAUSE": "0"}
    process = start(project, STUB="#!/bin/sh\nexit 1\n", **modules)
    assert process.returncode == 2
    assert "pip install" not in process.stderr
    match = re.search(r"beside torchship what (/\S+) lists$", process.stderr)
    assert match and Path(match[1]).is_file(), process.stderr


@pytest.mark.slow
def test_of_two_first_starts_one_makes_the_environment_and_one_waits(project, made) -> None:
    modules = {"PYTHONPATH": str(made.parent), "MADE": str(made), "PAUSE": "2"}
    env = environment(project, STUB=STUB, **modules)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    both = [subprocess.Popen(START, env=env, **pipes) for _ in "ab"]
    outputs, errors = zip(*(process.communicate(timeout=60) for process in both), strict=True)
    assert outputs == ("started\n", "started\n"), errors
    assert made.read_text() == "begun\n"
    assert any("waiting for another run" in error for error in errors)


@pytest.mark.parametrize("name", ["a:b", "c\nd", "e\n", "f\rg"], ids=ascii)
def test_a_project_that_cannot_be_named_is_refused_in_one_sentence(project, name) -> None:
    odd = project.rename(project.with_name(name))
    shutil.rmtree(odd / "build")
    process = start(odd, "--list")
    assert (process.returncode, process.stderr.count("\n")) == (2, 1), process.stderr
    assert process.stderr.endswith("; rename or move it\n")
    assert not (odd / "build").exists()


@pytest.mark.parametrize("name", ["build", "dist"])
def test_a_project_that_cannot_be_written_is_refused_with_what_to_do(project, name) -> None:
    """Here a file is in the way; root may write whatever the mode says."""
    shutil.rmtree(project / name, ignore_errors=True)
    (project / name).touch()
    process = start(project, "--list")
    assert process.returncode == 2
    assert process.stderr.startswith("error: ")
    assert process.stderr.endswith("; make them writable, or clone it elsewhere\n")


def test_an_installed_torchship_is_found_in_the_environment_without_its_neighbours(
    project, tmp_path
) -> None:
    site = tmp_path / "site"
    shutil.copytree(TORCHSHIP, site / "torchship", ignore=shutil.ignore_patterns("__pyc*"))
    (site / "torchship-1.0.dist-info").mkdir()
    (site / "pydantic.py").touch()
    command = [sys.executable, site / LAUNCHER, *START[2:]]
    process = subprocess.run(
        command, cwd=tmp_path, env=environment(project), capture_output=True, text=True
    )
    _, program, _ = process.stdout.split()
    place = Path(program).parents[3]
    assert place.is_relative_to(project / "build" / "tools")
    assert {path.name for path in place.iterdir()} == {"torchship", "torchship-1.0.dist-info"}
    assert Path(program).resolve() == site / LAUNCHER
