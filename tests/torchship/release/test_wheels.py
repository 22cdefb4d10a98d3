"""Wheels: read whole or refused, joined with every object once, truly tagged, reproducible."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from random import Random
from types import SimpleNamespace
from zipfile import ZipFile

import pytest
from packaging.utils import parse_wheel_filename
from packaging.version import Version
from shared_objects import KERNELS_RECORD, shared_object
from small_client import PROJECT
from small_wheels import EPOCH, TAG, make_wheel

from torchship.judge.reading.binary import read_binary
from torchship.release import ReleaseError
from torchship.release.paths import replace_wheel
from torchship.release.run.tasks import Context
from torchship.release.steps.pack import distributions as pack_steps
from torchship.release.steps.pack.distributions import (
    check_binaries,
    make_fat_wheel,
    partial_version,
    repack,
    run_build,
    true_tag,
    unpack,
    write_index,
)
from torchship.release.steps.pack.wheels import join, read_wheel

CPU, CUDA, GLUE = b"\x7fELF cpu", b"\x7fELF cuda", b"\x7fELF glue"
PLATFORM, MACHINE = "linux-x86_64", "x86_64"
LIMIT = 20_000_000  # the promised size in bytes
THIN = {
    "stable210-cpu": {"glue-stable210.so": GLUE, "kernels-cpu.so": CPU},
    "stable210-cu13": {
        "glue-stable210.so": GLUE,
        "kernels-cpu.so": CPU,
        "kernels-cuda13.so": CUDA,
    },
}


@pytest.fixture
def thin(tmp_path) -> dict[str, Path]:
    return {
        name: make_wheel(tmp_path / name, files, version=f"0.1.0+{name.replace('-', '.')}")
        for name, files in THIN.items()
    }


@pytest.fixture
def real(tmp_path) -> bytes:
    """A shared object that auditwheel can read."""
    return shared_object(tmp_path / "kernels-cpu.so", record=KERNELS_RECORD).read_bytes()


def test_a_wheel_survives_the_way_to_disk_and_back(thin, tmp_path) -> None:
    wheel = read_wheel(thin["stable210-cpu"])
    (tmp_path / "again").mkdir()
    assert read_wheel(wheel.write(tmp_path / "again", epoch=EPOCH)) == wheel


def test_a_joined_wheel_holds_every_object_once(thin) -> None:
    joined = join(thin, local=None, platform=PLATFORM)
    assert joined.version == "0.1.0"
    names = {Path(name).name: data for name, data in joined.binaries.items()}
    assert names == {"glue-stable210.so": GLUE, "kernels-cpu.so": CPU, "kernels-cuda13.so": CUDA}


def test_only_the_version_of_the_metadata_changes(thin) -> None:
    metadata = join(thin, local="partial.2of21", platform=PLATFORM).info["METADATA"].decode()
    assert "\nVersion: 0.1.0+partial.2of21\n" in metadata and metadata.endswith("\nVersion: no\n")


def test_objects_of_two_builds_are_not_joined(thin, tmp_path) -> None:
    thin["aten24-abi0-cpu"] = make_wheel(tmp_path / "x", {"kernels-cpu.so": b"other"})
    with pytest.raises(ReleaseError, match=r"kernels-cpu\.so differs between .*aten24-abi0-cpu"):
        join(thin, local=None, platform=PLATFORM)


def test_wheels_of_two_source_trees_are_not_joined(thin, tmp_path) -> None:
    more = {"tiny_client/new.py": b"x = 1\n"}
    thin = {"new": make_wheel(tmp_path / "x", {"kernels-cpu.so": CPU}, sources=more), **thin}
    with pytest.raises(ReleaseError, match=r"stable210-cpu lacks tiny_client/new\.py"):
        join(thin, local=None, platform=PLATFORM)


def test_a_wheel_with_a_file_that_the_others_lack_is_not_joined(thin, tmp_path) -> None:
    more = {"tiny_client/new.py": b"x = 1\n"}
    thin["new"] = make_wheel(tmp_path / "x", {"kernels-cpu.so": CPU}, sources=more)
    with pytest.raises(ReleaseError, match=r"tiny_client/new\.py, which the others lack"):
        join(thin, local=None, platform=PLATFORM)


@pytest.mark.parametrize("damage", ["cut", "changed", "added", "empty"])
def test_a_damaged_wheel_is_refused(damage, thin, tmp_path) -> None:
    path = thin["stable210-cpu"]
    if damage == "empty":
        path.write_bytes(b"")
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-40])
    else:
        with ZipFile(path) as archive:
            entries = {name: archive.read(name) for name in archive.namelist()}
        entries["tiny_client/lib/kernels-cpu.so" if damage == "changed" else "more.py"] = b"evil"
        with ZipFile(path, "w") as archive:
            for name, data in entries.items():
                archive.writestr(name, data)
    with pytest.raises(ReleaseError, match="delete"):
        read_wheel(path)


def test_the_same_content_makes_the_same_bytes(thin, tmp_path) -> None:
    wheels = []
    for name, order in (("a", list(thin)), ("b", list(reversed(thin)))):
        (tmp_path / name).mkdir()
        joined = join({n: thin[n] for n in sorted(order)}, local=None, platform=PLATFORM)
        wheels.append(joined.write(tmp_path / name, epoch=EPOCH))
        os.utime(thin["stable210-cpu"], (0, 0))
    assert wheels[0].read_bytes() == wheels[1].read_bytes()


def test_files_in_a_wheel_are_as_old_as_the_sources(thin) -> None:
    with ZipFile(thin["stable210-cpu"]) as archive:
        dates = {item.date_time for item in archive.infolist()}
    (date,) = dates
    expected = time.gmtime(EPOCH)[:6]
    assert date == (
        *expected[:5],
        expected[5] - expected[5] % 2,
    )  # zip counts in steps of two seconds


def test_two_source_distributions_of_the_same_files_are_the_same(tmp_path) -> None:
    archives = []
    for name, umask, when in (("a", 0o022, 1_600_000_000), ("b", 0o077, 1_700_000_000)):
        tree = tmp_path / name / "tiny_client-0.1.0"
        tree.mkdir(parents=True)
        for file, mode in (("setup.py", 0o666), ("run.sh", 0o777)):
            (tree / file).write_text(file)
            (tree / file).chmod(mode & ~umask)
            os.utime(tree / file, (when, when))
        archive = tmp_path / name / "tiny_client-0.1.0.tar.gz"
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(tree, "tiny_client-0.1.0")
        (tmp_path / name / "out").mkdir()
        archives.append(repack(archive, tmp_path / name / "out", 1_750_000_000))
    assert archives[0].read_bytes() == archives[1].read_bytes()
    with tarfile.open(archives[0]) as tar:
        modes = {m.name: (m.mode, m.mtime, tar.extractfile(m)) for m in tar if m.isfile()}
        contents = {name: (mode, when, data.read()) for name, (mode, when, data) in modes.items()}
    assert contents == {
        "tiny_client-0.1.0/run.sh": (0o755, 1_750_000_000, b"run.sh"),
        "tiny_client-0.1.0/setup.py": (0o644, 1_750_000_000, b"setup.py"),
    }


def test_a_partial_name_is_one_that_pip_accepts() -> None:
    local = partial_version(["a", "b"], ["a", "b", "c"])
    name, version, _, _ = parse_wheel_filename(f"tiny_client-0.1.0+{local}-{TAG}.whl")
    assert name == PROJECT.distribution and version == Version("0.1.0+partial.2of3")


def test_the_true_tag_is_that_of_the_binaries(real, tmp_path) -> None:
    wheel = read_wheel(make_wheel(tmp_path, {"kernels-cpu.so": real}))
    assert true_tag(wheel, MACHINE).startswith("py3-none-manylinux")


def test_a_wheel_that_needs_another_library_is_stopped(tmp_path) -> None:
    other = shared_object(tmp_path / "libother.so", defined=["other"], soname="libother.so.3")
    other.rename(tmp_path / "libother.so.3")
    path = shared_object(
        tmp_path / "kernels-cpu.so", record=KERNELS_RECORD, libraries=[tmp_path / "libother.so.3"]
    )
    wheel = read_wheel(make_wheel(tmp_path / "in", {path.name: path.read_bytes()}))
    with pytest.raises(ReleaseError, match=r"kernels-cpu\.so: needs libother\.so\.3, which is out"):
        true_tag(wheel, MACHINE)


def test_a_wheel_may_need_the_openmp_runtime_of_torch(tmp_path) -> None:
    path = shared_object(
        tmp_path / "glue-aten24-abi0.so",
        record=KERNELS_RECORD,
        flags=["-Wl,--no-as-needed", "-lgomp"],
    )
    assert "libgomp.so.1" in read_binary(path).needed
    wheel = read_wheel(make_wheel(tmp_path / "in", {path.name: path.read_bytes()}))
    assert true_tag(wheel, MACHINE).startswith("py3-none-manylinux")


@pytest.mark.parametrize("expected", [{"kernels-cpu.so": GLUE}, {**THIN["stable210-cpu"]}, {}])
def test_a_changed_or_lost_or_added_object_is_stopped(expected, tmp_path) -> None:
    packed = read_wheel(make_wheel(tmp_path, {"kernels-cpu.so": CPU}))
    check_binaries(packed, {"kernels-cpu.so": CPU}, "tiny_client")
    with pytest.raises(ReleaseError, match="is missing, was changed or was added"):
        check_binaries(packed, expected, "tiny_client")


def test_a_wheel_that_no_manylinux_policy_allows_is_stopped(real, tmp_path, monkeypatch) -> None:
    linux = SimpleNamespace(name="linux_x86_64", aliases=[])
    allowing = SimpleNamespace(versioned_symbols_policy=lambda symbols: linux)
    monkeypatch.setattr(pack_steps, "policies", lambda _: allowing)
    with pytest.raises(ReleaseError, match="newer system libraries than any manylinux tag"):
        true_tag(read_wheel(make_wheel(tmp_path, {"kernels-cpu.so": real})), MACHINE)


@pytest.mark.parametrize(
    ("required", "version"),
    [
        (["stable210-cpu"], "0.1.0"),
        (["stable210-cpu", "stable210-cu13"], "0.1.0+partial.1of2"),
        (["stable210-cu13"], "0.1.0+partial.0of1"),
    ],
)
def test_a_fat_wheel_says_whether_it_is_whole(required, version, real, log, tmp_path) -> None:
    wheel = make_wheel(tmp_path / "in", {"kernels-cpu.so": real}, version="0.1.0+stable.cpu")
    fat_wheel = make_fat_wheel(log, {"stable210-cpu": wheel}, required=required, limit=LIMIT)
    assert fat_wheel.name.startswith(f"tiny_client-{version}-py3-none-manylinux")


@pytest.mark.slow
def test_a_fat_wheel_above_the_limit_is_stopped(real, log, tmp_path, matrix) -> None:
    assert matrix.project.wheel_limit == LIMIT
    padding = Random(0).randbytes(20_000_000)  # the promised limit, and nothing compresses it
    wheel = make_wheel(tmp_path / "in", {"kernels-cpu.so": real + padding})
    with pytest.raises(ReleaseError, match="at most 20000000 are allowed"):
        make_fat_wheel(log, {"stable210-cpu": wheel}, required=["stable210-cpu"], limit=LIMIT)


def test_an_older_platform_tag_of_the_same_version_is_removed(tmp_path) -> None:
    old = make_wheel(tmp_path, {"kernels-cpu.so": CPU}, version="0.1.0+stable.cpu")
    other = make_wheel(tmp_path, {"kernels-cpu.so": CPU}, version="0.1.0+stable.cu13")
    tag = "py3-none-manylinux_2_34_x86_64"
    new = make_wheel(tmp_path / "made", {}, version="0.1.0+stable.cpu", tag=tag)
    assert replace_wheel(new, tmp_path) == tmp_path / new.name
    assert not old.exists() and other.exists() and (tmp_path / new.name).exists()


@pytest.mark.parametrize("way", ["--extra-index-url", "--find-links"])
def test_pip_installs_a_variant_from_the_index(way, thin, tmp_path) -> None:
    root = tmp_path / "simple"
    make_wheel(root / PROJECT.distribution, THIN["stable210-cpu"], version="0.1.0+stable.cpu")
    make_wheel(root / PROJECT.distribution, THIN["stable210-cu13"], version="0.1.0+stable.cu13")
    write_index(root)
    place = root if way == "--extra-index-url" else root / PROJECT.distribution / "index.html"
    index = ["--index-url", (tmp_path / "nothing").as_uri()]
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", tmp_path / "site"]
    command += [*index, way, place.as_uri(), "tiny-client==0.1.0+stable.cu13"]
    env = {k: v for k, v in os.environ.items() if not k.startswith("PIP_")}
    env["PIP_CONFIG_FILE"] = os.devnull
    process = subprocess.run(command, capture_output=True, text=True, env=env)
    assert process.returncode == 0, process.stderr
    assert (tmp_path / "site" / "tiny_client" / "lib" / "kernels-cuda13.so").read_bytes() == CUDA


def test_pip_refuses_what_the_index_did_not_mean(tmp_path) -> None:
    root = tmp_path / "simple"
    path = make_wheel(
        root / PROJECT.distribution, THIN["stable210-cpu"], version="0.1.0+stable.cpu"
    )
    write_index(root)
    path.write_bytes(make_wheel(tmp_path / "x", {}, version="0.1.0+stable.cpu").read_bytes())
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", tmp_path / "site"]
    command += ["--index-url", root.as_uri(), "tiny-client==0.1.0+stable.cpu"]
    env = {k: v for k, v in os.environ.items() if not k.startswith("PIP_")}
    env["PIP_CONFIG_FILE"] = os.devnull
    process = subprocess.run(command, capture_output=True, text=True, env=env)
    assert process.returncode and "HASHES" in process.stderr.upper()


def test_what_a_project_wants_for_its_build_beside_torchship_stops_no_release(
    log, own_settings, tmp_path
) -> None:
    """The tool's environment has torchship's needs alone, and only the backend knows its own."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools>=77", "not-here"]\n'
        'build-backend = "setuptools.build_meta"\n[project]\nname = "op"\nversion = "1"\n'
    )
    run_build(Context(log, own_settings), "--sdist", source, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["op-1.tar.gz"]


@pytest.mark.parametrize("has_filters", [True, False], ids=["with filters", "without"])
def test_a_source_distribution_is_unpacked_by_any_python(
    has_filters: bool, tmp_path: Path, monkeypatch
) -> None:
    """Python 3.11.2, which Debian 12 has, knows no filter."""
    file = tmp_path / "own_op-1" / "setup.py"
    file.parent.mkdir()
    file.write_text("")
    with tarfile.open(tmp_path / "own_op-1.tar.gz", "w:gz") as archive:
        archive.add(file.parent, "own_op-1")
    if not has_filters:
        extract = tarfile.TarFile.extractall
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
        monkeypatch.setattr(tarfile.TarFile, "extractall", lambda *words: extract(*words))
    source = unpack(tmp_path / "own_op-1.tar.gz", tmp_path / "unpacked")
    assert [path.name for path in source.iterdir()] == ["setup.py"]
