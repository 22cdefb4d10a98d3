"""Two builds of one commit give the same bytes, wherever they are made and torch lies."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import SETTINGS
from release_places import REPO

from torchship.release import manifest
from torchship.release.pack_steps import package_sources
from torchship.release.store import identity

torch = pytest.importorskip("torch")

from build_places import copy_sources, environment  # noqa: E402

CELL = "stable210-cpu"
# argv: where the binaries go, under which name torch is to be known.
BUILD = """
import sys
from dataclasses import replace
from pathlib import Path
from lltm_conda._project import PROJECT
from torchship.builder import BuildRequest, execute, glue_for, plan
from torchship.judge.torch_probe import find_torch

out, alias = map(Path, sys.argv[1:])
found = find_torch()
alias.symlink_to(found.root)
include, lib = alias / "include", alias / "lib"
found = found._replace(root=alias, include_dir=include, lib_dir=lib)
request = BuildRequest(out, PROJECT, glue=glue_for(found, PROJECT), torch=found)
def without_optimisation(command):  # which takes half of the time; the other test has it
    return tuple("-O0" if word in ("-O2", "-O3") else word for word in command)

steps = [replace(step, command=without_optimisation(step.command)) for step in plan(request)]
execute(steps, out / "objects")
"""


def hashes(folder: Path, pattern: str) -> dict[str, str]:
    """By name, but those for another platform, which another test may have made."""
    paths = sorted(p for p in folder.rglob(pattern) if "linux-aarch64" not in p.parts)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def start(root: Path) -> subprocess.Popen[str]:
    """Builds glue and CPU kernels from a copy of the sources in `root`."""
    copy_sources(root / "source")
    (root / "site").mkdir()
    env = environment(
        PYTHONPATH=str(root / "source"),
        LLTM_CONDA_LOAD="0",
        LLTM_CONDA_GIT_COMMIT="c" * 40,
        SOURCE_DATE_EPOCH="1700000000",
        # Else g++ writes the shorter of a header's paths, which may be the same for both.
        CXXFLAGS="-fno-canonical-system-headers",
    )
    arguments = [str(root / "lib"), str(root / "site" / "torch")]
    command = [sys.executable, "-c", BUILD, *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, cwd=root, env=env, text=True, **pipes)


@pytest.mark.slow
def test_shared_objects_do_not_know_where_they_were_built(tmp_path) -> None:
    roots = tmp_path / "a", tmp_path / "elsewhere" / "much deeper" / "b"
    running = [start(root) for root in roots]
    for process in running:
        output, _ = process.communicate()
        assert process.returncode == 0, output
    first, second = (hashes(root / "lib", "*.so") for root in roots)
    assert set(first) >= {"kernels-cpu.so"} and len(first) == 2
    assert first == second
    for path in (roots[1] / "lib").glob("*.so"):
        assert b"much deeper" not in path.read_bytes()


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


@pytest.mark.slow
def test_two_runs_of_the_release_tool_make_the_same_files(tmp_path) -> None:
    """In two folders: objects, wheels, conda package, source distribution."""
    first = hash_outputs(REPO) if is_made_here() else make(tmp_path / "a" / "lltm")
    assert len(first) == 6
    assert make(tmp_path / "elsewhere" / "lltm") == first
