"""What a merge makes holds the files of one commit, and nothing else."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from shared_objects import shared_object
from small_checkout import SETTINGS
from small_releases import COMMIT, make_manifest, record_of
from small_wheels import EPOCH, make_sdist, make_wheel

from torchship.release import ReleaseError
from torchship.release.publishing import provenance
from torchship.release.publishing.merge import merge
from torchship.release.publishing.provenance import (
    files_of_commit,
    read_sdist,
    sdist_problems,
    wheel_problems,
)
from torchship.release.run.manifest import parse
from torchship.release.run.store import digest
from torchship.release.steps.pack.wheels import Wheel, read_wheel

CELL = "stable210-cpu"
CPU = "kernels-cpu.so"
OPTIONAL = "aten24-abi1-cpu"
SDIST = "tiny_client-0.1.0.tar.gz"


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


def list_again(shard: Path, *kinds: str) -> None:
    """Writes the hashes of the artefacts of these kinds into the manifest, as a forger would."""
    manifest = json.loads((shard / "manifest.json").read_text())
    for entry in manifest["artefacts"]:
        if entry["kind"] in kinds:
            path = shard / entry["path"]
            entry |= {"sha256": digest(path), "size": path.stat().st_size}
    forge(shard, artefacts=manifest["artefacts"])


def replace_sdist(shard: Path, files: Mapping[str, bytes]) -> None:
    """Packs other files into the shard's source distribution; the manifest has its hash."""
    make_sdist(shard / SDIST, files)
    list_again(shard, "sdist")


def repack_wheel(
    shard: Path, files: Mapping[str, bytes], info: Mapping[str, bytes] | None = None
) -> None:
    """Adds files to the shard's wheel; the manifest has its hash."""
    path = shard / str(parse(shard / "manifest.json").cells[CELL].wheel)
    wheel = read_wheel(path)
    changed = wheel._replace(files={**wheel.files, **files}, info={**wheel.info, **(info or {})})
    changed.write(path.parent, epoch=EPOCH)
    list_again(shard, "thin")


def test_a_shard_as_a_run_leaves_it_is_merged(shard, try_merge, console) -> None:
    assert try_merge(shard) == 0
    assert "was not compared with commit" in console.export_text(), "no checkout has this commit"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"git_commit": "d" * 40}, f"holds binaries of commit {COMMIT}, {'d' * 40}"),
        (None, "has no build record"),
    ],
)
def test_a_binary_of_another_commit_is_refused(changes, reason, shard, try_merge, tmp_path) -> None:
    record = None if changes is None else record_of(CPU, **changes)
    replace_binary(shard, shared_object(tmp_path / "x" / CPU, record=record).read_bytes())
    with pytest.raises(ReleaseError, match=reason):
        try_merge(shard)


def test_two_source_distributions_of_one_name_are_refused(
    matrix, objects, shard, try_merge, tmp_path
) -> None:
    make_manifest(tmp_path / "1", matrix, {"stable210-cu13": "done"}, objects)
    replace_sdist(tmp_path / "1", {"tiny_client/other.py": b"other sources"})
    with pytest.raises(ReleaseError, match=r"tiny_client-0\.1\.0\.tar\.gz in .*/1 differs from"):
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


# What is no binary: the source distribution is that of the commit, and wheels are made of it.


@pytest.fixture
def checkout(tmp_path) -> tuple[Path, str]:
    """A git repository with the sources of `make_sdist`, and its commit."""
    repo = tmp_path / "checkout"
    (repo / "tiny_client").mkdir(parents=True)
    (repo / "tiny_client" / "__init__.py").touch()
    (repo / "pyproject.toml").touch()
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(repo)]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    return repo, commit.stdout.strip()


def problems_of(files: Mapping[str, bytes], checkout: tuple[Path, str], folder: Path) -> list[str]:
    repo, commit = checkout
    project = SETTINGS.project
    sources = read_sdist(make_sdist(folder / SDIST, files), project)
    committed = files_of_commit(commit, repo)
    return list(sdist_problems(sources, commit, project, committed))


