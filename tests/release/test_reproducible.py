"""Two builds of one commit give the same bytes, wherever they are made, and killed or not."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from checkout import SETTINGS
from release_places import REPO

from torchship.release.run import manifest
from torchship.release.run.store import identity
from torchship.release.steps.pack.distributions import package_sources

CELL = "stable210-cpu"


def hashes(folder: Path, pattern: str) -> dict[str, str]:
    """By name, but those for another platform, which another test may have made."""
    paths = sorted(p for p in folder.rglob(pattern) if "linux-aarch64" not in p.parts)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def hash_outputs(root: Path) -> dict[str, str]:
    """The hashes of what a run of the release tool left of the op."""
    digests = hashes(root / "build" / "binaries", "*.so")
    for pattern in ("lltm-*.whl", "lltm-*.conda", "lltm-*.tar.gz"):
        digests |= hashes(root / "dist", pattern)
    return digests


def kill_after(steps: int, process: subprocess.Popen[bytes], root: Path) -> None:
    """Kills the release tool, and nothing that it started, when it has finished so many steps."""
    stamps = root / "build" / "stamps"
    while len([*stamps.glob("*.json")]) < steps and process.poll() is None:
        time.sleep(0.05)
    assert process.poll() is None, "it ended before it was to be killed"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def make(root: Path, killed_after: Sequence[int] = ()) -> dict[str, str]:
    """Runs the release tool in a clone of this checkout; each run that is killed is resumed."""
    subprocess.run(["git", "clone", "--quiet", REPO, root], check=True)
    # The tool's environment and the base channel go into no file, so those of this checkout do,
    # under other names.
    (root / "build").mkdir()
    for folder in filter(Path.is_dir, (REPO / "build" / "tools", SETTINGS.bootstrap_channel)):
        (root / "build" / folder.name).symlink_to(folder)
    base = root / "build" / SETTINGS.bootstrap_channel.name
    channel = base.as_uri() if base.is_dir() else "bootstrap"
    command = [root / "scripts" / "build_all.sh", CELL, "--channel", channel]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LLTM_", "PYTHON"))}
    output = root.with_name("output.txt")
    with output.open("w") as out:
        for steps in killed_after:
            running = subprocess.Popen(command, env=env, stdout=out, stderr=out)
            kill_after(steps, running, root)
        process = subprocess.run(command, env=env, stdout=out, stderr=out)
    assert process.returncode == 0, output.read_text(encoding="utf-8")
    shutil.rmtree(root / "build" / "envs")
    return hash_outputs(root)


def is_made_here() -> bool:
    """Whether this checkout holds a run of just this cell, of the sources that lie here."""
    if not SETTINGS.manifest.is_file():
        return False
    stored = manifest.parse(SETTINGS.manifest)
    current = identity(package_sources(REPO), SETTINGS)
    same = (stored.commit, stored.clean, stored.sources) == (
        current.head,
        current.clean,
        current.sources,
    )
    return same and current.clean and [*stored.cells] == [CELL]


@pytest.mark.slow
def test_a_run_elsewhere_makes_the_same_files_though_it_was_killed(tmp_path) -> None:
    """Objects, wheels, conda package, source distribution: from two folders, and after kills at
    the start, in the middle and near the end of fourteen steps."""
    first = hash_outputs(REPO) if is_made_here() else make(tmp_path / "a" / "lltm")
    assert len(first) == 6
    assert make(tmp_path / "elsewhere" / "lltm", killed_after=(2, 6, 11)) == first
