"""The release tool is tested with the checkout of a small client."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pydantic")
pytest.importorskip("ruamel.yaml")

sys.path.append(str(Path(__file__).parents[1] / "doctor"))  # for helpers of its tests

from processes import clean_environment
from rich.console import Console
from small_checkout import MATRIX, SETTINGS
from small_clients import REPO
from small_releases import small_objects

from torchship.release.matrix.schema import Matrix
from torchship.release.matrix.settings import Settings
from torchship.release.publishing import upload
from torchship.release.run.shell import Log

CondaWorker = Callable[..., str]


@pytest.fixture(scope="session")
def matrix() -> Matrix:
    return SETTINGS.matrix


@pytest.fixture(scope="session")
def settings() -> Settings:
    """The settings of a run for the matrix's first platform, in the client's checkout."""
    return SETTINGS


@pytest.fixture
def own_settings(settings: Settings, tmp_path: Path) -> Settings:
    """The settings with folders `build` and `dist` of the test's own."""
    return replace(settings, build=tmp_path / "build", dist=tmp_path / "dist")


@pytest.fixture
def matrix_text() -> str:
    return MATRIX.read_text(encoding="utf-8")


@pytest.fixture
def log(tmp_path: Path, own_settings: Settings) -> Iterator[Log]:
    with Log(tmp_path / "logs" / "test.log", own_settings) as log:
        yield log


@pytest.fixture(scope="session")
def objects() -> Mapping[str, bytes]:
    """A small real shared object for every name of the client's cells."""
    return small_objects()


@pytest.fixture
def console() -> Console:
    """Keeps what is printed, for `export_text`."""
    return Console(record=True, width=300, force_terminal=False)


@pytest.fixture
def no_placeholders(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the client had an address."""
    monkeypatch.setattr(upload, "find_placeholders", lambda root, **_: ())


@pytest.fixture(scope="session")
def conda_worker(tmp_path_factory: pytest.TempPathFactory) -> CondaWorker:
    """Runs a command line for the conda worker; returns what the worker prints."""
    cache = str(tmp_path_factory.mktemp("rattler"))

    def run(command: Sequence[str], variables: Mapping[str, str] | None = None) -> str:
        places = {"PYTHONPATH": str(REPO), "RATTLER_CACHE_DIR": cache}
        env = clean_environment(**{**places, **(variables or {})})
        process = subprocess.run(command, env=env, capture_output=True, text=True)
        assert process.returncode == 0, process.stdout + process.stderr
        return process.stdout

    return run