def test_a_source_distribution_of_the_commit_has_no_fault(checkout, tmp_path) -> None:
    generated = {
        "setup.cfg": b"[egg_info]\ntag_build = \ntag_date = 0\n\n",
        "tiny_client.egg-info/SOURCES.txt": b"pyproject.toml\n",
        "tiny_client/source.json": json.dumps({"commit": checkout[1], "epoch": "0"}).encode(),
    }
    assert problems_of(generated, checkout, tmp_path) == []


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        (
            "tiny_client/__init__.py",
            b"import evil",
            r"a tiny_client/__init__\.py that is not that of commit",
        ),
        ("tiny_client/evil.py", b"", r"holds tiny_client/evil\.py, which is not in commit"),
        ("setup.cfg", b"[build_ext]\ndefine = EVIL\n", r"holds setup\.cfg, which is not in"),
        ("PKG-INFO", b"Name: tiny-client\nVersion: 9.9.9\n\n", "PKG-INFO of another distribution"),
        (
            "tiny_client/source.json",
            b'{"commit": "d"}',
            r"source\.json that does not name the commit",
        ),
        ("tiny_client/source.json", b"{", r"source\.json that does not name the commit"),
    ],
)
def test_a_source_distribution_of_other_files_than_the_commit_is_refused(
    name, data, reason, checkout, tmp_path
) -> None:
    (problem,) = problems_of({name: data}, checkout, tmp_path)
    assert re.search(reason, problem)


def test_the_merge_compares_sources_with_the_commit_of_its_checkout(
    matrix, objects, checkout, own_settings, console, tmp_path
) -> None:
    """The objects' records have another commit, so this merge cannot succeed."""
    repo, commit = checkout
    make_manifest(tmp_path / "0", matrix, {CELL: "done"}, objects, commit=commit)
    replace_sdist(tmp_path / "0", {"tiny_client/evil.py": b""})
    settings = replace(own_settings, repo=repo)
    with pytest.raises(ReleaseError, match=r"evil\.py, which is not in commit"):
        merge([tmp_path / "0"], console, settings)


@pytest.mark.parametrize("commit", ["unknown", "HEAD", "--help", "../x", "d" * 40])
def test_what_is_no_commit_here_is_known_to_be_none(commit, checkout) -> None:
    assert files_of_commit(commit, checkout[0]) is None


def test_a_shard_without_a_source_distribution_is_refused(shard, try_merge) -> None:
    manifest = json.loads((shard / "manifest.json").read_text())
    forge(shard, artefacts=[a for a in manifest["artefacts"] if a["kind"] != "sdist"])
    with pytest.raises(ReleaseError, match="there are 0 source distributions, needs one"):
        try_merge(shard)


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        (b"no archive", "cannot be read as a source distribution"),
        ({"../evil": tarfile.REGTYPE}, "not a plain file of"),
        ({"tiny_client-0.1.0/../evil": tarfile.REGTYPE}, "not a plain file of"),
        ({"tiny_client-0.1.0/link": tarfile.SYMTYPE}, "not a plain file of"),
        ({"tiny_client-0.1.0/fifo": tarfile.FIFOTYPE}, "not a plain file of"),
        ({"other-0.1.0/x": tarfile.REGTYPE}, "not a plain file of"),
    ],
)
def test_a_source_distribution_that_is_no_archive_of_files_is_refused(
    members, reason, shard, try_merge
) -> None:
    if isinstance(members, bytes):
        (shard / SDIST).write_bytes(members)
    else:
        with tarfile.open(shard / SDIST, "w:gz") as archive:
            for name, kind in members.items():
                member = tarfile.TarInfo(name)
                member.type = kind
                member.linkname = "/etc/passwd"
                archive.addfile(member)
    list_again(shard, "sdist")
    with pytest.raises(ReleaseError, match=reason):
        try_merge(shard)


def test_a_source_distribution_that_unpacks_to_more_than_the_limit_is_refused(
    shard, try_merge, monkeypatch
) -> None:
    monkeypatch.setattr(provenance, "MAX_UNPACKED", 1000)
    replace_sdist(shard, {"zeros": bytes(2000)})
    with pytest.raises(ReleaseError, match="too large"):
        try_merge(shard)


