"""The three products live together: of one version, without a file or a command in common."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]
sys.path.append(str(REPO / "tests" / "torchship"))

from tool_wheels import (  # noqa: E402
    FOLDERS,
    build_wheel,
    commands_of,
    copy_distribution,
    copy_tracked,
    metadata_of,
)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, zipfile.ZipFile]:
    """The wheels of the three, by their packages."""
    work = tmp_path_factory.mktemp("wheels")
    prebuilt = work / "prebuilt"
    prebuilt.mkdir()
    (prebuilt / "glue-none.so").touch()  # to pack, instead of compiling
    built = {}
    for package in (*FOLDERS, "lltm_conda"):
        tree = work / package / "source"
        is_own = package == "lltm_conda"
        source = copy_tracked(".", tree) if is_own else copy_distribution(package, tree)
        wheel = build_wheel(source, work / package / "out", LLTM_CONDA_PREBUILT=str(prebuilt))
        built[package] = zipfile.ZipFile(wheel)
    return built


def test_all_products_have_one_version(wheels: dict[str, zipfile.ZipFile]) -> None:
    assert len({metadata_of(wheel)["Version"] for wheel in wheels.values()}) == 1


def test_no_product_has_a_file_or_a_command_of_another(wheels: dict[str, zipfile.ZipFile]) -> None:
    files = [name for wheel in wheels.values() for name in wheel.namelist()]
    assert sorted(files) == sorted(set(files))
    commands = {
        package: commands_of(wheel)
        for package, wheel in wheels.items()
        if any(name.endswith("entry_points.txt") for name in wheel.namelist())
    }
    assert commands == {"torchship": {"torchship"}, "torch_doctor": {"torch-doctor"}}
