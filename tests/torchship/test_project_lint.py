"""A new project passes its own linters, however long its name is."""

from __future__ import annotations

import json
import os
import string
import subprocess
import sys
from pathlib import Path

import pytest
import small_projects
from new_projects import make

from torchship.project.lint import lint
from torchship.project.names import why_not
from torchship.project.render import names_of, render

ENV = Path(sys.executable).parents[1]
SHORTEST = 2
LONGEST = 24
CPP = (".h", ".cpp", ".cu")


def names() -> list[str]:
    """Names of every length; of the longer ones also some of several words."""
    plain = [f"my{string.ascii_lowercase}"[:size] for size in range(SHORTEST, LONGEST + 1)]
    dashed = [f"{name[:3]}-{name[4:]}" for name in plain if len(name) > 4]
    return plain + dashed


def write(root: Path, template: str, name: str) -> None:
    for path, file in render(template, names_of(name)).items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)


def test_the_names_that_are_tried_are_possible() -> None:
    assert [name for name in names() if why_not(name)] == []


@pytest.mark.parametrize("template", [pytest.param("rms_norm", marks=pytest.mark.slow), "aten"])
@pytest.mark.slow
def test_names_of_any_length_change_no_format(template: str, tmp_path: Path) -> None:
    """Python, Markdown and C++ have lines of at most 100 columns, broken as the formatters do."""
    for name in names():
        write(tmp_path / name, template, name)
    native = sorted(str(path) for path in tmp_path.rglob("*") if path.suffix in CPP)
    assert native
    ruff = str(ENV / "bin" / "ruff")
    clang_format = str(ENV / "bin" / "clang-format")
    for command in (
        [ruff, "check", "--quiet", "--no-cache", "."],
        [ruff, "format", "--diff", "--quiet", "--no-cache", "."],
        [clang_format, "--dry-run", "-Werror", *native],
    ):
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr


def test_workflows_that_init_kept_are_the_authors(tmp_path: Path) -> None:
    """The record holds them with an empty hash."""
    workflows = {
        f".github/workflows/{name}.yml": digest for name, digest in (("a", "1"), ("b", ""))
    }
    record = {"version": "0.1.0", "archive": "torchship.whl", "generated": workflows}
    said = tmp_path / "said.txt"
    tool = f"#!/bin/sh\nprintf '%s\\n' \"$@\" >> {said}\n"
    small_projects.write(
        tmp_path,
        {
            "pyproject.toml": "",
            "vendor/torchship.json": json.dumps(record),
            "env/bin/check-jsonschema": tool,
            "env/bin/zizmor": tool,
            **dict.fromkeys(workflows, "name: it\n"),
        },
    )
    for path in (tmp_path / "env" / "bin").iterdir():
        path.chmod(0o755)
    assert lint(tmp_path, tmp_path / "env", fix=False) == []
    checked = [line for line in said.read_text().splitlines() if line.endswith(".yml")]
    assert checked == 2 * [str(tmp_path / ".github/workflows/a.yml")]


@pytest.mark.slow
def test_all_linters_pass_and_a_wrong_type_is_found(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """With types, workflows and shell scripts, and without a word; clients/test_project_builds.py
    runs those of the other template. mypy remembers what it has read, so one project shows both."""
    repo = make(tmp_path, "my-op", "--template", "aten")
    environment = {**os.environ, "PATH": f"{ENV / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    program = "import runpy, sys; runpy.run_path(sys.argv[1])"
    # Unpacks torchship, which mypy sees inside the package.
    command = [sys.executable, "-c", program, str(repo / "vendor" / "backend.py")]
    subprocess.run(command, env=environment, check=True)
    assert lint(repo, ENV, fix=False) == []
    assert capfd.readouterr().out == ""
    with (repo / "my_op" / "functions.py").open("a", encoding="utf-8") as module:
        module.write('count: int = "one"\n')
    assert lint(repo, ENV, fix=False) == ["mypy"]
    assert "Incompatible types in assignment" in capfd.readouterr().out
