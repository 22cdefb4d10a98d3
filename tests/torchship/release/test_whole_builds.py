"""Whole builds of a small project: killed and resumed, made elsewhere, and made again."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from new_projects import borrow_tools, commit, make
from processes import clean_environment
from small_clients import REPO

pytestmark = pytest.mark.slow

CELL = "stable210-cpu"
#: At the start, in the middle and near the end of its steps.
KILLED_AFTER = (2, 6, 11)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repo = make(tmp_path_factory.mktemp("project"), "small-op", "--template", "aten")
    commit(repo)
    return repo


class Checkout:
    """A clone of the project, in which the release tool runs."""

    def __init__(self, project: Path, root: Path) -> None:
        self.root = root
        self.output = root.with_name("output.txt")
        subprocess.run(["git", "clone", "--quiet", project, root], check=True)
        # The tool's environment and the base channel go into no file, so those of this checkout do.
        borrow_tools(root)
        base = REPO / "build" / "bootstrap-channel"
        channel = base.as_uri() if base.is_dir() else "bootstrap"
        self.command = [root / "scripts" / "build_all.sh", CELL, "--channel", channel]

    def build(self, *, killed_after: int | None = None) -> list[str]:
        """Runs the release tool, and kills it, and nothing that it has started, after so many
        finished steps; returns the lines about steps."""
        env = clean_environment(PYTHON=sys.executable)
        with self.output.open("w") as out:
            process = subprocess.Popen(self.command, env=env, stdout=out, stderr=out)
            if killed_after is not None:
                self._kill_after(killed_after, process)
            code = process.wait()
        output = self.output.read_text(encoding="utf-8")
        assert code == (0 if killed_after is None else -signal.SIGKILL), output
        return [line for line in output.splitlines() if line.startswith("[")]

    def _kill_after(self, steps: int, process: subprocess.Popen[bytes]) -> None:
        while len(self.finished) < steps and process.poll() is None:
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)

    @property
    def finished(self) -> set[str]:
        """The steps that have finished, by the names of their stamps."""
        return {path.stem.replace("__", "/") for path in self.root.glob("build/stamps/*.json")}

    @property
    def hashes(self) -> dict[str, str]:
        """The hashes of what was made for users: objects, wheels, package, source distribution."""
        patterns = ("build/binaries/**/*.so", "dist/**/*.whl", "dist/**/*.conda", "dist/*.tar.gz")
        paths = (path for pattern in patterns for path in self.root.glob(pattern))
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


@pytest.fixture(scope="module")
def whole(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """Built in one run."""
    checkout = Checkout(project, tmp_path_factory.mktemp("whole") / "small-op")
    checkout.build()
    return checkout


def test_a_run_elsewhere_makes_the_same_files_though_it_was_killed(
    project: Path, whole: Checkout, tmp_path: Path
) -> None:
    """A run takes up the work where the one before it was killed."""
    killed = Checkout(project, tmp_path / "elsewhere" / "op")
    finished: set[str] = set()
    for steps in KILLED_AFTER:
        lines = killed.build(killed_after=steps)
        assert kept(lines) >= finished
        finished = killed.finished
    assert kept(killed.build()) >= finished
    assert len(whole.hashes) == 5
    assert killed.hashes == whole.hashes


def kept(lines: Sequence[str]) -> set[str]:
    """The steps that a run did not do again."""
    return {
        match[1]
        for line in lines
        if (match := re.search(r"\] +unchanged +(?:\S+ s +)?(\S+)", line))
    }


def test_a_second_run_does_nothing(whole: Checkout) -> None:
    lines = whole.build()
    assert len(lines) >= 10
    assert len(kept(lines)) == len(lines)
