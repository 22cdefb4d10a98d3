"""torchship and torch-doctor are distributions of their own: whole, pure, and no other's files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging_alone import packaging_alone
from tool_wheels import (
    FOLDERS,
    REPO,
    WheelOf,
    commands_of,
    copy_tracked,
    info_of,
    installed_files,
    metadata_of,
    tracked,
)

from torchship.doctor._version import __version__

#: What a distribution's metadata holds, or what makes it; torchship has torch-doctor's within it.
METADATA = {"LICENSE", "README.md", "pyproject.toml"}
NOT_IN_PACKAGE = METADATA | {f"doctor/{name}" for name in METADATA}
#: The top of the package that only the distribution torch-doctor has.
TOP = {"__init__.py", "__main__.py"}


@pytest.mark.slow
def test_the_wheel_of_torchship_holds_its_whole_folder(wheel_of: WheelOf) -> None:
    names = tracked("torchship") - NOT_IN_PACKAGE
    names -= {f"doctor/torch_doctor/{name}" for name in TOP}
    assert installed_files(wheel_of("torchship")) == {f"torchship/{name}" for name in names}


@pytest.mark.slow
def test_the_wheel_of_torch_doctor_holds_the_doctor_and_the_judge(wheel_of: WheelOf) -> None:
    doctor = tracked("torchship/doctor") - METADATA - {f"torch_doctor/{name}" for name in TOP}
    expected = {f"torch_doctor/{name}" for name in TOP}
    expected |= {f"torch_doctor/doctor/{name}" for name in doctor}
    expected |= {f"torch_doctor/judge/{name}" for name in tracked("torchship/judge")}
    assert installed_files(wheel_of("torch_doctor")) == expected


@pytest.mark.parametrize("package", FOLDERS)
def test_a_wheel_serves_every_platform_and_needs_packaging(package: str, wheel_of: WheelOf) -> None:
    wheel = wheel_of(package)
    metadata = metadata_of(wheel)
    needs = metadata.get_all("Requires-Dist", [])
    assert str(wheel.filename).endswith("-py3-none-any.whl")
    assert metadata["Requires-Python"] == ">=3.10"
    always = [need for need in needs if 'extra == "release"' not in need]
    assert [Requirement(need).name for need in always] == ["packaging"]


@pytest.mark.parametrize("package", FOLDERS)
def test_a_wheel_has_the_licence_and_a_description(package: str, wheel_of: WheelOf) -> None:
    licence = info_of(wheel_of(package), "licenses/LICENSE")
    own = (REPO / "LICENSE").read_text(encoding="utf-8")
    assert licence.partition("\n\nRedistribution")[2] == own.partition("\n\nRedistribution")[2]
    assert len(str(metadata_of(wheel_of(package)).get_payload())) > 500


def test_both_have_one_version(wheel_of: WheelOf) -> None:
    versions = {metadata_of(wheel_of(package))["Version"] for package in FOLDERS}
    assert versions == {__version__}


def applying(needs: list[Requirement], *, python: str, extra: str) -> set[tuple[str, str]]:
    """The names and versions that requirements ask for on a Python."""
    environment = {"python_version": python, "extra": extra}
    return {
        (need.name, str(need.specifier))
        for need in needs
        if need.marker is None or need.marker.evaluate(environment)
    }


@pytest.mark.parametrize("python", ["3.10", "3.14"])
def test_the_extra_is_what_the_release_tool_runs_on(python: str, wheel_of: WheelOf) -> None:
    requirements = REPO / "torchship" / "release" / "requirements"
    own = (requirements / "release.in").read_text(encoding="utf-8")
    lines = [line for line in own.splitlines() if line[:1] not in ("#", "")]
    needs = metadata_of(wheel_of("torchship")).get_all("Requires-Dist", [])
    every = [need for need in map(Requirement, needs) if need.marker is not None]
    extra = applying(every, python=python, extra="release")
    assert extra == applying([*map(Requirement, lines)], python=python, extra="")


def test_torchship_and_torch_doctor_share_no_file_and_no_command(wheel_of: WheelOf) -> None:
    wheels = [wheel_of(package) for package in FOLDERS]
    files = [name for wheel in wheels for name in wheel.namelist()]
    assert sorted(files) == sorted(set(files))
    assert [commands_of(wheel) for wheel in wheels] == [{"torchship"}, {"torch-doctor"}]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_tracked("torchship", tmp_path_factory.mktemp("checkout") / "torchship").parent


def test_the_doctor_runs_in_a_bare_checkout(checkout: Path) -> None:
    """Nothing is compiled, and nothing is installed but Python and packaging."""
    command = [sys.executable, "-S", "-m", "torchship.doctor", "--json", "--no-import"]
    env = {**os.environ, "PYTHONPATH": packaging_alone()}
    run = subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True)
    assert run.returncode == 2, run.stderr  # there is no torch
    assert '"extensions"' in run.stdout


def test_without_packaging_the_doctor_says_what_to_install(checkout: Path) -> None:
    command = [sys.executable, "-S", "-m", "torchship.doctor", "--json", "--no-import"]
    run = subprocess.run(command, cwd=checkout, capture_output=True, text=True)
    assert run.returncode == 1
    assert "Install it with `python -m pip install packaging`" in run.stderr


def test_the_copy_of_packaging_in_pip_will_do(checkout: Path, tmp_path: Path) -> None:
    import pip

    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "pip").symlink_to(Path(pip.__file__).parent)
    command = [sys.executable, "-S", "-m", "torchship.doctor", "--json", "--no-import"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    run = subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True)
    assert run.returncode == 2, run.stderr


def test_the_doctors_tables_are_found_in_a_zip_archive(wheel_of: WheelOf) -> None:
    """A wheel is a zip archive from which Python can import."""
    code = (
        "from torch_doctor.doctor.environment import built_for\n"
        "from torch_doctor.judge.reading import layouts\n"
        "print(len(layouts._ranges()), len(built_for._pairs()))"
    )
    env = {**os.environ, "PYTHONPATH": str(wheel_of("torch_doctor").filename)}
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert all(int(count) > 0 for count in run.stdout.split())


@pytest.mark.parametrize("package", FOLDERS)
def test_an_index_takes_the_wheel(package: str, wheel_of: WheelOf) -> None:
    command = [sys.executable, "-m", "twine", "check", "--strict", str(wheel_of(package).filename)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "PASSED" in run.stdout
