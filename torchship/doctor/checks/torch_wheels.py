"""NVIDIA's wheels beside torch, by their metadata, without any linking.

torch's METADATA pins each of them. The RECORD of a wheel lists its files with their sizes and
hashes. They tell when a wheel is of another version, and when two wheels wrote one file: then
the file of the one is gone.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from ...judge.project import Record
from ...judge.records import TorchInstall
from ...judge.target import Target
from ...judge.text import printable
from ..environment.installed import Distribution, distributions_in
from ..environment.metadata import Listed, listed_files, places_in
from ..environment.standards import Need, Python, admits, is_same_version, normal, parse_need

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


class Pin(Record):
    """A wheel of NVIDIA's and the version of it that torch requires; `*` stands for any rest."""

    name: str
    version: str

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.version}"

    def is_met_by(self, version: str) -> bool:
        return admits(f"=={self.version}", version)


class WheelFault(Record, kw_only=True):
    """A wheel that is not as torch requires it."""

    pin: Pin
    why: str
    is_file: bool  #: whether a file of it is gone or another's; else only its version is another
    files: tuple[str, ...] = ()  #: the names of the libraries that are concerned


class _Claim(Record):
    """A file as the RECORD of a wheel lists it."""

    place: Path  #: the metadata folder
    file: Listed


def faults_of_wheels(torch: TorchInstall, target: Target) -> list[WheelFault]:
    """The wheels that torch pins and that are not here as torch requires them."""
    site = torch.root.parent
    pins = list(_pins(torch, target))
    if not pins:
        return []
    installed = {name: (version, place) for name, version, place in _nvidia_wheels(target, site)}
    listed = _claimed_files(target, [place for _, place in installed.values()])
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
            why = _other_content(path, place, listed[path], allowance)
            if why:
                faults.append(WheelFault(pin=pin, why=why, is_file=True, files=_names([path])))
                break
    return faults


def absent_wheel(
    torch: TorchInstall, libraries: Iterable[str], target: Target
) -> WheelFault | None:
    """The wheel that torch pins, that is not installed, and that by its name holds one of these
    libraries."""
    installed = {name for name, _, _ in _nvidia_wheels(target, torch.root.parent)}
    absent = [pin for pin in _pins(torch, target) if pin.name not in installed]
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


def _is_of(place: Path, claims: Iterable[_Claim]) -> bool:
    return any(claim.place == place for claim in claims)


def _names(paths: Iterable[Path]) -> tuple[str, ...]:
    return tuple(path.name for path in paths)


def _pins(torch: TorchInstall, target: Target) -> Iterator[Pin]:
    """NVIDIA's wheels that torch requires, also by way of the package cuda-toolkit."""
    variables = Python.of_target(target).variables
    site = torch.root.parent
    own = next((one for one in distributions_in(target, site) if _is_of_torch(one, torch)), None)
    for need in _needs(own):
        if need.holds(variables) and (pin := _pin_of(need)):
            yield pin
            for below in _needs(_distribution(target, site, need.name) if need.extras else None):
                of_extras = any(below.holds(variables, extra) for extra in need.extras)
                if of_extras and (inner := _pin_of(below)):
                    yield inner


def _is_of_torch(one: Distribution, torch: TorchInstall) -> bool:
    return normal(one.name) == "torch" and is_same_version(
        one.version.partition("+")[0], torch.version.partition("+")[0]
    )


def _needs(one: Distribution | None) -> list[Need]:
    needs = map(parse_need, one.core.needs if one is not None else ())
    return [need for need in needs if need is not None]


def _distribution(target: Target, site: Path, name: str) -> Distribution | None:
    return next((one for one in distributions_in(target, site) if normal(one.name) == name), None)


def _pin_of(need: Need) -> Pin | None:
    """The one version that a requirement on a wheel of NVIDIA's admits."""
    exact = re.fullmatch(r"==([\w.*!+]+)", need.specifier)
    is_nvidias = need.name.startswith(("nvidia", "cuda"))
    return Pin(need.name, exact[1]) if exact and is_nvidias else None


def _nvidia_wheels(target: Target, site: Path) -> Iterator[tuple[str, str, Path]]:
    """(name, version, metadata folder) of NVIDIA's wheels in a site folder.

    The folder tells both, so that a wheel that has lost its METADATA is seen as well.
    """
    for place in places_in(site):
        name, _, version = place.name.removesuffix(".dist-info").partition("-")
        if place.suffix == ".dist-info" and normal(name).startswith(("nvidia", "cuda")):
            yield normal(name), printable(version), place


def _claimed_files(target: Target, places: Iterable[Path]) -> dict[Path, list[_Claim]]:
    """What the RECORDs of wheels say of each shared object."""
    claims: dict[Path, list[_Claim]] = {}
    for place in places:
        for file in listed_files(target, place, lambda name: ".so" in name):
            claims.setdefault(file.path, []).append(_Claim(place, file))
    return claims


def _other_content(path: Path, place: Path, claims: list[_Claim], allowance: _Allowance) -> str:
    """Why the file of a wheel is not the one that the wheel came with; "" if it is."""
    own = next(claim.file for claim in claims if claim.place == place)
    others = [
        claim
        for claim in claims
        if claim.place != place and (claim.file.hash, claim.file.size) != (own.hash, own.size)
    ]
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
    writer = next((claim.place for claim in others if claim.file.size == size), None)
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
