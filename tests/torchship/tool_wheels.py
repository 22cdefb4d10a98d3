"""Builds and reads the wheels of torchship and of torch-doctor."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
FOLDERS = {"torchship": "torchship", "torch_doctor": "torchship/doctor"}
#: What a distribution holds beside its folder.
BESIDE = {"torch_doctor": "torchship/judge"}
WheelOf = Callable[[str], zipfile.ZipFile]


def tracked(folder: str) -> set[str]:
    """The files below a folder that git has or would take, relative to the folder."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "-z", folder]
    run = subprocess.run(command, cwd=REPO, capture_output=True, text=True)
    if run.returncode:
        pytest.skip("not a git checkout")
    names = [name for name in run.stdout.split("\0") if name and (REPO / name).is_file()]
    return {str(Path(name).relative_to(folder)) for name in names}


def copy_tracked(folder: str, target: Path) -> Path:
    for name in tracked(folder):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPO / folder / name, target / name)
    return target


def copy_distribution(package: str, tree: Path) -> Path:
    """The folder of a distribution in a copy of what it is made of."""
    for folder in filter(None, (FOLDERS[package], BESIDE.get(package))):
        copy_tracked(folder, tree / folder)
    return tree / FOLDERS[package]


def build_wheel(source: Path, out: Path, **variables: str) -> Path:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir"]
    env = {**os.environ, **variables}
    run = subprocess.run([*command, out, source], env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    (wheel,) = out.glob("*.whl")
    return wheel


def info_of(wheel: zipfile.ZipFile, name: str) -> str:
    (path,) = (path for path in wheel.namelist() if path.endswith(f".dist-info/{name}"))
    return wheel.read(path).decode()


def metadata_of(wheel: zipfile.ZipFile) -> Message:
    return Parser().parsestr(info_of(wheel, "METADATA"))


def installed_files(wheel: zipfile.ZipFile) -> set[str]:
    return {name for name in wheel.namelist() if ".dist-info/" not in name}


def commands_of(wheel: zipfile.ZipFile) -> set[str]:
    return set(re.findall(r"^([\w-]+) = ", info_of(wheel, "entry_points.txt"), re.MULTILINE))
