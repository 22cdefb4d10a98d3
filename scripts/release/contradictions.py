"""What build_matrix.yaml may say in good form and yet not mean."""

from __future__ import annotations

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from lltm_conda.builder import cxx_standard
from release.schema import Matrix, Torch

Path = tuple[str | int, ...]


def contradictions(matrix: Matrix) -> list[tuple[Path, str]]:
    """Pairs of (where in the file, what is wrong there), empty when all agrees."""
    parts = (_package, _toolkits, _kernels, _stable, _torch)
    return [problem for part in parts for problem in part(matrix)]


def _known(minor: str, matrix: Matrix) -> str | None:
    if minor in matrix.torch:
        return None
    return f"torch {minor} has no entry under `torch`; there are {', '.join(matrix.minors())}"


def _package(matrix: Matrix) -> list[tuple[Path, str]]:
    problem = _known(matrix.package.default_torch, matrix)
    return [(("package", "default_torch"), problem)] if problem else []


def _toolkits(matrix: Matrix) -> list[tuple[Path, str]]:
    found: list[tuple[Path, str]] = []
    for version, toolkit in matrix.toolkits.items():
        if toolkit.nvcc and toolkit.clang:
            text = f"CUDA {version}: `nvcc: true` and `clang` exclude each other"
            found.append((("toolkits", version, "clang"), f"{text}; remove one"))
        if toolkit.clang is None:
            continue
        where: Path = ("toolkits", version, "clang", "fatbinary")
        helper = matrix.toolkits.get(toolkit.clang.fatbinary)
        used = {kernels.toolkit for kernels in matrix.kernels.values()}
        if helper is None or not helper.nvcc or toolkit.clang.fatbinary not in used:
            able = [name for name, t in matrix.toolkits.items() if t.nvcc and name in used]
            text = f"CUDA {toolkit.clang.fatbinary} brings no fatbinary"
            found.append((where, f"{text}; these do: {', '.join(able)}"))
    return found


def _kernels(matrix: Matrix) -> list[tuple[Path, str]]:
    found: list[tuple[Path, str]] = []
    for name, kernels in matrix.kernels.items():
        where: Path = ("kernels", name)
        if kernels.device == "cpu":
            if kernels.toolkit or kernels.archs:
                found.append((where, "CPU kernels take neither `toolkit` nor `archs`"))
            continue
        if kernels.toolkit is None or not kernels.archs:
            found.append((where, "CUDA kernels need `toolkit` and `archs`"))
            continue
        if kernels.toolkit not in matrix.toolkits:
            known = ", ".join(matrix.toolkits)
            text = f"toolkit {kernels.toolkit} has no entry under `toolkits`; there are {known}"
            found.append(((*where, "toolkit"), text))
            continue
        if name != f"cuda{kernels.cuda_major}":
            text = f"toolkit {kernels.toolkit} makes kernels named cuda{kernels.cuda_major}"
            found.append(((*where, "toolkit"), f"{text}, not {name}"))
        able = matrix.toolkits[kernels.toolkit].archs
        for i, arch in enumerate(kernels.archs):
            if int(arch.split("_")[1]) not in able:
                text = f"{arch}: CUDA {kernels.toolkit} has no such architecture; it has {able}"
                found.append(((*where, "archs", i), text))
        for i, arch in enumerate(kernels.archs):
            if arch in kernels.archs[:i]:
                found.append(((*where, "archs", i), f"{arch} is listed twice"))
    return found


def _devices(where: Path, devices: list[str], matrix: Matrix) -> list[tuple[Path, str]]:
    found: list[tuple[Path, str]] = []
    for i, device in enumerate(devices):
        if device in devices[:i]:
            found.append(((*where, i), f"two equal cells: {device} is listed twice"))
        if device.replace("cu1", "cuda1") not in matrix.kernels:
            found.append(((*where, i), f"{device} has no entry under `kernels`"))
    return found


def _stable(matrix: Matrix) -> list[tuple[Path, str]]:
    found: list[tuple[Path, str]] = []
    for field in ("target", "built_with"):
        if problem := _known(getattr(matrix.stable, field), matrix):
            found.append((("stable", field), problem))
    if Version(matrix.stable.built_with) < Version(matrix.stable.target):
        text = f"headers of {matrix.stable.built_with} cannot target {matrix.stable.target}"
        found.append((("stable", "built_with"), f"{text}; name a torch at or above the target"))
    found += _devices(("stable", "devices"), matrix.stable.devices, matrix)
    if built := matrix.torch.get(matrix.stable.built_with):
        where: Path = ("stable", "built_with")
        devices = list(matrix.stable.devices)
        found += _host_compilers(where, devices, built, matrix)
    return found


