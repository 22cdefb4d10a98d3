"""Which packages the machine's distribution has for a library or a part of Python."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from ..text import is_file, read_regular

_OS_RELEASE = Path("/etc/os-release")
_APT = Path("/usr/bin/apt-get")

#: The major version of FFmpeg in the releases of Debian and Ubuntu, by their code names.
FFMPEG_OF_RELEASE = {
    "bullseye": 4,
    "focal": 4,
    "jammy": 4,
    "bookworm": 5,
    "noble": 6,
    "trixie": 7,
}
#: What the number in a name such as `libavutil.so.57` is above the version of FFmpeg.
_ABOVE_FFMPEG = {
    "libavutil": 52,
    "libavcodec": 54,
    "libavformat": 54,
    "libavdevice": 54,
    "libavfilter": 3,
    "libswscale": 1,
}
#: The packages of libraries that have one name in all these releases.
_PACKAGES = {
    "libGL.so.1": "libgl1",
    "libgomp.so.1": "libgomp1",
    "libibverbs.so.1": "libibverbs1",
    "libnuma.so.1": "libnuma1",
    "libopenblas.so.0": "libopenblas0",
    "libsndfile.so.1": "libsndfile1",
    "libsox.so.3": "libsox3",
}
#: The packages in which Debian keeps modules of the standard library: python3-tk and others.
_PARTS_OF_PYTHON = {
    "dbm.gnu": "gdbm",
    "ensurepip": "venv",
    "gdbm": "gdbm",
    "idlelib": "tk",
    "tkinter": "tk",
    "turtle": "tk",
    "venv": "venv",
}


def ffmpeg_of(library: str) -> int | None:
    """The version of FFmpeg that has a library: 5 for `libavutil.so.57`; None if unknown."""
    name = re.fullmatch(r"(lib\w+)\.so\.(\d{1,4})", library)
    above = _ABOVE_FFMPEG.get(name[1]) if name else None
    return None if name is None or above is None else int(name[2]) - above


def ffmpeg_of_apt() -> int | None:
    """The version of FFmpeg that apt installs here; None if unknown, or if there is no apt."""
    return FFMPEG_OF_RELEASE.get(code_name()) if is_file(_APT) else None


def apt_package_of(library: str) -> str:
    """The package of apt that has a library here; "" if unknown, or if there is no apt."""
    is_known_release = code_name() in FFMPEG_OF_RELEASE and is_file(_APT)
    return _PACKAGES.get(library, "") if is_known_release else ""


def code_name() -> str:
    """The code name of this release of the distribution, such as `bookworm`; "" if unknown."""
    with suppress(OSError):
        lines = read_regular(_OS_RELEASE).decode("utf-8", "replace").splitlines()
        for line in lines:
            if line.startswith("VERSION_CODENAME="):
                return line.partition("=")[2].strip("'\"")
    return ""


def part_of_python(module: str, *, base: str, executable: str) -> str:
    """The package of apt that has a module of the standard library for a Python, which lies in
    the prefix `base`: `python3-tk`, or `python3.13-tk` for a Python beside it; "" if none."""
    part = _PARTS_OF_PYTHON.get(module.removeprefix("_"), "")
    if base != "/usr" or not part or not is_file(_APT):
        return ""
    name = os.path.basename(os.path.realpath(executable))  # noqa: PTH119
    is_default = os.path.realpath("/usr/bin/python3") == f"/usr/bin/{name}"
    version = name if name.startswith("python3.") and not is_default else "python3"
    return f"{version}-{part}"
