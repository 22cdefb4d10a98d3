"""The architectures of GPU code that are read are those that cuobjdump lists.

By hand, `ORACLE_OBJECTS=FOLDER:...` names more folders with objects, such as that of a CUDA torch.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
from draws import differences

from torchship.judge.reading.elf import Elf, ElfError
from torchship.judge.reading.fatbin import architectures

FOLDERS = [sysconfig.get_path("purelib"), *os.environ.get("ORACLE_OBJECTS", "").split(":")]


def has_gpu_code(path: Path) -> bool:
    try:
        with Elf(path) as elf:
            return elf.section(".nv_fatbin") is not None
    except (ElfError, OSError):
        return False


def listed(path: Path) -> set[str]:
    """What cuobjdump lists: `sm_80` for machine code, `compute_80` for PTX."""
    found = set()
    for option, kind in (("-lelf", "sm"), ("-lptx", "compute")):
        command = ["cuobjdump", option, str(path)]
        lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        found |= {f"{kind}_{arch}" for arch in re.findall(r"\.sm_(\d+[af]?)\.", lines)}
    return found


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cuobjdump") is None, reason="cuobjdump is in the CUDA toolkit")
def test_architectures_are_those_of_cuobjdump() -> None:
    folders = map(Path, filter(None, FOLDERS))
    files = [path for folder in folders for path in folder.rglob("*.so*") if path.is_file()]
    objects = [path for path in files if has_gpu_code(path)]
    if not objects:
        pytest.skip("no object here has GPU code")
    wrong = []
    for path in objects:
        with Elf(path) as elf:
            ours = set(architectures(elf))
        if ours != (theirs := listed(path)):
            wrong.append(f"{path}: {sorted(ours)} is {sorted(theirs)}")
    assert not wrong, differences(wrong)