# The oldest and the newest torch with a wheel for each CPython, as PyPI has them.
FIRST_TORCH = {"3.10": "1.11", "3.11": "1.13", "3.12": "2.2", "3.13": "2.5", "3.14": "2.9"}
LAST_TORCH = {"3.8": "2.4", "3.9": "2.8", "3.10": "2.14"}
FIRST_ABI1 = Version("2.7")


def _torch(matrix: Matrix) -> list[tuple[Path, str]]:
    found: list[tuple[Path, str]] = []
    for minor, torch in matrix.torch.items():
        where: Path = ("torch", minor)
        if not torch.release.startswith(minor + "."):
            text = f"{torch.release} is no release of torch {minor}"
            found.append(((*where, "release"), text))
        for i, python in enumerate(torch.pythons):
            if python not in matrix.package.pythons:
                text = f"Python {python} is not in package.pythons ({matrix.package.pythons})"
                found.append(((*where, "pythons", i), text))
            elif Version(FIRST_TORCH.get(python, "0")) > Version(minor):
                text = f"torch {minor} has no wheel for Python {python}"
                found.append(
                    ((*where, "pythons", i), f"{text}; {FIRST_TORCH[python]} is the first")
                )
            elif Version(minor) > Version(LAST_TORCH.get(python, minor)):
                text = f"torch {minor} has no wheel for Python {python}"
                found.append(((*where, "pythons", i), f"{text}; {LAST_TORCH[python]} is the last"))
        if torch.abi.pypi != int(Version(minor) >= FIRST_ABI1):
            text = f"PyPI's torch {minor} is built with C++11 ABI {1 - torch.abi.pypi}"
            found.append(((*where, "abi"), f"{text}, got {torch.abi.pypi}"))
        if torch.abi.conda != 1:
            text = f"conda-forge builds every torch with C++11 ABI 1, got {torch.abi.conda}"
            found.append(((*where, "abi"), text))
        if torch.cxx != cxx_standard(_pair(minor)):
            text = f"the headers of torch {minor} need C++{cxx_standard(_pair(minor))}"
            found.append(((*where, "cxx"), f"{text}, got {torch.cxx}"))
        if problem := _pin(minor, torch):
            found.append(((*where, "conda"), problem))
        found += _devices((*where, "aten"), list(torch.aten), matrix)
        if torch.cxx == 20 and torch.gcc[0] < 10:
            text = f"C++20 needs g++ 10 or newer, got a lower bound of {torch.gcc[0]}"
            found.append(((*where, "gcc"), text))
        found += _host_compilers((*where, "gcc"), list(torch.aten), torch, matrix)
    return found


def _pin(minor: str, torch: Torch) -> str | None:
    major, number = _pair(minor)
    after = f"{major}.{number + 1}.0"
    try:
        pin = SpecifierSet(torch.conda)
    except InvalidSpecifier:
        return f"{torch.conda!r} is no version range; write for example >={minor}.0,<{after}a0"
    if torch.release in pin and f"{minor}.0" in pin and after not in pin:
        return None
    return f"{torch.conda} must hold every torch {minor} and no {after}: >={minor}.0,<{after}a0"


def _pair(minor: str) -> tuple[int, int]:
    major, _, rest = minor.partition(".")
    return int(major), int(rest)


def _host_compilers(
    where: Path, devices: list[str], torch: Torch, matrix: Matrix
) -> list[tuple[Path, str]]:
    found: list[tuple[Path, str]] = []
    for device in devices:
        kernels = matrix.kernels.get(device.replace("cu1", "cuda1"))  # type: ignore[call-overload]
        toolkit = matrix.toolkits.get(kernels.toolkit or "") if kernels else None
        if toolkit and (torch.gcc[0] > toolkit.gcc[1] or torch.gcc[1] < toolkit.gcc[0]):
            text = f"no g++ in {list(torch.gcc)} is accepted by CUDA {kernels.toolkit}"
            found.append((where, f"{text}, which takes {list(toolkit.gcc)}"))
    return found
