"""The packages of the distribution that the doctor names, installed by apt out of a folder."""

from __future__ import annotations

import ctypes.util
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from made_facts import make_runtime
from shared_objects import shared_object
from sick_environment import SickEnvironment, carries_out

from torchship.judge import BinaryRecord, Environment, fixes
from torchship.judge.fixes import system_packages
from torchship.judge.records import Fix, Owner
from torchship.judge.target import Target

ADD = "_ZN2at6Tensor3addEv"


def publish_package(folder: Path, name: str, library: Path) -> None:
    """A package of Debian's with one library, in a folder that apt reads as a repository."""
    tree = folder / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    fields = (
        f"Package: {name}\nVersion: 1.0\nArchitecture: all\n"
        "Maintainer: nobody <nobody@example.org>\nDescription: a library\n"
    )
    (tree / "DEBIAN" / "control").write_text(fields)
    (tree / "usr" / "lib").mkdir(parents=True)
    shutil.copy(library, tree / "usr" / "lib")
    file = folder / f"{name}.deb"
    subprocess.run(["dpkg-deb", "--build", tree, file], check=True, capture_output=True)
    content = file.read_bytes()
    entry = f"Filename: ./{file.name}\nSize: {len(content)}\n"
    entry += f"SHA256: {hashlib.sha256(content).hexdigest()}\n\n"
    (folder / "Packages").write_text(fields + entry)


def configure_apt(folder: Path, repository: Path) -> tuple[Path, Path]:
    """(the configuration, the root) of an apt that installs into a folder."""
    root = folder / "root"
    for place in ("etc/apt", "var/lib/apt/lists/partial", "var/cache/apt/archives/partial"):
        (root / place).mkdir(parents=True)
    for place in ("var/lib/dpkg/updates", "var/lib/dpkg/info", "var/log/apt"):
        (root / place).mkdir(parents=True)
    (root / "var" / "lib" / "dpkg" / "status").touch()
    (root / "etc" / "apt" / "sources.list").write_text(f"deb [trusted=yes] file:{repository} ./\n")
    configuration = folder / "apt.conf"
    configuration.write_text(
        f'Dir "{root}";\nDir::State::status "{root}/var/lib/dpkg/status";\n'
        f'DPkg::Options {{ "--root={root}"; "--log={root}/dpkg.log"; }};\n'
        'APT::Sandbox::User "root";\n'
    )
    return configuration, root


@carries_out(fixes.Kind.INSTALL_BY_APT)
def test_the_ffmpeg_of_the_distribution_is_installed(tmp_path: Path) -> None:
    version = system_packages.ffmpeg_of_apt()
    if os.geteuid() != 0 or version is None:
        pytest.skip("only root installs a package, and only where apt has a known FFmpeg")
    library = f"libavutil.so.{version + 52}"
    if ctypes.util.find_library("avutil"):
        pytest.skip("this system has FFmpeg")
    built = shared_object(tmp_path / "made" / library, soname=library)
    publish_package(tmp_path / "repository", "ffmpeg", built)
    configuration, root = configure_apt(tmp_path, tmp_path / "repository")
    place = SickEnvironment(tmp_path / "place")
    place.env["APT_CONFIG"] = str(configuration)
    place.env["LD_LIBRARY_PATH"] = str(root / "usr" / "lib")
    place.env["PATH"] += ":/usr/sbin:/sbin"
    place.publish_torch("2.13.0", [ADD])
    extension = place.make_extension("1.0", [ADD], flags=["-Wl,--no-as-needed", str(built)])
    place.publish_wheel("codec", "1.0", {"codec/_C.so": extension}, ["torch==2.13.0"])
    place.install("torch", "codec")
    before = place.is_mended("codec/_C.so", fixes.Kind.INSTALL_BY_APT)
    assert before.command == "apt-get update && apt-get install -y ffmpeg"


