"""How scripts/build_all.sh and scripts/cibuildwheel.sh start the release tool of this checkout."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from release_places import REPO

LAUNCHER = Path("torchship", "release", "launch", "run_module.py")
SCRIPTS = [
    ("build_all.sh", ["--list"], "torchship.release --list"),
    ("cibuildwheel.sh", ["repair", "a", "b"], "torchship.release.matrix.cibuildwheel repair a b"),
]


@pytest.fixture
def elsewhere(tmp_path) -> Path:
    """A folder whose modules would be found before ours, if one looked there."""
    for name in ("torchship", "lltm_conda"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('the wrong one')\n")
    return tmp_path


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


def run(script: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHON": sys.executable}
    command = [str(script), *arguments]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)


@pytest.mark.parametrize(("script", "arguments", "meaning"), SCRIPTS)
def test_both_scripts_start_it_so(script, arguments, meaning, tree, elsewhere) -> None:
    process = run(tree / "scripts" / script, *arguments, cwd=elsewhere)
    assert process.stdout == f"{tree} {tree / LAUNCHER} {meaning}\n", process.stderr


@pytest.mark.parametrize(("script", "arguments", "meaning"), SCRIPTS)
def test_a_checkout_in_an_odd_folder_starts(script, arguments, meaning, tree, elsewhere) -> None:
    odd = tree.rename(tree.with_name('a b|c\'d "e" $f'))
    process = run(odd / "scripts" / script, *arguments, cwd=elsewhere)
    assert process.stdout == f"{odd} {odd / LAUNCHER} {meaning}\n", process.stderr


@pytest.mark.parametrize(
    ("script", "argument"), [("build_all.sh", "--list"), ("cibuildwheel.sh", "before-all")]
)
@pytest.mark.parametrize("name", ["a:b", "c\nd", "e\n", "f\rg"], ids=ascii)
def test_a_checkout_that_cannot_be_named_is_refused_in_one_sentence(
    tree, name, script, argument
) -> None:
    odd = tree.rename(tree.with_name(name))
    shutil.rmtree(odd / "build")
    process = run(odd / "scripts" / script, argument, cwd=odd)
    assert (process.returncode, process.stderr.count("\n")) == (2, 1), process.stderr
    assert process.stderr.endswith("; rename or move it\n")
    assert not (odd / "build").exists()
