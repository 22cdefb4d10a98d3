"""Values of build_matrix.yaml that have the right form but do not fit together."""

from __future__ import annotations

from collections.abc import Sequence

from packaging.version import Version

from release.schema import Matrix, Torch

Path = tuple[str | int, ...]
Problem = tuple[Path, str]

# The first and the last torch minor with a wheel on PyPI for each CPython.
FIRST_TORCH = {"3.10": "1.11", "3.11": "1.13", "3.12": "2.2", "3.13": "2.5", "3.14": "2.9"}
LAST_TORCH = {"3.8": "2.4", "3.9": "2.8", "3.10": "2.14"}
FIRST_ABI1 = Version("2.7")


def contradictions(matrix: Matrix) -> list[Problem]:
    """Every problem, with its place in the file."""
    found = _known(("package", "default_torch"), matrix.package.default_torch, matrix)
    found += _toolkits(matrix) + _kernels(matrix) + _stable(matrix)
    for minor, torch in matrix.torch.items():
        found += _torch(minor, torch, matrix)
    return found


def _known(where: Path, minor: str, matrix: Matrix) -> list[Problem]:
    if minor in matrix.torch:
        return []
    known = ", ".join(matrix.minors())
    return [(where, f"torch {minor} has no entry under `torch`; there are {known}")]


def _toolkits(matrix: Matrix) -> list[Problem]:
    found: list[Problem] = []
    used = {kernels.toolkit for kernels in matrix.kernels.values()}
    able = [name for name, toolkit in matrix.toolkits.items() if toolkit.nvcc and name in used]
    for version, toolkit in matrix.toolkits.items():
        where: Path = ("toolkits", version, "clang")
        if toolkit.nvcc and toolkit.clang:
            text = f"CUDA {version}: `nvcc: true` and `clang` exclude each other; remove one"
            found.append((where, text))
        if toolkit.clang and toolkit.clang.fatbinary not in able:
            text = f"CUDA {toolkit.clang.fatbinary} brings no fatbinary"
            found.append(((*where, "fatbinary"), f"{text}; these do: {', '.join(able)}"))
    return found


def _kernels(matrix: Matrix) -> list[Problem]:
    found: list[Problem] = []
    for name, kernels in matrix.kernels.items():
        where: Path = ("kernels", name)
        if name == "cpu":
            if kernels.toolkit or kernels.archs:
                found.append((where, "CPU kernels take neither `toolkit` nor `archs`"))
        elif kernels.toolkit is None or not kernels.archs:
            found.append((where, "CUDA kernels need `toolkit` and `archs`"))
        elif kernels.toolkit not in matrix.toolkits:
            known = ", ".join(matrix.toolkits)
            text = f"toolkit {kernels.toolkit} has no entry under `toolkits`; there are {known}"
            found.append(((*where, "toolkit"), text))
        elif name != f"cuda{kernels.cuda_major}":
            text = f"toolkit {kernels.toolkit} makes kernels named cuda{kernels.cuda_major}"
            found.append(((*where, "toolkit"), f"{text}, not {name}"))
        else:
            able = matrix.toolkits[kernels.toolkit].archs
            for i, arch in enumerate(kernels.archs):
                if int(arch.split("_")[1]) not in able:
                    text = f"{arch}: CUDA {kernels.toolkit} has no such architecture; it has {able}"
                    found.append(((*where, "archs", i), text))
                if arch in kernels.archs[:i]:
                    found.append(((*where, "archs", i), f"{arch} is listed twice"))
    return found


def _devices(where: Path, devices: Sequence[str], matrix: Matrix) -> list[Problem]:
    found: list[Problem] = []
    for i, device in enumerate(devices):
        if device in devices[:i]:
            found.append(((*where, i), f"two equal cells: {device} is listed twice"))
        if device.replace("cu1", "cuda1") not in matrix.kernels:
            found.append(((*where, i), f"{device} has no entry under `kernels`"))
    return found


def _stable(matrix: Matrix) -> list[Problem]:
    target, built_with, devices = (
        matrix.stable.target,
        matrix.stable.built_with,
        matrix.stable.devices,
    )
    found = _known(("stable", "target"), target, matrix)
    found += _known(("stable", "built_with"), built_with, matrix)
    if Version(built_with) < Version(target):
        text = f"headers of {built_with} cannot target {target}"
        found.append((("stable", "built_with"), f"{text}; name a torch at or above the target"))
    found += _devices(("stable", "devices"), devices, matrix)
    if built := matrix.torch.get(built_with):
        found += _host_compilers(("stable", "built_with"), devices, built, matrix)
    return found


def _torch(minor: str, torch: Torch, matrix: Matrix) -> list[Problem]:
    found: list[Problem] = []
    where: Path = ("torch", minor)
    if not torch.release.startswith(minor + "."):
        found.append(((*where, "release"), f"{torch.release} is no release of torch {minor}"))
    for i, python in enumerate(torch.pythons):
        if problem := _python(minor, python, matrix):
            found.append(((*where, "pythons", i), problem))
    if torch.abi.pypi != int(Version(minor) >= FIRST_ABI1):
        text = f"PyPI's torch {minor} is built with C++11 ABI {1 - torch.abi.pypi}"
        found.append(((*where, "abi"), f"{text}, got {torch.abi.pypi}"))
    if torch.abi.conda != 1:
        text = f"conda-forge builds every torch with C++11 ABI 1, got {torch.abi.conda}"
        found.append(((*where, "abi"), text))
    if torch.cxx == 20 and torch.gcc[0] < 10:
        text = f"C++20 needs g++ 10 or newer, got a lower bound of {torch.gcc[0]}"
        found.append(((*where, "gcc"), text))
    found += _devices((*where, "aten"), torch.aten, matrix)
    return found + _host_compilers((*where, "gcc"), torch.aten, torch, matrix)


def _python(minor: str, python: str, matrix: Matrix) -> str | None:
    if python not in matrix.package.pythons:
        return f"Python {python} is not in package.pythons ({matrix.package.pythons})"
    text = f"torch {minor} has no wheel for Python {python}"
    if Version(FIRST_TORCH.get(python, "0")) > Version(minor):
        return f"{text}; {FIRST_TORCH[python]} is the first"
    if Version(minor) > Version(LAST_TORCH.get(python, minor)):
        return f"{text}; {LAST_TORCH[python]} is the last"
    return None


def _host_compilers(
    where: Path, devices: Sequence[str], torch: Torch, matrix: Matrix
) -> list[Problem]:
    """Devices for which no g++ compiles both the glue and the kernels."""
    found: list[Problem] = []
    for device in devices:
        kernels = matrix.kernels.get(device.replace("cu1", "cuda1"))  # type: ignore[call-overload]
        toolkit = matrix.toolkits.get(kernels.toolkit or "") if kernels else None
        if toolkit and (torch.gcc[0] > toolkit.gcc[1] or torch.gcc[1] < toolkit.gcc[0]):
            text = f"no g++ in {list(torch.gcc)} is accepted by CUDA {kernels.toolkit}"
            found.append((where, f"{text}, which takes {list(toolkit.gcc)}"))
    return found
