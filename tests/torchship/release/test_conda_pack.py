"""A conda package says nothing of the machine, the place and the time of its build."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from small_clients import REPO

pytest.importorskip("rattler_build")
pytest.importorskip("zstandard")

import zstandard

from torchship.release.steps.conda import archives
from torchship.release.steps.conda import commands as conda_commands
from torchship.release.steps.conda.stubs import Stub, write_channel

RECIPE = """\
schema_version: 1
package: {name: tiny-client, version: "0.1.0"}
build:
  noarch: generic
  string: cpu_stable210_100
  script: {file: build.sh}
requirements:
  host: [zlib]
  run: [zz, aa, mm, "kk >=2"]
tests:
  - script: [test -x bin/program]
about: {summary: A program}
extra: {commit: abc}
"""
BUILD = """\
mkdir -p "$PREFIX/bin"
printf 'echo said\\n' >"$PREFIX/bin/program"
chmod 755 "$PREFIX/bin/program"
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory, conda_worker) -> list[Path]:
    """One recipe, built in two places beside two channels."""
    paths = []
    for name in ("a", "much/deeper/b"):
        root = tmp_path_factory.mktemp("clone") / name
        (root / "recipe").mkdir(parents=True)
        (root / "recipe" / "recipe.yaml").write_text(RECIPE)
        (root / "recipe" / "build.sh").write_text(BUILD)
        (root / "variants.yaml").write_text("variant_glue: [x]\n")
        channel = write_channel(root / "channel", [Stub("zlib", "1", "0")])
        out = root / "out"
        command = conda_commands.build(
            root / "variants.yaml",
            out,
            channels=[channel.as_uri()],
            recipe=root / "recipe" / "recipe.yaml",
        )
        conda_worker(command)
        paths += out.glob("*/*.conda")
    return paths


def test_a_package_is_written_by_a_python_before_the_filters_of_tarfile(
    tmp_path, monkeypatch
) -> None:
    """Python 3.11.2, which Debian 12 has, knows no TarInfo.replace."""
    monkeypatch.delattr(tarfile.TarInfo, "replace", raising=False)
    (tmp_path / "root" / "info").mkdir(parents=True)
    (tmp_path / "root" / "file").write_text("content")
    package = tmp_path / "tiny-client-0.1.0-cpu_0.conda"
    archives.write_package(package, tmp_path / "root", epoch=1)
    entry, content = members(package)["file"]
    assert (entry.mtime, entry.uid, entry.uname, content) == (1, 0, "", b"content")


def test_others_may_read_a_package(packages, tmp_path) -> None:
    """A server that is another user; rattler-build makes files for their owner alone."""
    new = tmp_path / "new"
    new.touch()
    assert {package.stat().st_mode for package in packages} == {new.stat().st_mode}


def members(package: Path) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    """Everything in both archives of a package."""
    contents = {}
    with zipfile.ZipFile(package) as outer:
        for name in outer.namelist():
            if name.endswith(".tar.zst"):
                data = zstandard.ZstdDecompressor().decompress(outer.read(name))
                with tarfile.open(fileobj=io.BytesIO(data)) as inner:
                    for entry in inner:
                        file = inner.extractfile(entry) if entry.isreg() else None
                        contents[entry.name] = (entry, file.read() if file else b"")
    return contents


@pytest.mark.slow
def test_two_clones_make_the_same_bytes(packages) -> None:
    first, second = packages
    assert first.name == second.name == "tiny-client-0.1.0-cpu_stable210_100.conda"
    assert first.read_bytes() == second.read_bytes()


def test_no_folder_of_the_machine_is_named(packages) -> None:
    for package in packages:
        root = os.fsencode(package.parents[2])
        assert [name for name, (_, data) in members(package).items() if root in data] == []


def test_it_is_compressed_as_conda_forges_are(packages) -> None:
    with zipfile.ZipFile(packages[0]) as outer:
        for name in (name for name in outer.namelist() if name.endswith(".tar.zst")):
            data = outer.read(name)
            plain = zstandard.ZstdDecompressor().decompress(data)
            assert data == zstandard.ZstdCompressor(level=19).compress(plain), name


def test_it_is_as_old_as_its_commit(packages) -> None:
    command = ["git", "log", "-1", "--format=%ct"]
    process = subprocess.run(command, cwd=REPO, capture_output=True, text=True)
    if process.returncode:
        pytest.skip("this is no checkout")
    epoch = int(process.stdout)
    contents = members(packages[0])
    assert {entry.mtime for entry, _ in contents.values()} == {epoch}
    assert json.loads(contents["info/index.json"][1])["timestamp"] == 1000 * epoch


def test_nothing_else_is_lost(packages, conda_worker) -> None:
    contents = members(packages[0])
    assert contents["bin/program"][1] == b"echo said\n" and contents["bin/program"][0].mode == 0o755
    index = json.loads(contents["info/index.json"][1])
    assert index["depends"] == ["aa", "kk >=2", "mm", "zz"]
    metadata = json.loads(contents["info/about.json"][1])
    assert metadata["extra"] == {"commit": "abc"} and metadata["summary"] == "A program"
    recipe_files = {name for name in contents if name.startswith("info/recipe/")}
    assert recipe_files == {
        f"info/recipe/{n}" for n in ("recipe.yaml", "build.sh", "variant_config.yaml")
    }
    paths = {entry["_path"] for entry in json.loads(contents["info/paths.json"][1])["paths"]}
    assert paths == {"bin/program"} and "info/tests/tests.yaml" in contents


def test_a_new_package_drives_an_older_one_of_its_name_out_of_the_cache(
    tmp_path, conda_worker
) -> None:
    """Else the tests that are run for it are those of the older one."""
    (tmp_path / "recipe").mkdir()
    recipe = tmp_path / "recipe" / "recipe.yaml"
    recipe.write_text(RECIPE.replace("test -x bin/program", "false"))
    (tmp_path / "recipe" / "build.sh").write_text(BUILD)
    (tmp_path / "variants.yaml").write_text("variant_glue: [x]\n")
    channel = write_channel(tmp_path / "channel", [Stub("zlib", "1", "0")]).as_uri()
    old = tmp_path / "cache" / "pkgs" / "tiny-client-0.1.0-cpu_stable210_100"
    old.mkdir(parents=True)
    command = conda_commands.build(
        tmp_path / "variants.yaml", tmp_path / "out", channels=[channel], recipe=recipe
    )
    conda_worker(command, {"RATTLER_CACHE_DIR": str(tmp_path / "cache")})
    assert not old.exists()
