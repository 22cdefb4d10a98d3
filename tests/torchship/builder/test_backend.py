"""torchship.backend, the build backend of a new project: its hooks, called as a frontend does."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest
from new_projects import make
from processes import clean_environment

from torchship.judge import find_torch
from torchship.setuptools_build import SetupError, read_project

CALL = """
import sys
sys.path.insert(0, "vendor")  # as backend-path has it
import backend
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new project, in a folder with a space in its path."""
    folder = tmp_path_factory.mktemp("new") / "a folder"
    folder.mkdir()
    return make(folder, "some-op")


@pytest.fixture(scope="module")
def python_without_torch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python of an environment that has setuptools and no torch."""
    import setuptools

    place = tmp_path_factory.mktemp("isolated")
    venv.create(place, with_pip=False, symlinks=True)
    (site,) = place.glob("lib/python*/site-packages")
    for pattern in ("setuptools*", "_distutils_hack"):
        for path in Path(setuptools.__file__).parents[1].glob(pattern):
            (site / path.name).symlink_to(path)
    return place / "bin" / "python"


def call(
    tree: Path, code: str, python: str | Path = sys.executable, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(python), "-c", CALL + code],
        cwd=tree,
        env=clean_environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def required(tree: Path, settings: str, *, kind: str = "wheel", **variables: str) -> str:
    """What the backend requires for a build with these settings."""
    process = call(tree, f"print(backend.get_requires_for_build_{kind}({settings}))", **variables)
    assert process.returncode == 0, process.stdout
    return process.stdout.splitlines()[-1]


@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_a_pinned_torch_is_required_for_the_build(tree: Path, kind: str) -> None:
    assert required(tree, "{'torch': '2.13.0'}", kind=kind) == "['torch==2.13.0']"


@pytest.mark.parametrize("settings", ["None", "{}"])
def test_without_a_pin_no_torch_is_required(tree: Path, settings: str) -> None:
    """A torch that nobody chose would be the newest: the wheel would not serve the user's."""
    assert required(tree, settings) == "[]"


def test_binaries_that_are_packed_need_no_torch(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "kernels-cpu.so").write_bytes(b"x")
    prebuilt = {"SOME_OP_PREBUILT": str(tmp_path)}
    assert required(tree, "{'torch': '2.13.0'}", **prebuilt) == "[]"


@pytest.mark.parametrize("pin", ["'newest'", "'2.13.0 --index-url x'", "['2.12.0', '2.13.0']"])
def test_a_pin_that_is_no_release_is_refused(tree: Path, pin: str) -> None:
    process = call(tree, f"backend.get_requires_for_build_wheel({{'torch': {pin}}})")
    assert process.returncode != 0
    assert "write it once, as --config-settings torch=2.13.0" in process.stdout


def test_another_torch_than_the_pinned_one_is_refused(tree: Path, tmp_path: Path) -> None:
    process = call(tree, f"backend.build_wheel({str(tmp_path)!r}, {{'torch': '2.3.4'}})")
    assert process.returncode != 0
    installed = find_torch().version
    assert f"a build for torch 2.3.4, but torch {installed} is installed" in process.stdout
    assert list(tmp_path.iterdir()) == []


def test_without_a_torch_the_build_names_both_ways(
    tree: Path, tmp_path: Path, python_without_torch: Path
) -> None:
    process = call(tree, f"backend.build_wheel({str(tmp_path)!r})", python_without_torch)
    assert process.returncode != 0
    assert "--no-build-isolation" in process.stdout
    assert "--config-settings torch=2.13.0" in process.stdout


def test_the_project_is_read_without_importing_its_package(tmp_path: Path) -> None:
    """An import would load binaries, which may not be there yet."""
    package = tmp_path / "read_op"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    (package / "_project.py").write_text("PROJECT = 'this one'\n")
    project: object = read_project(tmp_path)
    assert project == "this one"
    assert "read_op" not in sys.modules


def test_two_packages_with_a_project_are_refused(tmp_path: Path) -> None:
    for name in ("other", "some_op"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "_project.py").touch()
    with pytest.raises(SetupError, match=r"must hold one package .*, got other, some_op"):
        read_project(tmp_path)
