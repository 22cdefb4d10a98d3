"""torchship.backend, the build backend of a new project: its hooks, called as a frontend does."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest
from new_projects import make
from processes import clean_environment

from torchship.judge import find_torch
from torchship.project.facts import default_torch
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
@pytest.mark.slow
def test_a_pinned_torch_is_required_for_the_build(tree: Path, kind: str) -> None:
    assert required(tree, "{'torch': '2.13.0'}", kind=kind) == "['torch==2.13.0']"


@pytest.mark.parametrize("settings", ["None", "{}"])
def test_the_torch_that_can_be_imported_is_built_for(tree: Path, settings: str) -> None:
    assert required(tree, settings) == "[]"


def test_an_isolated_build_is_for_the_torch_of_the_environment(
    tree: Path, python_without_torch: Path
) -> None:
    """pip hides it from the build, whose Python is the environment's all the same."""
    (site,) = python_without_torch.parents[1].glob("lib/python*/site-packages")
    info = site / "torch-2.11.0+cpu.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.11.0+cpu\n")
    code = "print(backend.get_requires_for_build_wheel())"
    try:
        process = call(tree, code, python_without_torch)
    finally:
        shutil.rmtree(info)
    assert process.stdout.splitlines()[-1] == "['torch==2.11.0']"


def test_an_isolated_build_beside_no_torch_is_for_the_default_of_the_matrix(
    tree: Path, python_without_torch: Path
) -> None:
    process = call(tree, "print(backend.get_requires_for_build_wheel())", python_without_torch)
    assert process.stdout.splitlines()[-1] == f"['torch=={default_torch(tree)}']"


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_a_wheel_requires_what_its_binaries_serve_and_a_source_distribution_any(
    tree: Path, tmp_path: Path, kind: str
) -> None:
    oldest = json.loads((tree / "some_op" / "support.json").read_text())["torch_min"]
    torch = "torch>=2.10" if kind == "wheel" else f"torch>={oldest}"
    code = {
        "wheel": f"backend.prepare_metadata_for_build_wheel({str(tmp_path)!r})",
        "sdist": f"backend.build_sdist({str(tmp_path)!r})",
    }
    process = call(tree, code[kind])
    assert process.returncode == 0, process.stdout
    if kind == "wheel":
        (path,) = tmp_path.glob("*.dist-info/METADATA")
        content = path.read_text()
    else:
        (path,) = tmp_path.glob("*.tar.gz")
        with tarfile.open(path) as archive:
            member = archive.extractfile("some_op-0.1.0/PKG-INFO")
            assert member is not None
            content = member.read().decode()
    assert re.findall(r"(?m)^Requires-Dist: (torch.*)$", content) == [torch]
    assert "\nVersion: 0.1.0\n" in content


def test_binaries_that_are_packed_need_no_torch(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "kernels-cpu.so").write_bytes(b"x")
    prebuilt = {"SOME_OP_PREBUILT": str(tmp_path)}
    assert required(tree, "{'torch': '2.13.0'}", **prebuilt) == "[]"


@pytest.mark.parametrize("pin", ["'newest'", "'2.13.0 --index-url x'", "['2.12.0', '2.13.0']"])
def test_a_pin_that_is_no_release_is_refused(tree: Path, pin: str) -> None:
    process = call(tree, f"backend.get_requires_for_build_wheel({{'torch': {pin}}})")
    assert process.returncode != 0
    assert "write it once, as --config-settings torch=2.13.0" in process.stdout
    assert "Traceback" not in process.stdout


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


@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_what_cannot_be_built_is_refused_before_torch_is_fetched(
    tree: Path, tmp_path: Path, python_without_torch: Path, kind: str
) -> None:
    """A frontend fetches what the metadata requires before it asks for the wheel."""
    code = f"backend.prepare_metadata_for_build_{kind}({str(tmp_path)!r})"
    process = call(tree, code, python_without_torch)
    assert process.returncode != 0
    assert process.stdout.splitlines()[-1].startswith("error: some-op is compiled against a torch")
    assert list(tmp_path.iterdir()) == []


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


def test_a_setuptools_that_is_too_old_is_named_in_one_line() -> None:
    """A default venv of Python 3.10 has 65.5, and without isolation pip asks for no other."""
    program = (
        "import setuptools; setuptools.__version__ = '65.5.0'\n"
        "del setuptools\n"
        "import torchship.backend"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).resolve().parents[3],
        capture_output=True,
        text=True,
        check=False,
        env=clean_environment(),
    )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"error: this build needs setuptools 77 or newer, but {sys.executable} has 65.5.0; "
        f'run: {sys.executable} -m pip install --upgrade "setuptools>=77"'
    ]
