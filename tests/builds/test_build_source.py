"""Every build says of which commit it is and when that was made, with or without git."""

from __future__ import annotations

import json
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from build_places import copy_sources, environment, run

ASK = """
import json, os
from lltm_conda._project import PROJECT
from lltm_conda.engine.builder.sources import git_commit, source_date
print(json.dumps([ask(PROJECT, os.environ) for ask in (git_commit, source_date)]))
"""
BACKEND = "import setuptools.build_meta as b, sys; print(b.build_sdist(sys.argv[1]))"
MADE, BUILT = "1234567890", "1700000000"  # seconds since 1970
DATE = "2009-02-13T23:31:30Z"  # MADE


def ask(root: Path) -> list[str]:
    """The commit and the date for a build in this folder, by a tool that sets its own date."""
    env = environment(LLTM_CONDA_LOAD="0", SOURCE_DATE_EPOCH=BUILT, PYTHONPATH=str(root))
    return json.loads(run(sys.executable, "-c", ASK, cwd=root, env=env).good())


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A checkout, and its commit."""
    root = copy_sources(tmp_path_factory.mktemp("source") / "lltm")
    who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    env = environment(GIT_COMMITTER_DATE=f"@{MADE} +0000", GIT_AUTHOR_DATE=f"@{MADE} +0000")
    for arguments in (("init", "-q"), ("add", "."), (*who, "commit", "-qm", "x")):
        run("git", *arguments, cwd=root, env=env).good()
    return root, run("git", "rev-parse", "HEAD", cwd=root).good().strip()


@pytest.fixture(scope="module")
def unpacked(checkout: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout's source distribution, where there is no git."""
    out = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-c", BACKEND, out, cwd=checkout[0]).good()
    (sdist_path,) = out.iterdir()
    with tarfile.open(sdist_path) as archive:
        archive.extractall(out, filter="data")
    (root,) = (path for path in out.iterdir() if path.is_dir())
    return root


def test_a_checkout_has_the_date_of_its_commit(checkout: tuple[Path, str]) -> None:
    """conda's tools set SOURCE_DATE_EPOCH to the time of the build, and copy git's folder."""
    root, commit = checkout
    assert ask(root) == [commit, DATE]


def test_a_source_distribution_carries_commit_and_date(
    checkout: tuple[Path, str], unpacked: Path
) -> None:
    assert ask(unpacked) == [checkout[1], DATE]


def test_a_wheel_carries_them_on(
    checkout: tuple[Path, str], unpacked: Path, tmp_path: Path
) -> None:
    (tmp_path / "prebuilt").mkdir()
    (tmp_path / "prebuilt" / "kernels-cpu.so").write_bytes(b"x")
    env = environment(LLTM_CONDA_PREBUILT=str(tmp_path / "prebuilt"), SOURCE_DATE_EPOCH=BUILT)
    for number, root in enumerate((checkout[0], unpacked)):
        out = tmp_path / str(number)
        command = ("-m", "pip", "wheel", ".", "--no-build-isolation", "--no-deps", "-w", out)
        run(sys.executable, *command, cwd=root, env=env).good()
        (wheel,) = out.iterdir()
        with zipfile.ZipFile(wheel) as archive:
            content = archive.read("lltm_conda/source.json")
        assert json.loads(content) == {"commit": checkout[1], "epoch": MADE}


def test_sources_that_know_nothing_take_the_date_of_the_build(tmp_path: Path) -> None:
    assert ask(copy_sources(tmp_path)) == ["unknown", "2023-11-14T22:13:20Z"]
