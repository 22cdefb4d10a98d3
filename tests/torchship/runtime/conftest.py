"""What the tests of run time share: copies of a small client's package, and Pythons to run them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import Forks, clean_environment

sys.path.append(str(Path(__file__).parents[1] / "doctor"))  # for helpers of its tests

#: In the folder of a build.
NOT_PACKED = ("objects", "*.ninja", ".ninja*")


@pytest.fixture
def package_copy(tmp_path: Path, tiny_package: Path) -> Callable[..., Path]:
    """Copies the package, with or without binaries and sources, into a folder of its own."""

    def copy(*, binaries: bool = True, sources: bool = True) -> Path:
        target = tmp_path / "site" / "tiny_client"
        left_out = [*(() if binaries else ("lib",)), *(() if sources else ("csrc",))]
        # With what Python has compiled, which counts for files that stay as they are.
        ignored = shutil.ignore_patterns(*NOT_PACKED, *left_out)
        shutil.copytree(tiny_package, target, ignore=ignored)
        return target

    return copy


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environment_of(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """An environment with a copied package first on Python's path and an empty build cache."""

    def environment(package: Path, **more: str) -> dict[str, str]:
        places = {"PYTHONPATH": str(package.parent), "TINY_CACHE": str(tmp_path / "cache")}
        return clean_environment(**{**places, **more})

    return environment


@pytest.fixture
def run_python(tmp_path: Path, environment_of: Callable[..., dict[str, str]]) -> Run:
    """Runs a Python of its own, for what counts before or while torch is imported."""

    def run(
        package: Path, *arguments: str, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            env=environment_of(package, **(env or {})),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )

    return run


@pytest.fixture
def run_module(tmp_path: Path, environment_of: Callable[..., dict[str, str]], forked: Forks) -> Run:
    """Runs `python -m tiny_client` in a process that has imported torch."""

    def run(
        package: Path, *arguments: str, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        environment = environment_of(package, **(env or {}))
        return forked.module(package.name, *arguments, cwd=tmp_path, env=environment)

    return run


@pytest.fixture
def run_code(tmp_path: Path, environment_of: Callable[..., dict[str, str]], forked: Forks) -> Run:
    """Runs code in a process that has imported torch."""

    def run(
        package: Path, code: str, *, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return forked.run(code, cwd=tmp_path, env=environment_of(package, **(env or {})))

    return run
