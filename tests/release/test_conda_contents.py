"""The check of a conda package before it is published: binaries as built, no path of the build."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest
from checkout import SETTINGS

from torchship.release import ReleaseError

pytest.importorskip("rattler")

from torchship.release.conda_worker import contents

FOLDER = f"site-packages/{SETTINGS.project.package}"


def package(folder: Path, files: dict[str, bytes], placeholder: str | None = None) -> Path:
    """A package with these files; if there is a placeholder, the first file has it."""
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
    path = folder / "lltm-0.1.0-0.tar.bz2"
    with tarfile.open(path, "w:bz2") as archive:
        for name, data in {"info/paths.json": listed, **files}.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
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
        ({"site-packages/lltm-0.1.0.dist-info/direct_url.json": b"{}"}, None, "holds a path"),
    ],
    ids=["changed", "missing", "placeholder", "direct_url"],
)
def test_a_package_is_refused_by_what_it_holds(tmp_path, binary, files, placeholder, says) -> None:
    with pytest.raises(ReleaseError, match=says):
        contents(package(tmp_path, files, placeholder), [binary], SETTINGS)
