"""A cross build has a native build's bytes: Debian's arm64 g++ makes the same under qemu."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from checkout import SETTINGS
from release_places import REPO

from torchship.builder import include_dirs
from torchship.release import ReleaseError
from torchship.release.steps.compile.downloads import apt

CROSS, QEMU = "aarch64-linux-gnu-g++", "qemu-aarch64"
INCLUDES = [f"-I{folder}" for folder in include_dirs(REPO / "csrc")]
FLAGS = ("-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", *INCLUDES, "-S")
# The kernels of one level take qemu minutes.
SOURCES = [p for p in (REPO / "csrc" / "kernels" / "cpu").glob("*.cpp") if "level_" not in p.name]

pytestmark = [
    pytest.mark.rehearsal,
    pytest.mark.skipif(
        not (shutil.which(CROSS) and shutil.which(QEMU)),
        reason="no cross compiler or no qemu: run scripts/test_env.sh --cross",
    ),
]


def run_command(*command: str | Path) -> str:
    process = subprocess.run(command, check=True, text=True, stdout=-1, stderr=-2)
    return process.stdout


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the arm64 g++ of the cross compiler's version."""
    from torchship.release.run.shell import Log

    folder = tmp_path_factory.mktemp("native") / "root"
    major = run_command(CROSS, "-dumpversion").strip().split(".")[0]
    try:
        with Log(folder.with_name("log"), SETTINGS) as log:
            apt(log, folder, [f"g++-{major}"], "arm64")
    except ReleaseError as error:
        pytest.skip(f"Debian's arm64 packages are not in reach: {error}")
    return folder


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_a_native_compiler_makes_the_same_object(root: Path, source: Path, tmp_path: Path) -> None:
    """But for the section that names the compiler's package."""
    qemu = [QEMU, "-L", root]
    assembly_files = [tmp_path / "cross.s", tmp_path / "native.s"]
    objects = []
    run_command(CROSS, *FLAGS, source, "-o", assembly_files[0])
    # qemu starts no other program: the driver only says how it would call the compiler proper.
    (driver,) = root.glob("usr/bin/aarch64-linux-gnu-g++-*")
    compilation = [driver, *FLAGS, source, "-o", assembly_files[1], "-###"]
    steps = run_command(*qemu, *compilation)
    (command,) = [line for line in steps.splitlines() if "/cc1plus " in line]
    run_command(*qemu, *shlex.split(command))
    assemblers = (["aarch64-linux-gnu-as"], [*qemu, root / "usr" / "bin" / "aarch64-linux-gnu-as"])
    for assembly, assembler in zip(assembly_files, assemblers, strict=True):
        objects.append(assembly.with_suffix(".o"))
        run_command(*assembler, assembly, "-o", objects[-1])
        run_command("aarch64-linux-gnu-objcopy", "--remove-section=.comment", objects[-1])
    assert objects[0].read_bytes() == objects[1].read_bytes()
