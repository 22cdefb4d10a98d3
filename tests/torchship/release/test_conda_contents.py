"""The check of a conda package before it is published: binaries as built, no path of the build."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from small_checkout import SETTINGS
from small_wheels import SMALL, make_wheel

from torchship.release import ReleaseError

pytest.importorskip("rattler")

from torchship.release.steps.conda.worker import contents

FOLDER = f"site-packages/{SETTINGS.project.package}"
INFO = "site-packages/tiny_client-0.1.0.dist-info"


def package(
    folder: Path,
    files: dict[str, bytes],
    placeholder: str | None = None,
    unlisted: Mapping[str, bytes] | None = None,
    links: Mapping[str, str] | None = None,
) -> Path:
    """A package with these files; if there is a placeholder, the first file has it.

    Its list of files does not know what is `unlisted`, nor the links.
    """
    paths = [
        {
            "_path": name,
            "path_type": "hardlink",
            "sha256": hashlib.sha256(data).hexdigest(),
            "size_in_bytes": len(data),
        }
        for name, data in files.items()
    ]
    if placeholder:
        paths[0] |= {"prefix_placeholder": placeholder, "file_mode": "text"}
    listed = json.dumps({"paths": paths, "paths_version": 1}).encode()
    path = folder / "tiny-client-0.1.0-0.tar.bz2"
    with tarfile.open(path, "w:bz2") as archive:
        for name, data in {"info/paths.json": listed, **files, **(unlisted or {})}.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type = tarfile.SYMTYPE
            member.linkname = target
            archive.addfile(member)
    return path


@pytest.fixture
def binary(tmp_path) -> Path:
    path = tmp_path / "kernels-cpu.so"
    path.write_bytes(b"as built")
    return path


def test_a_package_with_the_binaries_as_built_passes(tmp_path, binary, capsys) -> None:
    contents(package(tmp_path, {f"{FOLDER}/lib/{binary.name}": b"as built"}), [binary], SETTINGS)
    assert (
        f"{binary.name}: sha256 {hashlib.sha256(b'as built').hexdigest()}"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("files", "placeholder", "says"),
    [
        ({f"{FOLDER}/lib/kernels-cpu.so": b"other bytes"}, None, "was changed while it was packed"),
        ({f"{FOLDER}/__init__.py": b""}, None, "is missing"),
        (
            {f"{FOLDER}/lib/kernels-cpu.so": b"as built"},
            "/build/prefix",
            "holds a path of the build",
        ),
        (
            {"site-packages/tiny_client-0.1.0.dist-info/direct_url.json": b"{}"},
            None,
            "holds a path",
        ),
    ],
    ids=["changed", "missing", "placeholder", "direct_url"],
)
def test_a_package_is_refused_by_what_it_holds(tmp_path, binary, files, placeholder, says) -> None:
    with pytest.raises(ReleaseError, match=says):
        contents(package(tmp_path, files, placeholder), [binary], SETTINGS)


BINARY = {f"{FOLDER}/lib/kernels-cpu.so": b"as built"}


@pytest.mark.parametrize(
    "name", [f"{FOLDER}/lib/libevil.so", "lib/libevil.so.1.2", f"{FOLDER}/lib/glue-evil.so"]
)
def test_a_shared_object_that_no_cell_made_is_refused(name, tmp_path, binary) -> None:
    with pytest.raises(ReleaseError, match="which no cell made"):
        contents(package(tmp_path, {**BINARY, name: b"evil"}), [binary], SETTINGS)


@pytest.mark.parametrize(
    ("unlisted", "links"),
    [
        ({f"{FOLDER}/lib/kernels-cpu.so": b"other bytes"}, {}),
        ({f"{FOLDER}/evil.py": b""}, {}),
        ({}, {f"{FOLDER}/evil.py": "/etc/passwd"}),
    ],
    ids=["other bytes", "one more file", "a link"],
)
def test_the_files_count_and_not_what_the_list_says(unlisted, links, tmp_path, binary) -> None:
    forged = package(tmp_path, BINARY, unlisted=unlisted, links=links)
    with pytest.raises(ReleaseError, match=r"not as its info/paths\.json says"):
        contents(forged, [binary], SETTINGS)


OF_A_CELL = replace(SMALL, metadata=f"Requires-Dist: torch>=2.10\n{SMALL.metadata}")
WITH_METADATA = {
    **BINARY,
    f"{FOLDER}/__init__.py": b"",
    f"{INFO}/METADATA": OF_A_CELL.metadata_of("0.1.0"),
    f"{INFO}/RECORD": b"",
    f"{INFO}/licenses/LICENSE": b"",
}


@pytest.fixture
def wheel(tmp_path) -> Path:
    """The wheel of the cell."""
    binaries = {"kernels-cpu.so": b"as built"}
    return make_wheel(tmp_path / "thin", binaries, version="0.1.0+stable.cpu", shape=OF_A_CELL)


def test_a_package_with_the_files_of_the_wheel_passes(tmp_path, binary, wheel) -> None:
    contents(package(tmp_path, WITH_METADATA), [binary], SETTINGS, wheel=wheel)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({f"{FOLDER}/evil.py": b""}, r"evil\.py is not as in tiny_client 0\.1\.0\+stable\.cpu"),
        ({"bin/.tiny-client-post-link.sh": b""}, r"post-link\.sh is not as in"),
        ({"site-packages/evil.pth": b""}, r"evil\.pth is not as in"),
        ({f"{FOLDER}/__init__.py": b"1"}, r"__init__\.py is not as in"),
        ({f"{FOLDER}/__init__.py": None}, r"__init__\.py is not as in"),
        ({f"{INFO}/entry_points.txt": b""}, r"entry_points\.txt is not as in"),
        ({f"{INFO}/METADATA": None}, "METADATA is missing"),
        ({f"{INFO}/METADATA": OF_A_CELL.metadata_of("9")}, "differ in 'Version: 0.1.0'"),
        ({f"{INFO}/METADATA": SMALL.metadata_of("0.1.0")}, "differ in 'Requires-Dist: torch>=2.10"),
        (
            {f"{INFO}/METADATA": b"Requires-Dist: evil\n" + OF_A_CELL.metadata_of("0.1.0")},
            "differ in 'Requires-Dist: evil'",
        ),
    ],
)
def test_a_package_with_other_files_than_the_wheel_is_refused(
    changes, says, tmp_path, binary, wheel
) -> None:
    files = {name: data for name, data in {**WITH_METADATA, **changes}.items() if data is not None}
    with pytest.raises(ReleaseError, match=says):
        contents(package(tmp_path, files), [binary], SETTINGS, wheel=wheel)
