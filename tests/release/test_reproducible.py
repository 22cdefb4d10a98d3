"""Two builds of one commit give the same bytes, wherever they are made.

tests/torchship/release/test_whole_builds.py shows the same of a small project, and of killed runs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
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


def make(root: Path) -> dict[str, str]:
    """Runs the release tool in a clone of this checkout."""
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
    process = subprocess.run(command, env=env, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr
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


@pytest.mark.rehearsal
def test_a_run_elsewhere_makes_the_same_files(tmp_path) -> None:
    """Objects, wheels, conda package, source distribution."""
    first = hash_outputs(REPO) if is_made_here() else make(tmp_path / "a" / "lltm")
    assert len(first) == 6
    assert make(tmp_path / "elsewhere" / "lltm") == first
