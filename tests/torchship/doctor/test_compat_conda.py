"""In a conda environment, the doctor's commands are conda's, and they mend what they say."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from pathlib import Path

import pytest
from made_facts import make_runtime, make_torch
from small_client import PROJECT

from torchship.judge import Environment, fixes
from torchship.judge.machine.runtime_probe import environment
from torchship.judge.machine.torch_probe import TorchNotFoundError, find_torch
from torchship.judge.project import Project
from torchship.judge.target import Target
from torchship.judge.verdict.explain import describe_copy, package_problems

ONCE = (
    "pip uninstall tiny-client   (again, until nothing is left), "
    "then conda install --force-reinstall "
)


@pytest.fixture
def conda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A conda environment with our package in it, installed by conda."""
    (tmp_path / "conda-meta").mkdir()
    (tmp_path / "tiny-client.conda").touch()
    metadata = {"url": (tmp_path / "tiny-client.conda").as_uri()}
    (tmp_path / "conda-meta" / "tiny-client-0.1.0-cpu_0.json").write_text(json.dumps(metadata))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path))
    package = tmp_path / "lib" / "python3.11" / "site-packages" / "tiny_client"
    (package / "lib").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "lib" / "kernels-cpu.so").write_bytes(b"binary")
    install(package, "conda")
    return package


def project(package: Path) -> Project:
    return PROJECT._replace(folder=package, version="0.1.0")


def install(package: Path, installer: str, version: str = "0.1.0") -> None:
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"binary").digest()).rstrip(b"=").decode()
    folder = package.parent / f"tiny_client-{version}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "INSTALLER").write_text(f"{installer}\n")
    rows = ["tiny_client/__init__.py,,0", f"tiny_client/lib/kernels-cpu.so,sha256={digest},6"]
    (folder / "RECORD").write_text("\n".join(rows) + "\n")


def test_without_torch_no_command_is_named_that_the_fix_contradicts(conda: Path) -> None:
    nothing = conda.parent.parent / "python"
    nothing.write_text("#!/bin/sh\nexit 0\n")
    nothing.chmod(0o755)
    with pytest.raises(TorchNotFoundError) as error:
        find_torch(python=str(nothing))
    assert "pip install" not in str(error.value) and "torch is not installed" in str(error.value)
    assert fixes.install_torch(environment(Target(), project(conda)), PROJECT).text.startswith(
        "conda install"
    )


def problems_of(conda: Path) -> tuple[str, ...]:
    return package_problems(project(conda), environment(Target(), project(conda)))


def test_a_whole_conda_package_has_no_problems(conda: Path) -> None:
    assert problems_of(conda) == ()


def test_installed_over_each_other_ends_with_what_works(conda: Path) -> None:
    install(conda, "pip", "0.1.0+stable.cpu")
    (problem,) = problems_of(conda)
    assert (
        problem.startswith("installed over each other: ")
        and ONCE in problem
        and problem.endswith("tiny-client.conda")
    )


def test_a_wheel_over_the_conda_package_is_mended_by_conda(conda: Path) -> None:
    install(conda, "pip")
    actual = environment(Target(), project(conda))
    assert actual.path == tuple(sys.path)
    assert actual._replace(source=None, path=(), python="", prefix="") == Environment(
        "conda", installer="pip"
    )
    runtime = make_runtime(make_torch("2.9.1"))._replace(environment=actual)
    assert ONCE in fixes.fit_torch(runtime).text


def test_a_wheel_alone_in_a_conda_environment_is_pips(conda: Path) -> None:
    next((Path(sys.prefix) / "conda-meta").glob("tiny-client-*")).unlink()
    install(conda, "pip")
    actual = environment(Target(), project(conda))
    facts = Environment("pip", sys.executable, "pip", prefix=sys.prefix, path=tuple(sys.path))
    assert actual == facts


def test_objects_that_no_installer_lists_are_left_over(conda: Path) -> None:
    (conda / "lib" / "glue-stable210.so").write_bytes(b"stray")
    (problem,) = problems_of(conda)
    assert problem.startswith(f"left over in {conda / 'lib'} from another installation: ")
    assert "glue-stable210.so" in problem and "kernels-cpu.so" not in problem


def test_another_copy_names_the_one_in_use(conda: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "tiny_client"
    (other / "lib").mkdir(parents=True)
    (other / "__init__.py").touch()
    description = describe_copy(other, conda)
    assert (
        f"another copy is on the path: {other}" in description and f"in use: {conda}" in description
    )


def test_a_folder_of_stray_objects_is_no_copy(conda: Path, tmp_path: Path) -> None:
    """Python imports it without an error, as an empty namespace package."""
    stray = tmp_path / "other" / "tiny_client"
    (stray / "lib").mkdir(parents=True)
    description = describe_copy(stray, conda)
    assert (
        description == f"left over from a removed installation: {stray}; to fix: delete that folder"
    )
