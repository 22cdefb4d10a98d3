"""Probe: NVIDIA's wheels beside torch, by their metadata, without any linking.

torch's METADATA pins each of them. The RECORD of a wheel lists its files with their sizes and
hashes. They tell when a wheel is of another version, and when two wheels wrote one file: then
the file of the one is gone.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from ..judge.project import Record
from ..judge.records import TorchInstall
from ..judge.text import list_names, read_regular
from ..judge.torch_probe import dist_info

_MAX_METADATA = 1 << 20
_MAX_RECORD = 4 << 20
_MAX_WHEELS = 100
_MAX_FILES = 2000
#: So many bytes are hashed, and of larger files nothing.
_MAX_HASHED = 1 << 30
_CHUNK = 1 << 22
#: The libraries after which their wheels are not named, as `_part_of` names these.
_WHEELS_OF_OTHER_NAMES = {
    "cudart": "cuda-runtime",
    "cupti": "cuda-cupti",
    "nvrtc": "cuda-nvrtc",
    "nvrtc-builtins": "cuda-nvrtc",
    "nvtoolsext": "nvtx",
}
_REQUIREMENT = re.compile(
    r"Requires-Dist: *((?:nvidia|cuda)[-_.\w]*) *(?:\[([^\]]*)\])?"
    r" *\(?==([\w.*!]+)\)? *(?:;(.*))?$",
    re.MULTILINE,
)


class Pin(Record):
    """A wheel of NVIDIA's and the version of it that torch requires; `*` stands for any rest."""

    name: str
    version: str

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.version}"

    def is_met_by(self, version: str) -> bool:
        if self.version.endswith(".*"):
            return f"{version}.".startswith(self.version.removesuffix("*"))
        return _without_zeros(version) == _without_zeros(self.version)


class WheelFault(Record, kw_only=True):
    """A wheel that is not as torch requires it."""

    pin: Pin
    why: str
    is_file: bool  #: whether a file of it is gone or another's; else only its version is another
    files: tuple[str, ...] = ()  #: the names of the libraries that are concerned


class _Listed(Record):
    """A file as a RECORD lists it."""

    place: Path  #: the metadata folder
    hash: str  #: "" if the RECORD does not tell it
    size: int | None


def faults_of_wheels(torch: TorchInstall) -> list[WheelFault]:
    """The wheels that torch pins and that are not here as torch requires them."""
    site = torch.root.parent
    pins = list(_pins(torch))
    if not pins:
        return []
    installed = {name: (version, place) for name, version, place in _nvidia_wheels(site)}
    listed = _listed_files(site, [place for _, place in installed.values()])
    allowance = _Allowance()
    faults: list[WheelFault] = []
    for pin in pins:
        if pin.name not in installed:
            continue  # CUDA may come from elsewhere; if not, the linker misses its libraries
        version, place = installed[pin.name]
        files = tuple(path for path, entries in listed.items() if _is_of(place, entries))
        if not pin.is_met_by(version):
            why = f"{pin.name} is {version}, and torch {torch.version} requires {pin.version}"
            faults.append(WheelFault(pin=pin, why=why, is_file=False, files=_names(files)))
            continue
        for path in files:
            why = _other_content(site / path, place, listed[path], allowance)
            if why:
                faults.append(WheelFault(pin=pin, why=why, is_file=True, files=_names([path])))
                break
    return faults


def absent_wheel(torch: TorchInstall, libraries: Iterable[str]) -> WheelFault | None:
    """The wheel that torch pins, that is not installed, and that by its name holds one of these
    libraries."""
    installed = {name for name, _, _ in _nvidia_wheels(torch.root.parent)}
    absent = [pin for pin in _pins(torch) if pin.name not in installed]
    for library in libraries:
        stem = library.removeprefix("lib").partition(".so")[0].lower()
        stem = _WHEELS_OF_OTHER_NAMES.get(stem, stem)
        named_alike = [
            (len(_part_of(pin)), pin) for pin in absent if stem.startswith(_part_of(pin))
        ]
        if named_alike:
            _, pin = max(named_alike)
            why = f"{pin.name} is not installed, and torch {torch.version} requires {pin.version}"
            return WheelFault(pin=pin, why=why, is_file=False)
    return None


def _part_of(pin: Pin) -> str:
    """`cusparselt` of `nvidia-cusparselt-cu12`, and `cuda-runtime` of `nvidia-cuda-runtime`."""
    return re.sub(r"^nvidia-|-cu\d+$", "", pin.name)


