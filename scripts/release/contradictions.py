"""Values of build_matrix.yaml that have the right form but do not fit together."""

from collections.abc import Iterator, Sequence

from packaging.version import Version

from release.schema import FIRST, Kernels, Matrix, Torch

Path = tuple[str | int, ...]
Problem = tuple[Path, str]

# The first and the last torch minor with a wheel on PyPI for each CPython.
FIRST_TORCH = {"3.10": "1.11", "3.11": "1.13", "3.12": "2.2", "3.13": "2.5", "3.14": "2.9"}
LAST_TORCH = {"3.8": "2.4", "3.9": "2.8", "3.10": "2.14"}
# The first torch minor whose wheel on PyPI has the C++11 ABI 1.
FIRST_ABI1 = {"linux-x86_64": "2.7", "linux-aarch64": "2.6"}


def contradictions(matrix: Matrix) -> Iterator[Problem]:
    yield from _known(("package", "default_torch"), matrix.package.default_torch, matrix)
    yield from _toolkits(matrix)
    for name, kernels in matrix.kernels.items():
        yield from _kernels(name, kernels, matrix)
    yield from _stable(matrix)
    for minor, torch in matrix.torch.items():
        yield from _torch(minor, torch, matrix)


def _known(where: Path, minor: str, matrix: Matrix) -> Iterator[Problem]:
    if minor not in matrix.torch:
        known = ", ".join(matrix.minors())
        yield where, f"torch {minor} has no entry under `torch`; there are {known}"


def _toolkits(matrix: Matrix) -> Iterator[Problem]:
    used = {kernels.toolkit for kernels in matrix.kernels.values()}
    able = [name for name, toolkit in matrix.toolkits.items() if toolkit.nvcc and name in used]
    for version, toolkit in matrix.toolkits.items():
        where: Path = ("toolkits", version, "clang")
        if toolkit.nvcc and toolkit.clang:
            yield where, f"CUDA {version}: `nvcc: true` and `clang` exclude each other; remove one"
        if version in used and toolkit.clang and toolkit.clang.fatbinary not in able:
            text = f"CUDA {toolkit.clang.fatbinary} brings no fatbinary"
            yield (*where, "fatbinary"), f"{text}; these do: {', '.join(able)}"


def _kernels(name: str, kernels: Kernels, matrix: Matrix) -> Iterator[Problem]:
    where: Path = ("kernels", name)
    if name == "cpu":
        if kernels.toolkit or kernels.archs:
            yield where, "CPU kernels take neither `toolkit` nor `archs`"
    elif kernels.toolkit is None or not kernels.archs:
        yield where, "CUDA kernels need `toolkit` and `archs`"
    elif kernels.toolkit not in matrix.toolkits:
        text = f"toolkit {kernels.toolkit} has no entry under `toolkits`"
        yield (*where, "toolkit"), f"{text}; there are {', '.join(matrix.toolkits)}"
    elif name != f"cuda{kernels.cuda_major}":
        text = f"toolkit {kernels.toolkit} makes kernels named cuda{kernels.cuda_major}"
        yield (*where, "toolkit"), f"{text}, not {name}"
    else:
        able = matrix.toolkits[kernels.toolkit].archs
        for i, arch in enumerate(kernels.archs):
            if int(arch.split("_")[1]) not in able:
                text = f"{arch}: CUDA {kernels.toolkit} has no such architecture; it has {able}"
                yield (*where, "archs", i), text
            if arch in kernels.archs[:i]:
                yield (*where, "archs", i), f"{arch} is listed twice"


def _stable(matrix: Matrix) -> Iterator[Problem]:
    stable, where = matrix.stable, ("stable", "built_with")
    yield from _known(("stable", "target"), stable.target, matrix)
    yield from _known(where, stable.built_with, matrix)
    if Version(stable.built_with) < Version(stable.target):
        text = f"headers of {stable.built_with} cannot target {stable.target}"
        yield where, f"{text}; name a torch at or above the target"
    yield from _devices(("stable", "devices"), stable.devices, matrix)
    if built := matrix.torch.get(stable.built_with):
        yield from _host_compilers(where, stable.devices, built, matrix)


def _torch(minor: str, torch: Torch, matrix: Matrix) -> Iterator[Problem]:
    where: Path = ("torch", minor)
    if not torch.release.startswith(minor + "."):
        yield (*where, "release"), f"{torch.release} is no release of torch {minor}"
    for i, python in enumerate(torch.pythons):
        if problem := _python(minor, python, matrix):
            yield (*where, "pythons", i), problem
    abi1 = Version(FIRST_ABI1.get(matrix.platform, FIRST_ABI1[FIRST]))
    if torch.abi.pypi != int(Version(minor) >= abi1):
        text = f"PyPI's torch {minor} is built with C++11 ABI {1 - torch.abi.pypi}"
        yield (*where, "abi"), f"{text}, got {torch.abi.pypi}"
    if torch.abi.conda != 1:
        yield (
            (*where, "abi"),
            f"conda-forge builds every torch with C++11 ABI 1, got {torch.abi.conda}",
        )
    if torch.cxx == 20 and torch.gcc[0] < 10:
        yield (*where, "gcc"), f"C++20 needs g++ 10 or newer, got a lower bound of {torch.gcc[0]}"
    yield from _devices((*where, "aten"), torch.aten, matrix)
    yield from _host_compilers((*where, "gcc"), torch.aten, torch, matrix)


def _python(minor: str, python: str, matrix: Matrix) -> str | None:
    if python not in matrix.package.pythons:
        return f"Python {python} is not in package.pythons ({matrix.package.pythons})"
    text = f"torch {minor} has no wheel for Python {python}"
    if Version(FIRST_TORCH.get(python, "0")) > Version(minor):
        return f"{text}; {FIRST_TORCH[python]} is the first"
    if Version(minor) > Version(LAST_TORCH.get(python, minor)):
        return f"{text}; {LAST_TORCH[python]} is the last"
    return None


def _kernels_of(device: str) -> str:
    return device.replace("cu", "cuda")


def _devices(where: Path, devices: Sequence[str], matrix: Matrix) -> Iterator[Problem]:
    for i, device in enumerate(devices):
        if device in devices[:i]:
            yield (*where, i), f"two equal cells: {device} is listed twice"
        # An op without kernels calls torch alone, through the glue.
        if _kernels_of(device) not in matrix.kernels and (device != "cpu" or matrix.kernels):
            known = ", ".join(name.replace("cuda", "cu") for name in matrix.kernels)
            yield (*where, i), f"{device} has no entry under `kernels`; those have: {known}"


def _host_compilers(
    where: Path, devices: Sequence[str], torch: Torch, matrix: Matrix
) -> Iterator[Problem]:
    """Devices for which no g++ compiles both the glue and the kernels."""
    for device in devices:
        kernels = matrix.kernels.get(_kernels_of(device))
        toolkit = matrix.toolkits.get(kernels.toolkit or "") if kernels else None
        if toolkit and (torch.gcc[0] > toolkit.gcc[1] or torch.gcc[1] < toolkit.gcc[0]):
            text = f"no g++ in {list(torch.gcc)} is accepted by CUDA {kernels.toolkit}"
            yield where, f"{text}, which takes {list(toolkit.gcc)}"
