"""torchship.backend, the build backend of LLTM and of any client: PEP 517 and PEP 660."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from build_places import Place, Ran, copy_sources, environment, run

import lltm_conda
from lltm_conda.engine.builder.sources import NOT_PACKED

INSTALLED = sorted((Path(lltm_conda.__file__).parent / "lib").glob("*.so"))

CALL = """
import sys
from pathlib import Path
sys.path.insert(0, str(Path.cwd()))  # as backend-path has it
from torchship import backend
"""


def call(tree: Path, code: str, python: str | Path = sys.executable, **variables: str) -> Ran:
    """What a frontend does: it calls hooks of the backend in the folder of the sources."""
    return run(python, "-c", CALL + code, cwd=tree, env=environment(**variables))


def required(tree: Path, settings: str, **variables: str) -> str:
    code = f"print(backend.get_requires_for_build_wheel({settings}))"
    return call(tree, code, **variables).good().splitlines()[-1]


def test_a_pinned_torch_is_required_for_the_build(source_tree: Path) -> None:
    assert required(source_tree, "{'torch': '2.13.0'}") == "['torch==2.13.0']"
    code = "print(backend.get_requires_for_build_editable({'torch': '2.13.0'}))"
    assert call(source_tree, code).good().endswith("['torch==2.13.0']\n")


@pytest.mark.parametrize("settings", ["None", "{}"])
def test_without_a_pin_no_torch_is_required(source_tree: Path, settings: str) -> None:
    """A torch that nobody chose would be the newest: the wheel would not serve the user's."""
    assert required(source_tree, settings) == "[]"


def test_binaries_that_are_packed_need_no_torch(source_tree: Path) -> None:
    variables = {"LLTM_CONDA_PREBUILT": str(INSTALLED[0].parent)}
    assert required(source_tree, "{'torch': '2.13.0'}", **variables) == "[]"


@pytest.mark.parametrize("pin", ["'newest'", "'2.13.0 --index-url x'", "['2.12.0', '2.13.0']"])
def test_a_pin_that_is_no_release_is_refused(source_tree: Path, pin: str) -> None:
    result = call(source_tree, f"backend.get_requires_for_build_wheel({{'torch': {pin}}})")
    assert result.code != 0
    assert "write it once, as --config-settings torch=2.13.0" in result.output


def test_another_torch_than_the_pinned_one_is_refused(source_tree: Path, tmp_path: Path) -> None:
    result = call(source_tree, f"backend.build_wheel({str(tmp_path)!r}, {{'torch': '2.3.4'}})")
    assert result.code != 0
    assert f"a build for torch 2.3.4, but torch {torch.__version__} is installed" in result.output
    assert list(tmp_path.iterdir()) == []


def test_without_a_torch_the_build_names_both_ways(source_tree: Path, tmp_path: Path) -> None:
    place = Place(tmp_path, with_torch=False)
    result = call(source_tree, f"backend.build_wheel({str(tmp_path)!r})", place.python)
    assert result.code != 0
    assert "--no-build-isolation" in result.output
    assert "--config-settings torch=2.13.0" in result.output


def test_missing_torch_names_the_flag(source_tree: Path, tmp_path: Path) -> None:
    place = Place(tmp_path, with_torch=False)
    options = ("--no-build-isolation", "--no-deps", "-w", tmp_path)
    ran = place.pip("wheel", *options, source_tree)
    assert ran.code != 0
    assert "pip install --no-build-isolation" in ran.output
    assert "Traceback" not in ran.output.partition("lltm is compiled against")[2]


def contents(wheel: Path) -> dict[str, int]:
    with zipfile.ZipFile(wheel) as archive:
        return {info.filename: info.CRC for info in archive.infolist()}


def test_the_backend_and_setup_py_make_the_same_wheel(source_tree: Path, tmp_path: Path) -> None:
    """The same files, with the engine as PACKAGE.engine and the prebuilt binaries in it."""
    variables = {"LLTM_CONDA_PREBUILT": str(INSTALLED[0].parent)}
    by_backend = tmp_path / "backend"
    name = call(source_tree, f"print(backend.build_wheel({str(by_backend)!r}))", **variables)
    name = name.good().splitlines()[-1]
    assert name.endswith(("-py3-none-linux_x86_64.whl", "-py3-none-linux_aarch64.whl"))
    by_setup = tmp_path / "setup"
    run(
        *(sys.executable, "setup.py", "-q", "bdist_wheel", "-d", by_setup),
        cwd=source_tree,
        env=environment(**variables),
    ).good()
    files = contents(by_backend / name)
    assert files == contents(by_setup / name)
    assert {f"lltm_conda/lib/{path.name}" for path in INSTALLED} <= files.keys()
    # All of torchship but what run time does not need.
    engine = {
        f"lltm_conda/engine/{path.relative_to(source_tree / 'torchship')}"
        for path in (source_tree / "torchship").rglob("*.py")
        if not {*NOT_PACKED, "__main__.py"}
        & {*path.relative_to(source_tree / "torchship").parts[:1]}
    }
    assert engine == {
        file for file in files if file.startswith("lltm_conda/engine/") and file.endswith(".py")
    }


def test_an_editable_wheel_points_to_the_checkout(source_tree: Path, tmp_path: Path) -> None:
    variables = {"LLTM_CONDA_PREBUILT": str(INSTALLED[0].parent)}
    code = f"print(backend.build_editable({str(tmp_path)!r}))"
    name = call(source_tree, code, **variables).good().splitlines()[-1]
    assert not [file for file in contents(tmp_path / name) if file.endswith(".so")]
    in_place = {path.name for path in (source_tree / "lltm_conda" / "lib").iterdir()}
    assert in_place == {path.name for path in INSTALLED}


def test_a_change_of_torchship_counts_at_once_in_an_editable_install(tmp_path: Path) -> None:
    """There PACKAGE.engine is torchship itself, not a copy."""
    tree = copy_sources(tmp_path / "tree")
    place = Place(tmp_path / "place")
    options = ("--no-build-isolation", "--no-deps", "-e", ".")
    variables = {"LLTM_CONDA_PREBUILT": str(INSTALLED[0].parent)}
    place.pip("install", *options, cwd=tree, **variables).good()
    with (tree / "torchship" / "doctor" / "text.py").open("a") as module:
        module.write("CHANGED = 'it counts'\n")
    code = "from lltm_conda.engine.doctor import text; print(text.__file__, text.CHANGED)"
    env = environment(LLTM_CONDA_LOAD="0")
    output = run(place.python, "-c", code, cwd=tmp_path, env=env).good()
    assert output == f"{tree}/torchship/doctor/text.py it counts\n"


def test_the_project_is_read_without_importing_its_package(tmp_path: Path) -> None:
    """An import would load binaries, which may not be there yet."""
    package = tmp_path / "some_op"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    (package / "_project.py").write_text("PROJECT = 'this one'\n")
    code = (
        "import sys; from pathlib import Path\n"
        "from lltm_conda.engine.setuptools_build import read_project\n"
        "print(read_project(Path('.')), 'some_op' in sys.modules)"
    )
    command = [sys.executable, "-P", "-c", code]
    env = environment(LLTM_CONDA_LOAD="0")
    output = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert output.stdout == "this one False\n"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "_project.py").touch()
    refused = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert "must hold one package with a _project.py, got other, some_op" in refused.stderr