@pytest.mark.parametrize(
    ("files", "info", "reason"),
    [
        ({"tiny_client/evil.py": b""}, {}, r"holds tiny_client/evil\.py, which the source"),
        (
            {"tiny_client/__init__.py": b"1"},
            {},
            r"a tiny_client/__init__\.py that is not the source",
        ),
        ({"tiny_client/lib/evil.bin": b""}, {}, r"holds tiny_client/lib/evil\.bin"),
        ({"evil.pth": b"import evil"}, {}, r"holds evil\.pth"),
        (
            {"tiny_client-0.1.0.data/scripts/pip": b""},
            {},
            r"holds tiny_client-0\.1\.0\.data/scripts/pip",
        ),
        ({"tiny_client/engine/evil.py": b""}, {}, r"holds tiny_client/engine/evil\.py"),
        ({}, {"entry_points.txt": b"[console_scripts]"}, r"entry_points\.txt in its metadata"),
    ],
)
def test_a_wheel_with_a_file_that_is_not_in_the_source_distribution_is_refused(
    files, info, reason, shard, try_merge
) -> None:
    """Also if it is the only wheel, so that no other differs from it."""
    repack_wheel(shard, files, info)
    with pytest.raises(ReleaseError, match=reason):
        try_merge(shard)


def test_a_wheel_holds_the_engine_and_the_sources_of_the_source_distribution() -> None:
    sources = {
        "torchship/judge/x.py": b"x",
        "csrc/ops/x.cpp": b"x",
        "tiny_client.egg-info/entry_points.txt": b"e",
    }
    files = {"tiny_client/engine/judge/x.py": b"x", "tiny_client/csrc/ops/x.cpp": b"x"}
    info = {"METADATA": b"", "WHEEL": b"", "licenses/LICENSE": b"", "entry_points.txt": b"e"}
    wheel = Wheel("tiny_client", "0.1.0", "py3-none-any", files, info)
    assert list(wheel_problems(wheel, sources, SETTINGS.project)) == []


def test_sources_that_name_the_engine_get_that_of_this_tool() -> None:
    """The repository of a client holds no copy of the engine."""
    engine = Path(provenance.__file__).parents[2]
    content = (engine / "judge" / "reading" / "elf.py").read_bytes()
    files = {
        "tiny_client/engine/judge/reading/elf.py": content,
        "tiny_client/engine/judge/text.py": b"x",
    }
    wheel = Wheel("tiny_client", "0.1.0", "py3-none-any", files, {})
    (problem,) = wheel_problems(wheel, {}, SETTINGS.project)
    assert "a tiny_client/engine/judge/text.py that is not" in problem


# Cells that failed after they were packed.


def fail_after_packing(shard: Path) -> None:
    """The cell's wheel is there and listed, but its run failed."""
    manifest = json.loads((shard / "manifest.json").read_text())
    cells = manifest["cells"]
    cells[OPTIONAL] |= {"state": "failed", "reason": "venv: wrong results"}
    forge(shard, cells=cells)


@pytest.fixture
def failed_shard(matrix, objects, tmp_path) -> Path:
    make_manifest(tmp_path / "1", matrix, {OPTIONAL: "done"}, objects)
    fail_after_packing(tmp_path / "1")
    return tmp_path / "1"


def test_what_a_failed_optional_cell_packed_is_left_behind(
    shard, failed_shard, try_merge, own_settings
) -> None:
    assert try_merge(shard, failed_shard) == 0
    manifest = parse(own_settings.manifest)
    assert manifest.cells[OPTIONAL].state == "failed"
    assert manifest.cells[OPTIONAL].wheel is None
    assert OPTIONAL not in {cell for a in manifest.artefacts for cell in a.cells}
    assert not list(own_settings.dist.glob("simple/*/*aten24*"))
    assert (own_settings.dist / "logs" / f"{OPTIONAL}.log").is_file()


def test_a_failed_optional_cell_stops_no_merge_whatever_it_packed(
    shard, failed_shard, try_merge
) -> None:
    """It may have failed because its audit found this."""
    path = failed_shard / str(parse(failed_shard / "manifest.json").cells[OPTIONAL].wheel)
    wheel = read_wheel(path)
    binaries = {Path(name).name: b"no object" for name in wheel.binaries}
    make_wheel(path.parent, binaries, version=wheel.version)
    list_again(failed_shard, "thin")
    assert try_merge(shard, failed_shard) == 0
