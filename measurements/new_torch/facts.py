"""What a release of torch says of itself: its index, its libraries, its headers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from measurements.foreign_table.installs import symbols
from measurements.header_layouts import compile_layout
from torchship.builder.recipes import cxx_standard

PYPI = "https://pypi.org/simple"
SECONDS = 120
# An interpreter with another torch than ours may have no device, so torch is asked for its flags.
PROBE = """
import json, torch
flags = torch._C._cuda_getArchFlags() if torch.version.cuda else ""
print(json.dumps(dict(version=torch.__version__, cuda=torch.version.cuda, flags=flags or "",
    abi=int(torch._C._GLIBCXX_USE_CXX11_ABI), folder=torch.__path__[0])))
"""


@dataclass(frozen=True)
class Pythons:
    """The CPythons for which an index has a wheel of a release, as in build_matrix.yaml."""

    usual: tuple[str, ...]
    free_threaded: tuple[str, ...]


@dataclass(frozen=True)
class Facts:
    """A release of torch, as build_matrix.yaml and the checker's tables describe it."""

    release: str
    pythons: Pythons
    cuda: str | None
    archs: tuple[int, ...]
    abi: int
    layout: tuple[int, ...]
    exported: frozenset[str]

    @property
    def minor(self) -> tuple[int, int]:
        major, minor = self.release.split(".")[:2]
        return int(major), int(minor)


def list_pythons(version: str, index: str, served: Iterable[str]) -> Pythons:
    """The CPythons among `served` for which an index has a wheel for Linux x86-64.

    A free-threaded CPython counts if the usual one of its version is served.
    """
    request = urllib.request.Request(f"{index.rstrip('/')}/torch/")
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        page = answer.read().decode()
    return find_pythons(page, version, served)


def find_pythons(page: str, version: str, served: Iterable[str]) -> Pythons:
    """`list_pythons` of an index page, which names the wheels."""
    name = re.escape(version.replace("+", "%2B"))
    tags = {
        (f"{major}.{minor}", abi)
        for major, minor, abi in re.findall(
            rf"torch-{name}-cp(3)(\d+)-cp3\d+(t?)-[\w.-]*linux\w*_x86_64\.whl", page
        )
    }
    if not tags:
        raise ValueError(
            f"the index has no wheel of torch {version} for Linux x86-64; name a release that it "
            "has, or another index with --index"
        )
    versions = list(served)
    return Pythons(
        usual=tuple(python for python in versions if (python, "") in tags),
        free_threaded=tuple(f"{python}t" for python in versions if (python, "t") in tags),
    )


def measure(version: str, pythons: Pythons) -> Facts:
    """The facts of the torch in this Python's environment.

    Raises ValueError if that is another version.
    """
    command = [sys.executable, "-W", "ignore", "-c", PROBE]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
    torch = json.loads(answer.stdout)
    if torch["version"].partition("+")[0] != version.partition("+")[0]:
        raise ValueError(f"this environment has torch {torch['version']}, needs {version}")
    folder = Path(torch["folder"])
    release = re.match(r"\d+\.\d+\.\d+", version)
    if release is None:
        raise ValueError(f"got the version {version!r}, needs one such as 2.16.0")
    minor = tuple(map(int, release[0].split(".")[:2]))
    return Facts(
        release=release[0],
        pythons=pythons,
        cuda=torch["cuda"],
        archs=tuple(sorted({int(arch) for arch in re.findall(r"sm_(\d+)", torch["flags"])})),
        abi=torch["abi"],
        layout=compile_layout(
            folder / "include",
            standard=cxx_standard("aten", (minor[0], minor[1])),
            abi=torch["abi"],
        ),
        exported=symbols("--defined-only", *(folder / "lib").glob("*.so*")),
    )
