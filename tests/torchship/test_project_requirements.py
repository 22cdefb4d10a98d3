"""What `torchship test` installs beside the package, before it runs the tests."""

import sys
from pathlib import Path

from torchship.project.test_env import install_requirements

UV = """#!/bin/sh
pwd > {said}
printf '%s\\n' "$@" >> {said}
"""


def _installed(tmp_path: Path, pyproject: str) -> list[str]:
    """The folder in which uv is run, and its arguments; none if it is not run."""
    root, env, said = tmp_path / "root", tmp_path / "env", tmp_path / "said.txt"
    root.mkdir()
    (env / "bin").mkdir(parents=True)
    (root / "pyproject.toml").write_text(pyproject, encoding="utf-8")
    programs = {"python": f'#!/bin/sh\nexec {sys.executable} "$@"\n', "uv": UV.format(said=said)}
    for name, text in programs.items():
        program = env / "bin" / name
        program.write_text(text, encoding="utf-8")
        program.chmod(0o755)
    install_requirements(root, env, "ninja")  # it requires nothing
    return said.read_text(encoding="utf-8").splitlines() if said.exists() else []


def test_the_groups_of_the_tests_are_installed(tmp_path: Path) -> None:
    """In the repository's folder, where uv finds the groups and its own table of sources."""
    groups = '[dependency-groups]\ndocs = ["sphinx"]\ntest = [\n  "pytest",\n]\ndev = ["numba"]\n'
    said = _installed(tmp_path, groups)
    assert said[0] == str(tmp_path / "root")
    assert said[-4:] == ["--group", "test", "--group", "dev"]


def test_a_group_cannot_replace_the_torch_under_test(tmp_path: Path) -> None:
    said = _installed(tmp_path, '[dependency-groups]\ndev = ["torch>=1"]\n')
    overrides = Path(said[said.index("--overrides") + 1])
    assert overrides.read_text(encoding="utf-8").startswith("torch==2")


def test_without_requirements_nothing_is_installed(tmp_path: Path) -> None:
    assert _installed(tmp_path, "[project]\nname = 'x'\n") == []
