"""How scripts/build_all.sh and `torchship release` start the tool."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from release_places import REPO

LAUNCHER = Path("torchship", "release", "launch", "run_module.py")


@pytest.fixture
def elsewhere(tmp_path) -> Path:
    """A folder whose modules would be found before ours, if one looked there."""
    for name in ("torchship", "lltm_conda"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('the wrong one')\n")
    return tmp_path


def test_the_folder_that_it_is_started_in_does_not_matter(elsewhere) -> None:
    env = {**os.environ, "PYTHONPATH": str(REPO), "LLTM_CONDA_LOAD": "0"}
    command = [sys.executable, REPO / LAUNCHER, "torchship.release", "--help"]
    process = subprocess.run(command, cwd=elsewhere, env=env, capture_output=True, text=True)
    assert process.returncode == 0 and "build_matrix.yaml" in process.stdout, process.stderr


@pytest.fixture
def tree(tmp_path) -> Path:
    """The scripts in a tree whose tool environment is made, and says how its Python is called."""
    root = tmp_path / "tree"
    unwanted = shutil.ignore_patterns("__pyc*")
    shutil.copytree(REPO / "scripts", root / "scripts", ignore=unwanted)
    shutil.copytree(REPO / "torchship", root / "torchship", ignore=unwanted)
    for name in ("project.env", "build_matrix.yaml"):
        shutil.copy(REPO / name, root)
    stub = root / "build" / "tools" / "bin" / "python"
    stub.parent.mkdir(parents=True)
    stub.write_text('#!/bin/sh\necho "$RELEASE_PROJECT" "$@"\n')
    stub.chmod(0o755)
    lock = root / "torchship" / "release" / "requirements" / "release.txt"
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
    assert process.stdout == f"{tree} {tree / LAUNCHER} {means}\n", process.stderr


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
    assert "waiting for another run" in message
    assert (tree / "build" / "tools" / "bin" / "python").exists()


# A module `venv` whose environments take a while to make; it says where each is begun.
SLOW_VENV = """
import os, pathlib, sys, time
bin_folder = pathlib.Path(sys.argv[1], "bin")
bin_folder.mkdir(parents=True)
with open(os.environ["MADE"], "a") as made:
    made.write("begun\\n")
time.sleep(2)
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


def test_what_the_environment_gets_is_locked_by_hashes(tree, tmp_path) -> None:
    shutil.rmtree(tree / "build" / "tools")
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "venv.py").write_text(SLOW_VENV)
    env = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(modules)}
    env |= {"STUB": '#!/bin/sh\necho "$@"\n', "MADE": str(tmp_path / "made")}
    subprocess.run([tree / "scripts" / "build_all.sh"], env=env, capture_output=True, check=True)
    installs = (tree / "build" / "logs" / "tools.log").read_text().splitlines()
    assert len(installs) == 2
    assert all("install --quiet --require-hashes -r /" in line for line in installs)


def test_of_two_first_starts_one_makes_the_environment_and_one_waits(tree, tmp_path) -> None:
    shutil.rmtree(tree / "build" / "tools")
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "venv.py").write_text(SLOW_VENV)
    env = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(modules), "STUB": STUB}
    env["MADE"] = str(tmp_path / "made")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    both = [subprocess.Popen([tree / "scripts" / "build_all.sh"], env=env, **pipes) for _ in "ab"]
    outputs, errors = zip(*(process.communicate(timeout=60) for process in both), strict=True)
    assert outputs == ("started\n", "started\n"), errors
    assert (tmp_path / "made").read_text() == "begun\n"
    assert any("waiting for another run" in error for error in errors)


@pytest.mark.parametrize(
    ("script", "argument"), [("build_all.sh", "--list"), ("cibuildwheel.sh", "before-all")]
)
@pytest.mark.parametrize("name", ["a:b", "c\nd", "e\n", "f\rg"], ids=ascii)
def test_a_checkout_that_cannot_be_named_is_refused_in_one_sentence(
    tree, name, script, argument
) -> None:
    odd = tree.rename(tree.with_name(name))
    shutil.rmtree(odd / "build")
    env = {**os.environ, "PYTHON": sys.executable}
    command = [odd / "scripts" / script, argument]
    process = subprocess.run(command, env=env, capture_output=True, text=True)
    assert (process.returncode, process.stderr.count("\n")) == (2, 1), process.stderr
    assert process.stderr.endswith("; rename or move it\n")
    assert not (odd / "build").exists()


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
    assert process.stdout == f"{odd} {odd / LAUNCHER} torchship.release --list\n", process.stderr


def test_an_installed_torchship_is_found_in_the_environment_without_its_neighbours(
    tree, tmp_path
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (tree / "torchship").rename(site / "torchship")
    (site / "torchship-1.0.dist-info").mkdir()
    (site / "pydantic.py").touch()
    env = {**os.environ, "PYTHON": sys.executable, "RELEASE_PROJECT": str(tree)}
    command = [sys.executable, site / LAUNCHER, "torchship.release.start", "torchship.release"]
    process = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    _, program, _ = process.stdout.split()
    place = Path(program).parents[3]
    assert place.is_relative_to(tree / "build" / "tools")
    assert {path.name for path in place.iterdir()} == {"torchship", "torchship-1.0.dist-info"}
    assert Path(program).resolve() == site / LAUNCHER
