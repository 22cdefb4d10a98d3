"""How scripts/build_all.sh starts the tool."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from torchship.release.settings import REPO


@pytest.fixture
def elsewhere(tmp_path) -> Path:
    """A folder whose modules would be found before ours, if one looked there."""
    for name in ("torchship", "lltm_conda"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('the wrong one')\n")
    return tmp_path


def test_the_folder_that_it_is_started_in_does_not_matter(elsewhere) -> None:
    env = {**os.environ, "PYTHONPATH": str(REPO), "LLTM_CONDA_LOAD": "0"}
    command = [sys.executable, REPO / "scripts" / "release_tool.py", "torchship.release", "--help"]
    process = subprocess.run(command, cwd=elsewhere, env=env, capture_output=True, text=True)
    assert process.returncode == 0 and "build_matrix.yaml" in process.stdout, process.stderr


@pytest.fixture
def tree(tmp_path) -> Path:
    """The scripts in a tree whose tool environment is made, and says how its Python is called."""
    root = tmp_path / "tree"
    shutil.copytree(REPO / "scripts", root / "scripts", ignore=shutil.ignore_patterns("__pyc*"))
    shutil.copy(REPO / "project.env", root)
    stub = root / "build" / "tools" / "bin" / "python"
    stub.parent.mkdir(parents=True)
    stub.write_text('#!/bin/sh\necho "$PYTHONPATH" "$@"\n')
    stub.chmod(0o755)
    lock = root / "requirements" / "release.txt"
    lock.parent.mkdir()
    shutil.copy(REPO / "requirements" / "release.txt", lock)
    required = lock.read_text(encoding="utf-8")
    made_for = hashlib.sha256((required + sys.version + sys.base_prefix).encode()).hexdigest()
    (stub.parents[1] / ".complete").write_text(f"{made_for}\n")
    return root


@pytest.mark.parametrize(
    ("name", "arguments", "means"),
    [
        ("build_all.sh", ["--list"], "torchship.release --list"),
        (
            "cibuildwheel.sh",
            ["repair", "a.whl", "out"],
            "torchship.release.cibuildwheel repair a.whl out",
        ),
    ],
)
def test_both_scripts_start_it_so(name, arguments, means, tree, elsewhere) -> None:
    env = {**os.environ, "PYTHON": sys.executable}
    command = [tree / "scripts" / name, *arguments]
    process = subprocess.run(command, cwd=elsewhere, env=env, capture_output=True, text=True)
    scripts = tree / "scripts"
    assert process.stdout == f"{tree} {scripts / 'release_tool.py'} {means}\n", process.stderr


def test_the_environment_is_not_replaced_while_a_tool_runs_in_it(tree) -> None:
    """A start with other requirements waits, and says so."""
    (tree / "build" / "tools" / ".complete").write_text("for other requirements\n")
    command = [tree / "scripts" / "build_all.sh"]
    env = {**os.environ, "PYTHON": sys.executable}
    with (tree / "build" / "tools.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)  # as a tool that runs
        with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as second:
            message = second.stderr.readline()
            second.kill()
    assert "waiting for another build_all.sh" in message
    assert (tree / "build" / "tools" / "bin" / "python").exists()


# A Python whose environments take a while to make; it says where each is begun.
SLOW = """#!/bin/sh
case "$1 $2" in
  "-m venv")
    echo begun >>"$MADE"; mkdir -p "$3/bin"; sleep 2
    cp "$0" "$3/bin/python"; ln -s /bin/true "$3/bin/uv" ;;
  "-m pip") ;;
  *"print(sys.executable)"*) echo "$0" ;;
  *release_tool.py*) [ -f "${0%/bin/python}/.complete" ] && echo started ;;
  *) exec "$REAL" "$@" ;;
esac
"""


def test_of_two_first_starts_one_makes_the_environment_and_one_waits(tree, tmp_path) -> None:
    shutil.rmtree(tree / "build" / "tools")
    (python := tmp_path / "python").write_text(SLOW)
    python.chmod(0o755)
    env = {**os.environ, "PYTHON": str(python), "REAL": sys.executable}
    env["MADE"] = str(tmp_path / "made")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    both = [subprocess.Popen([tree / "scripts" / "build_all.sh"], env=env, **pipes) for _ in "ab"]
    outputs, errors = zip(*(process.communicate(timeout=60) for process in both), strict=True)
    assert outputs == ("started\n", "started\n"), errors
    assert (tmp_path / "made").read_text() == "begun\n"
    assert any("waiting for another build_all.sh" in error for error in errors)


@pytest.mark.parametrize("script", ["build_all.sh", "cibuildwheel.sh"])
@pytest.mark.parametrize("name", ["a:b", "c\nd", "e\n", "f\rg"], ids=ascii)
def test_a_checkout_that_cannot_be_named_is_refused_in_one_sentence(tmp_path, name, script) -> None:
    scripts = tmp_path / name / "scripts"
    scripts.mkdir(parents=True)
    shutil.copy(REPO / "scripts" / script, scripts)
    process = subprocess.run([scripts / script, "--list"], capture_output=True, text=True)
    assert (process.returncode, process.stderr.count("\n")) == (2, 1), process.stderr
    assert process.stderr.endswith("; rename or move it\n")
    assert list((tmp_path / name).iterdir()) == [scripts]


@pytest.mark.parametrize("name", ["build", "dist"])
def test_a_checkout_that_cannot_be_written_is_refused_with_what_to_do(tree, name) -> None:
    """Here a file is in the way; root may write whatever the mode says."""
    shutil.rmtree(tree / name, ignore_errors=True)
    (tree / name).touch()
    env = {**os.environ, "PYTHON": sys.executable}
    command = [tree / "scripts" / "build_all.sh", "--list"]
    process = subprocess.run(command, env=env, capture_output=True, text=True)
    *_, last = process.stderr.splitlines()
    assert process.returncode == 2
    assert last.startswith("error: ") and last.endswith(
        "; make them writable, or clone it elsewhere"
    )


def test_a_checkout_in_an_odd_folder_starts(tree, elsewhere) -> None:
    odd = tree.rename(tree.with_name('a b|c\'d "e" $f'))
    env = {**os.environ, "PYTHON": sys.executable}
    command = [odd / "scripts" / "build_all.sh", "--list"]
    process = subprocess.run(command, cwd=elsewhere, env=env, capture_output=True, text=True)
    program = odd / "scripts" / "release_tool.py"
    assert process.stdout == f"{odd} {program} torchship.release --list\n", process.stderr
