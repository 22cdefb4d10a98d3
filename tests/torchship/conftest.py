"""torchship's own suite: it tests the checkout's torchship, and knows no op of this repository."""

from __future__ import annotations

import fcntl
import os
import zipfile
from pathlib import Path

import pytest
from small_clients import CLIENTS, BuiltOnce, glue_of, project_of
from small_clients import build as build_client
from tool_wheels import WheelOf, build_wheel, copy_distribution

from torchship.judge.machine import torch_probe
from torchship.judge.project import Project


@pytest.fixture(scope="session")
def torch_root() -> Path:
    """The really installed torch of this environment."""
    return torch_probe.find_torch().root


@pytest.fixture(scope="session")
def wheel_of(tmp_path_factory: pytest.TempPathFactory) -> WheelOf:
    """Builds the wheel of a package once, out of a copy of its folder alone."""
    wheels: dict[str, Path] = {}

    def build(package: str) -> zipfile.ZipFile:
        if package not in wheels:
            work = tmp_path_factory.mktemp(package)
            source = copy_distribution(package, work / "source")
            wheels[package] = build_wheel(source, work / "out")
        return zipfile.ZipFile(wheels[package])

    return build


@pytest.fixture(scope="session")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> BuiltOnce:
    """Builds a small client where all processes of this run of pytest find it.

    The first process to ask builds it: another may be reading the files when the next one asks. A
    test that changes files needs a copy.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def make(name: str, glue: str) -> Project:
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            folder = shared / f"clients-{glue}" / f"{name}_client"
            built = folder.with_suffix(".built")
            if built.exists():
                return project_of(name, folder)
            project = build_client(name, folder, glue)
            built.touch()
            return project

    return make


@pytest.fixture(scope="session")
def clients(built_once: BuiltOnce) -> dict[str, Project]:
    """The small clients, each with its glue."""
    return {name: built_once(name, glue_of(name)) for name in CLIENTS}


@pytest.fixture(scope="session")
def tiny_package(built_once: BuiltOnce) -> Path:
    """The package of a small client, with the glue that fits best."""
    return built_once("tiny", glue_of("tiny")).folder
