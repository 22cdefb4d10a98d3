"""`--merge` reads what it merges: a manifest that says something else is refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from shared_objects import shared_object
from test_manifest import artefact, console, make_manifest, objects, record_of
from wheel_makers import make_wheel

from torchship.release import ReleaseError
from torchship.release.cells import all_cells
from torchship.release.manifest import parse
from torchship.release.merge import merge
from torchship.release.store import digest
from torchship.release.wheels import read_wheel

__all__ = ["console", "objects"]

CELL = "stable210-cpu"
CPU = "kernels-cpu.so"


@pytest.fixture
def shard(matrix, objects, tmp_path) -> Path:
    """The `dist` folder of a shard with one cell, as a run leaves it."""
    make_manifest(tmp_path / "0", matrix, {CELL: "done"}, objects)
    return tmp_path / "0"


@pytest.fixture
def try_merge(own_settings, console) -> Callable[..., int]:
    def do(*folders: Path) -> int:
        return merge(folders, console, own_settings)

    return do


def forge(shard: Path, **changes: object) -> None:
    """Changes fields of a manifest on the disk."""
    path = shard / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def replace_binary(shard: Path, data: bytes) -> None:
    """Packs another CPU kernel object into the shard's wheel; the manifest has its hashes."""
    manifest = json.loads((shard / "manifest.json").read_text())
    entry = manifest["cells"][CELL]
    wheel = read_wheel(shard / entry["wheel"])
    files = {Path(path).name: content for path, content in wheel.binaries.items()}
    make_wheel((shard / entry["wheel"]).parent, {**files, CPU: data}, version=wheel.version)
    for entry in manifest["artefacts"]:
        if entry["kind"] == "thin":
            path = shard / entry["path"]
            entry |= {"sha256": digest(path), "size": path.stat().st_size}
    manifest["binaries"][CPU]["sha256"] = hashlib.sha256(data).hexdigest()
    forge(shard, artefacts=manifest["artefacts"], binaries=manifest["binaries"])


def test_a_shard_as_a_run_leaves_it_is_merged(shard, try_merge) -> None:
    assert try_merge(shard) == 0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"git_commit": "d" * 40}, f"its record has git_commit {'d' * 40}"),
        ({"version": "9.9.9"}, "its record has version 9.9.9"),
        ({"name": "cuda13"}, "its record says kernels cuda13"),
        (None, "carries no build record"),
    ],
)
def test_a_binary_that_is_not_what_its_manifest_says_is_refused(
    changes, reason, shard, try_merge, tmp_path
) -> None:
    record = None if changes is None else record_of(CPU, **changes)
    replace_binary(shard, shared_object(tmp_path / "x" / CPU, record=record).read_bytes())
    with pytest.raises(ReleaseError, match=reason):
        try_merge(shard)


def test_what_is_no_binary_is_refused(shard, try_merge) -> None:
    replace_binary(shard, b"forged")
    with pytest.raises(ReleaseError, match=CPU):
        try_merge(shard)


def test_cells_that_share_one_wheel_are_refused(matrix, shard, try_merge) -> None:
    """Fifteen forged cells would make a wheel that calls itself whole."""
    entry = parse(shard / "manifest.json").cells[CELL].model_dump()
    cells = {cell.name: entry for cell in all_cells(matrix)}
    forge(shard, cells=cells)
    with pytest.raises(ReleaseError, match=r"aten24-abi0-cpu: .* holds glue-stable210\.so"):
        try_merge(shard)


def test_a_conda_package_that_no_cell_made_is_refused(shard, try_merge) -> None:
    package = shard / "channel" / "linux-64" / "evil-1-0.conda"
    package.parent.mkdir(parents=True)
    package.write_bytes(b"evil")
    extra = artefact(shard, package.relative_to(shard).as_posix(), "conda", [CELL])
    manifest = json.loads((shard / "manifest.json").read_text())
    forge(shard, artefacts=[*manifest["artefacts"], extra.model_dump()])
    with pytest.raises(ReleaseError, match=r"evil-1-0\.conda belongs to no cell"):
        try_merge(shard)


def test_two_source_distributions_of_one_name_are_refused(
    matrix, objects, shard, try_merge, tmp_path
) -> None:
    make_manifest(tmp_path / "1", matrix, {"stable210-cu13": "done"}, objects)
    sdist = tmp_path / "1" / "lltm-0.1.0.tar.gz"
    sdist.write_bytes(b"other sources")
    manifest = json.loads((tmp_path / "1" / "manifest.json").read_text())
    for entry in manifest["artefacts"]:
        if entry["kind"] == "sdist":
            entry |= {"sha256": digest(sdist), "size": sdist.stat().st_size}
    forge(tmp_path / "1", artefacts=manifest["artefacts"])
    with pytest.raises(ReleaseError, match=r"lltm-0\.1\.0\.tar\.gz in .*/1 is another file"):
        try_merge(shard, tmp_path / "1")


@pytest.mark.parametrize("path", ["../../scripts/build_all.sh", "/etc/passwd", "a/../../b", ""])
@pytest.mark.parametrize("field", ["artefact", "wheel", "conda", "log"])
def test_a_path_that_leads_out_of_the_folder_is_refused(field, path, shard, try_merge) -> None:
    manifest = json.loads((shard / "manifest.json").read_text())
    if field == "artefact":
        manifest["artefacts"][0]["path"] = path
    else:
        manifest["cells"][CELL][field] = path
    forge(shard, artefacts=manifest["artefacts"], cells=manifest["cells"])
    with pytest.raises(ReleaseError, match="does not lie in the manifest's folder"):
        try_merge(shard)


def test_a_failed_optional_cell_does_not_fail_the_merge(
    matrix, objects, shard, try_merge, tmp_path, console
) -> None:
    make_manifest(tmp_path / "1", matrix, {"aten24-abi1-cpu": "failed"}, objects)
    assert try_merge(shard, tmp_path / "1") == 0
    assert "FAILED aten24-abi1-cpu (optional)" in console.export_text()
