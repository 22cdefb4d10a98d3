"""torchship's own suite: it tests the checkout's torchship, and knows no op of this repository."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from tool_wheels import FOLDERS, WheelOf, build_wheel, copy_tracked


@pytest.fixture(scope="session")
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