def _is_of(place: Path, entries: Iterable[_Listed]) -> bool:
    return any(entry.place == place for entry in entries)


def _names(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(path.rpartition("/")[2] for path in paths)


def _without_zeros(version: str) -> str:
    return re.sub(r"(\.0)+$", "", version)


def _pins(torch: TorchInstall) -> Iterator[Pin]:
    """NVIDIA's wheels that torch requires, also by way of the package cuda-toolkit."""
    root = torch.root
    for place in dist_info(root, "torch", torch.version):
        for name, extras, version, marker in _requirements(place):
            if "extra" in marker:
                continue
            yield Pin(name, version)
            if extras:
                chosen = {normal_name(extra.strip()) for extra in extras.split(",")}
                yield from _of_extras(root.parent, name, chosen)


def _of_extras(site: Path, name: str, extras: set[str]) -> Iterator[Pin]:
    for entry in list_names(site):
        if normal_name(entry.partition("-")[0]) == name and entry.endswith(".dist-info"):
            for wheel, _, version, marker in _requirements(site / entry):
                if extras & set(re.findall(r"extra *== *[\"']([\w.-]+)", marker)):
                    yield Pin(wheel, version)


def _requirements(place: Path) -> Iterator[tuple[str, str, str, str]]:
    """(name, extras, version, marker) of each pinned requirement of NVIDIA's wheels."""
    with suppress(OSError):
        metadata = read_regular(place / "METADATA", _MAX_METADATA).decode("utf-8", "replace")
        head = metadata.partition("\n\n")[0]
        for name, extras, version, marker in _REQUIREMENT.findall(head)[:_MAX_WHEELS]:
            yield normal_name(name), extras, version, marker


def normal_name(name: str) -> str:
    """The name of a distribution as all tools compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _nvidia_wheels(site: Path) -> Iterator[tuple[str, str, Path]]:
    """(name, version, metadata folder) of NVIDIA's wheels in a site folder."""
    for entry in list_names(site):
        if entry.startswith(("nvidia", "cuda")) and entry.endswith(".dist-info"):
            name, _, version = entry.removesuffix(".dist-info").partition("-")
            yield normal_name(name), version, site / entry


def _listed_files(site: Path, places: Iterable[Path]) -> dict[str, list[_Listed]]:
    """What the RECORDs of wheels say of each shared object, by its path in the site folder."""
    listed: dict[str, list[_Listed]] = {}
    for place in [*places][:_MAX_WHEELS]:
        with suppress(OSError, csv.Error):
            content = read_regular(place / "RECORD", _MAX_RECORD).decode("utf-8", "replace")
            for row in csv.reader(content.splitlines()):
                if len(row) >= 3 and ".so" in row[0] and len(listed) < _MAX_FILES:
                    size = int(row[2]) if row[2].isdecimal() else None
                    listed.setdefault(row[0], []).append(_Listed(place, row[1], size))
    return listed


def _other_content(path: Path, place: Path, entries: list[_Listed], allowance: _Allowance) -> str:
    """Why the file of a wheel is not the one that the wheel came with; "" if it is."""
    own = next(entry for entry in entries if entry.place == place)
    others = [e for e in entries if e.place != place and (e.hash, e.size) != (own.hash, own.size)]
    name = path.name
    wheel = place.name.removesuffix(".dist-info")
    try:
        size = path.stat().st_size
    except OSError:
        return f"{name} of {wheel} is gone"
    if own.size is None:
        return ""
    if size == own.size and not (others and _hash_of(path, size, allowance) not in ("", own.hash)):
        return ""
    writer = next((entry.place for entry in others if entry.size == size), None)
    if writer is not None:
        return f"{writer.name.removesuffix('.dist-info')} has overwritten {name} of {wheel}"
    return f"{name} has {size} bytes, and {wheel} came with {own.size}"


class _Allowance:
    """How many bytes may still be hashed."""

    def __init__(self) -> None:
        self.bytes_left = _MAX_HASHED


def _hash_of(path: Path, size: int, allowance: _Allowance) -> str:
    """The hash of a file as a RECORD writes it; "" if the allowance does not suffice."""
    allowance.bytes_left -= size
    if allowance.bytes_left < 0:
        return ""
    digest = hashlib.sha256()
    with suppress(OSError), path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
        encoded = base64.urlsafe_b64encode(digest.digest()).decode().rstrip("=")
        return f"sha256={encoded}"
    return ""
