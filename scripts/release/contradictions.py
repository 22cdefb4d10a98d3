"""What build_matrix.yaml may say in good form and yet not mean."""

from __future__ import annotations

from packaging.version import Version

from release.schema import Matrix, Torch

Path = tuple[str | int, ...]


def contradictions(matrix: Matrix) -> list[tuple[Path, str]]:
    """Pairs of (where in the file, what is wrong there), empty when all agrees."""
    return [*_package(matrix), *_kernels(matrix), *_stable(matrix), *_torch(matrix)]


def _known(minor: str, matrix: Matrix) -> str | None:
    if minor in matrix.torch:
        return None
    return f"torch {minor} has no entry under `torch`; there are {', '.join(matrix.minors())}"


def _package(matrix: Matrix) -> list[tuple[Path, str]]:
    problem = _known(matrix.package.default_torch, matrix)
    return [(("package", "default_torch"), problem)] if problem else []


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
    return found


# The oldest torch with a wheel for each CPython, as PyPI has them.
FIRST_TORCH = {"3.10": "1.11", "3.11": "1.13", "3.12": "2.2", "3.13": "2.5", "3.14": "2.9"}
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
        if torch.abi.pypi != int(Version(minor) >= FIRST_ABI1):
            text = f"PyPI's torch {minor} is built with C++11 ABI {1 - torch.abi.pypi}"
            found.append(((*where, "abi"), f"{text}, got {torch.abi.pypi}"))
        found += _devices((*where, "aten"), list(torch.aten), matrix)
        found += _host_compilers(where, torch, matrix)
    return found


def _host_compilers(where: Path, torch: Torch, matrix: Matrix) -> list[tuple[Path, str]]:
    found: list[tuple[Path, str]] = []
    if torch.cxx == 20 and torch.gcc[0] < 10:
        text = f"C++20 needs g++ 10 or newer, got a lower bound of {torch.gcc[0]}"
        found.append(((*where, "gcc"), text))
    for device in torch.aten:
        kernels = matrix.kernels.get(device.replace("cu1", "cuda1"))  # type: ignore[call-overload]
        toolkit = matrix.toolkits.get(kernels.toolkit or "") if kernels else None
        if toolkit and (torch.gcc[0] > toolkit.gcc[1] or torch.gcc[1] < toolkit.gcc[0]):
            text = f"no g++ in {list(torch.gcc)} is accepted by CUDA {kernels.toolkit}"
            found.append(((*where, "gcc"), f"{text}, which takes {list(toolkit.gcc)}"))
    return found
