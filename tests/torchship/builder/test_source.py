"""Every build says of which commit it is and when that was made, with or without git."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import small_client
from new_projects import commit, make
from processes import clean_environment

from torchship.builder.sources import git_commit, source_date
from torchship.judge.project import Project

BACKEND = """
import sys
sys.path.insert(0, "vendor")  # as backend-path has it
import backend
"""
COMMITTED = "1234567890"  # seconds since 1970
BUILT = "1700000000"
DATE = "2009-02-13T23:31:30Z"  # COMMITTED


def project_in(root: Path) -> Project:
    return small_client.PROJECT._replace(package="some_op", folder=root / "some_op")


def commit_and_date(root: Path) -> tuple[str, str]:
    """For a build in this folder, by a tool that sets a date of its own."""
    env = clean_environment(SOURCE_DATE_EPOCH=BUILT)
    project = project_in(root)
    return git_commit(project, env), source_date(project, env)


def call_backend(root: Path, code: str, **variables: str) -> None:
    env = clean_environment(**variables)
    subprocess.run([sys.executable, "-c", BACKEND + code], cwd=root, env=env, check=True)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make(tmp_path_factory.mktemp("source"), "some-op")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("GIT_COMMITTER_DATE", "GIT_AUTHOR_DATE"):
            patch.setenv(name, f"@{COMMITTED} +0000")
        commit(root)
    return root


@pytest.fixture(scope="module")
def head(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="module")
def unpacked(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout's source distribution, where there is no git."""
    out = tmp_path_factory.mktemp("sdist")
    call_backend(checkout, f"backend.build_sdist({str(out)!r})")
    (archive_path,) = out.iterdir()
    shutil.unpack_archive(archive_path, out)
    (root,) = (path for path in out.iterdir() if path.is_dir())
    return root


def test_a_checkout_has_the_date_of_its_commit(checkout: Path, head: str) -> None:
    """conda's tools set SOURCE_DATE_EPOCH to the time of the build, and copy git's folder."""
    assert commit_and_date(checkout) == (head, DATE)


def test_a_source_distribution_carries_commit_and_date(unpacked: Path, head: str) -> None:
    assert commit_and_date(unpacked) == (head, DATE)


@pytest.mark.parametrize("origin", ["checkout", "unpacked"])
@pytest.mark.slow
def test_a_wheel_carries_them_on(
    origin: str, head: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "prebuilt").mkdir()
    (tmp_path / "prebuilt" / "kernels-cpu.so").write_bytes(b"x")
    out = tmp_path / "out"
    call_backend(
        request.getfixturevalue(origin),
        f"backend.build_wheel({str(out)!r})",
        SOME_OP_PREBUILT=str(tmp_path / "prebuilt"),
        SOURCE_DATE_EPOCH=BUILT,
    )
    (wheel,) = out.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        content = archive.read("some_op/source.json")
    assert json.loads(content) == {"commit": head, "epoch": COMMITTED}


def test_sources_that_know_nothing_take_the_date_of_the_build(
    checkout: Path, tmp_path: Path
) -> None:
    shutil.copytree(checkout, tmp_path / "copy", ignore=shutil.ignore_patterns(".git"))
    assert commit_and_date(tmp_path / "copy") == ("unknown", "2023-11-14T22:13:20Z")