@pytest.mark.parametrize(
    ("library", "version"),
    [
        ("libavutil.so.57", 5),
        ("libavutil.so.59", 7),
        ("libavcodec.so.58", 4),
        ("libavformat.so.60", 6),
        ("libavfilter.so.11", 8),
        ("libswscale.so.6", 5),
        ("libswresample.so.4", None),  # of two versions
        ("libavutil.so", None),
        ("libcurl.so.4", None),
    ],
)
def test_the_version_of_ffmpeg_is_told_by_the_name_of_its_library(
    library: str, version: int | None
) -> None:
    assert system_packages.ffmpeg_of(library) == version


def fix_of(library: str, kind: str, file: str = "_C.so", owner: Owner | None = None) -> Fix:
    runtime = make_runtime()._replace(environment=Environment(kind))
    binary = BinaryRecord(path=Path("/x", file), kind="extension", name=file, owner=owner)
    return fixes.machine_library(library, binary, runtime)


def test_apt_is_named_only_where_its_ffmpeg_has_the_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(system_packages, "ffmpeg_of_apt", lambda: 5)
    assert fix_of("libavutil.so.57", "pip").command.endswith("apt-get install -y ffmpeg")
    assert fix_of("libavutil.so.58", "pip").command == ""
    monkeypatch.setattr(system_packages, "ffmpeg_of_apt", lambda: None)
    assert fix_of("libavutil.so.57", "pip").command == ""


def test_one_of_several_files_for_versions_of_ffmpeg_is_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As torchcodec has `libtorchcodec_core4.so` to `libtorchcodec_core8.so`."""
    monkeypatch.setattr(system_packages, "ffmpeg_of_apt", lambda: 5)
    names = ("libcodec4.so", "libcodec5.so")
    owner = Owner(name="codec", version="1.0", libraries={name: Path("/x", name) for name in names})
    fixes_of_all = {
        fix_of(f"libavutil.so.{n + 52}", "pip", f"libcodec{n}.so", owner) for n in (4, 5)
    }
    (fix,) = fixes_of_all
    assert fix.command.endswith("apt-get install -y ffmpeg")
    assert fix_of("libavutil.so.56", "pip", "libother4.so", owner).command == ""


@pytest.mark.parametrize(("release", "package"), [("bookworm", "libgl1"), ("other", "")])
def test_a_library_of_the_distribution_comes_with_its_package(
    release: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_packages, "code_name", lambda: release)
    monkeypatch.setattr(system_packages, "is_file", lambda _: True)
    command = fix_of("libGL.so.1", "pip").command
    assert command == (f"apt-get update && apt-get install -y {package}" if package else "")
    assert fix_of("libGL.so.1", "conda").command == ""
    assert fix_of("libGL.so.2", "pip").command == ""


def test_conda_has_each_ffmpeg() -> None:
    assert fix_of("libavutil.so.58", "conda").command.endswith('-c conda-forge "ffmpeg=6"')
    assert fix_of("libavutil.so", "conda").command == ""


@pytest.mark.parametrize("quote", ["", '"'])
def test_the_code_name_of_the_distribution_is_read(
    quote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "os-release"
    file.write_text(f"NAME=Debian\nVERSION_CODENAME={quote}bookworm{quote}\n")
    monkeypatch.setattr(system_packages, "_OS_RELEASE", file)
    assert system_packages.code_name() == "bookworm"
    monkeypatch.setattr(system_packages, "_OS_RELEASE", tmp_path / "none")
    assert system_packages.code_name() == ""


@pytest.mark.parametrize(
    ("base", "executable", "package"),
    [
        ("/usr", "/usr/bin/python3", "python3-tk"),
        ("/usr", "/usr/bin/python3.99", "python3.99-tk"),
        ("/opt/python", "/opt/python/bin/python3", ""),
    ],
)
def test_the_fix_names_the_package_of_the_distribution_or_another_python(
    base: str, executable: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "base_prefix", base)
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.setattr(system_packages, "is_file", lambda _: True)
    fix = fixes.python_with("_tkinter", Target())
    assert "another Python that has _tkinter" in fix.text
    assert fix.command == (f"apt-get update && apt-get install -y {package}" if package else "")
