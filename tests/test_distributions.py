"""torchship and torch-doctor are distributions of their own: whole, pure, and no other's files."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

REPO = Path(__file__).resolve().parents[1]
FOLDERS = {"torchship": "torchship", "torch_doctor": "torchship/doctor"}
#: What a distribution's metadata holds, or what makes it; torchship has torch-doctor's within it.
METADATA = {"LICENSE", "README.md", "pyproject.toml"}
NOT_IN_PACKAGE = METADATA | {f"doctor/{name}" for name in METADATA}

WheelOf = Callable[[str], zipfile.ZipFile]


def tracked(folder: str) -> set[str]:
    """The files below a folder that git has or would take, relative to the folder."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "-z", folder]
    run = subprocess.run(command, cwd=REPO, capture_output=True, text=True)
    if run.returncode:
        pytest.skip("not a git checkout")
    names = [name for name in run.stdout.split("\0") if name and (REPO / name).is_file()]
    return {str(Path(name).relative_to(folder)) for name in names}


def copy_tracked(folder: str, target: Path) -> Path:
    for name in tracked(folder):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPO / folder / name, target / name)
    return target


def build_wheel(source: Path, out: Path, **variables: str) -> Path:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir"]
    env = {**os.environ, **variables}
    run = subprocess.run([*command, out, source], env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    (wheel,) = out.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel_of(tmp_path_factory: pytest.TempPathFactory) -> WheelOf:
    """Builds the wheel of a package once, out of a copy of its folder alone."""
    wheels: dict[str, Path] = {}

    def build(package: str) -> zipfile.ZipFile:
        if package not in wheels:
            work = tmp_path_factory.mktemp(package)
            source = copy_tracked(FOLDERS[package], work / "source")
            wheels[package] = build_wheel(source, work / "out")
        return zipfile.ZipFile(wheels[package])

    return build


def info_of(wheel: zipfile.ZipFile, name: str) -> str:
    (path,) = (path for path in wheel.namelist() if path.endswith(f".dist-info/{name}"))
    return wheel.read(path).decode()


def metadata_of(wheel: zipfile.ZipFile) -> Message:
    return Parser().parsestr(info_of(wheel, "METADATA"))


def installed_files(wheel: zipfile.ZipFile) -> set[str]:
    return {name for name in wheel.namelist() if ".dist-info/" not in name}


def commands_of(wheel: zipfile.ZipFile) -> set[str]:
    return set(re.findall(r"^([\w-]+) = ", info_of(wheel, "entry_points.txt"), re.MULTILINE))


@pytest.mark.parametrize("package", FOLDERS)
def test_a_wheel_holds_its_whole_folder(package: str, wheel_of: WheelOf) -> None:
    names = tracked(FOLDERS[package]) - NOT_IN_PACKAGE
    assert installed_files(wheel_of(package)) == {f"{package}/{name}" for name in names}


@pytest.mark.parametrize("package", FOLDERS)
def test_a_wheel_serves_every_platform_and_needs_nothing(package: str, wheel_of: WheelOf) -> None:
    wheel = wheel_of(package)
    metadata = metadata_of(wheel)
    needs = metadata.get_all("Requires-Dist", [])
    assert str(wheel.filename).endswith("-py3-none-any.whl")
    assert metadata["Requires-Python"] == ">=3.10"
    assert [need for need in needs if 'extra == "release"' not in need] == []


@pytest.mark.parametrize("package", FOLDERS)
def test_a_wheel_has_the_licence_and_a_description(package: str, wheel_of: WheelOf) -> None:
    licence = info_of(wheel_of(package), "licenses/LICENSE")
    own = (REPO / "LICENSE").read_text(encoding="utf-8")
    assert licence.partition("\n\nRedistribution")[2] == own.partition("\n\nRedistribution")[2]
    assert len(str(metadata_of(wheel_of(package)).get_payload())) > 500


def test_all_products_have_one_version(wheel_of: WheelOf) -> None:
    from lltm_conda._version import __version__

    versions = {package: metadata_of(wheel_of(package))["Version"] for package in FOLDERS}
    assert versions == dict.fromkeys(FOLDERS, __version__)


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
    extra = applying([*map(Requirement, needs)], python=python, extra="release")
    assert extra == applying([*map(Requirement, lines)], python=python, extra="")


def test_torchship_torch_doctor_and_a_client_share_no_file_and_no_command(
    wheel_of: WheelOf, tmp_path: Path
) -> None:
    source = copy_tracked(".", tmp_path / "source")
    prebuilt = tmp_path / "prebuilt"
    prebuilt.mkdir()
    (prebuilt / "glue-none.so").touch()  # to pack, instead of compiling
    client_wheel = build_wheel(source, tmp_path / "out", LLTM_CONDA_PREBUILT=str(prebuilt))
    wheels = [wheel_of("torchship"), wheel_of("torch_doctor"), zipfile.ZipFile(client_wheel)]
    files = [name for wheel in wheels for name in wheel.namelist()]
    assert sorted(files) == sorted(set(files))
    assert commands_of(wheels[0]) == {"torchship"}
    assert commands_of(wheels[1]) == {"torch-doctor"}
    assert not [name for name in wheels[2].namelist() if name.endswith("entry_points.txt")]


def test_the_doctor_runs_in_a_bare_checkout(tmp_path: Path) -> None:
    """Nothing is compiled, and nothing is installed but Python."""
    checkout = copy_tracked("torchship", tmp_path / "torchship").parent
    command = [sys.executable, "-S", "-m", "torchship.doctor", "--json"]
    run = subprocess.run(command, cwd=checkout, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert '"extensions"' in run.stdout


def test_the_doctors_tables_are_found_in_a_zip_archive(wheel_of: WheelOf) -> None:
    """A wheel is a zip archive from which Python can import."""
    code = (
        "from torch_doctor import layouts, owner\n"
        "print(len(layouts._ranges()), len(owner._pairs()))"
    )
    env = {**os.environ, "PYTHONPATH": str(wheel_of("torch_doctor").filename)}
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert all(int(count) > 0 for count in run.stdout.split())
