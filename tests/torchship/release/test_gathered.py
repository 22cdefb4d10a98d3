"""`gather_release.sh`: every file of every platform arrives as it was made, or none."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from small_clients import REPO

SUBDIRS = {"linux-x86_64": "linux-64", "linux-aarch64": "linux-aarch64"}
CELL = "stable210-cpu"
PACKAGE = "tiny-client-0.1.0-cpu_0.conda"


def make_dist(folder: Path, platform: str) -> Path:
    """A merged folder with a wheel, a conda package and the sources."""
    machine = platform.removeprefix("linux-")
    tag = f"py3-none-manylinux_2_28_{machine}"
    files = {
        f"tiny_client-0.1.0-{tag}.whl": "fat",
        f"simple/tiny-client/tiny_client-0.1.0+stable.cpu-{tag}.whl": "thin",
        f"channel/{SUBDIRS[platform]}/{PACKAGE}": "conda",
        f"simple/tiny-client/{machine}.asc": "a kind that nobody knows",
        "tiny_client-0.1.0.tar.gz": "sdist",
    }
    artefacts = []
    for path, kind in files.items():
        data = b"sources" if kind == "sdist" else f"{kind} of {platform}".encode()
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
        cells = [] if kind == "sdist" else [CELL]
        sha256 = hashlib.sha256(data).hexdigest()
        artefacts.append({"path": path, "kind": kind, "sha256": sha256, "cells": cells})
    entry = {"state": "done", "wheel": next(p for p, kind in files.items() if kind == "thin")}
    manifest = {
        "package": "tiny-client",
        "version": "0.1.0",
        "commit": "c" * 40,
        "artefacts": artefacts,
        "cells": {CELL: entry},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "report.html").write_text(platform)
    return folder


@pytest.fixture
def dists(tmp_path: Path) -> dict[str, Path]:
    return {platform: make_dist(tmp_path / platform, platform) for platform in SUBDIRS}


@pytest.fixture
def gather(tmp_path: Path, dists: dict[str, Path]) -> Callable[..., subprocess.CompletedProcess]:
    def run(*arguments: str) -> subprocess.CompletedProcess:
        sources = arguments or [f"{platform}={dist}" for platform, dist in dists.items()]
        command = [
            str(REPO / "torchship" / "release" / "launch" / "gather_release.sh"),
            str(tmp_path / "release"),
            *sources,
        ]
        return subprocess.run(command, capture_output=True, text=True)

    return run


def change_manifest(dist: Path, **changes: object) -> None:
    path = dist / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    "entry", [{"state": "failed", "wheel": "x"}, {"state": "done", "wheel": None}]
)
def test_what_a_cell_packed_before_it_failed_is_left_behind(entry, gather, dists, tmp_path) -> None:
    change_manifest(dists["linux-x86_64"], cells={CELL: entry})
    process = gather()
    assert process.returncode == 0, process.stderr
    sums = (tmp_path / "release" / "SHA256SUMS").read_text()
    assert f"linux-64/{PACKAGE}" not in sums
    assert "stable.cpu-py3-none-manylinux_2_28_x86_64" not in sums
    assert "x86_64.asc" not in sums
    assert f"linux-aarch64/{PACKAGE}" in sums and "aarch64.asc" in sums


@pytest.mark.parametrize("field", ["package", "version", "commit"])
def test_platforms_of_different_sources_are_refused(field, gather, dists) -> None:
    change_manifest(dists["linux-aarch64"], **{field: "other"})
    process = gather()
    assert process.returncode == 2
    assert f"{field} is other" in process.stderr


@pytest.mark.parametrize("arguments", [("",), ("linux-x86_64=",), ("=dist",), ("linux-x86_64",)])
def test_what_an_unset_variable_leaves_is_refused(arguments, gather) -> None:
    process = gather(*arguments)
    assert process.returncode == 2
    assert "needs PLATFORM=DIST" in process.stderr
