"""A channel of packages without content, which looks like conda-forge to a solver.

With it, tests render the recipe and solve for every kind of machine in seconds, without a network
or a GPU (`tests/release/test_conda_solve.py`, `test_conda_installs.py`). It copies these facts:
pytorch's run_exports pin its minor; it needs one build of libtorch; its CUDA builds need `__cuda`
and bind `cuda-version` to one major; `cuda-version` constrains `__cuda`; the build number of a CUDA
build is higher by 200. Versions and build strings are those of the feedstock:

    cuda118_py311h0_300 (2.4), cuda126_mkl_py311_h0_300, cpu_mkl_py311_h0_100
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.compat.records import TorchInstall
from engine.compat.torch_probe import find_torch
from release import SUBDIR
from release.schema import Matrix, pair

# The CUDA versions that conda-forge built each pytorch with.
CUDA_OF_TORCH = {
    "2.3": ("11.8", "12.0"),
    "2.4": ("11.8", "12.0"),
    "2.5": ("11.8", "12.0", "12.6"),
    "2.6": ("12.6",),
    "2.7": ("12.6", "12.9"),
    "2.8": ("12.9",),
    "2.9": ("12.9",),
}
NEWER_CUDA = ("12.9", "13.0")
# A pytorch older than every pytorch of the matrix: release, Pythons.
OLDER = ("2.3.1", ("3.10", "3.11", "3.12"))
# A conda package may link to an installed torch: packing it would cost gigabytes. This package has
# `linked` in its build string, and works as long as torch's environment exists.
LINK = "linked-torch.pth"
CUDA_VERSIONS = ("11.8", "12.0", "12.4", "12.6", "12.8", "12.9", "13.0", "13.2")


@dataclass(frozen=True)
class Stub:
    """One package: its metadata for a solver, its run_exports, and its files, if it has any.

    Attributes:
        files: path in the prefix -> text.
    """

    name: str
    version: str
    build: str
    build_number: int = 0
    depends: tuple[str, ...] = ()
    constrains: tuple[str, ...] = ()
    run_exports: dict[str, tuple[str, ...]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)

    @property
    def index(self) -> dict[str, Any]:
        left_out = ("run_exports", "files")
        facts = {name: value for name, value in vars(self).items() if name not in left_out}
        return {**facts, "subdir": SUBDIR}


def stubs(matrix: Matrix) -> Iterator[Stub]:
    """conda-forge: Pythons, tools, compilers, CUDA, and pytorch in all builds."""
    yield from tools(matrix)
    releases = [OLDER, *((torch.release, torch.pythons) for torch in matrix.torch.values())]
    for release, pythons in releases:
        minor = release.rpartition(".")[0]
        blas = "" if minor in ("2.3", "2.4") else "_mkl"  # old CUDA builds do not name it
        for cuda in (None, *CUDA_OF_TORCH.get(minor, NEWER_CUDA)):
            flavour = f"cuda{cuda.replace('.', '')}{blas}" if cuda else "cpu_mkl"
            tag = "py{}_h0" if blas else "py{}h0"
            yield from pytorch(release, pythons, cuda, f"{flavour}_{tag}")


def tools(matrix: Matrix) -> Iterator[Stub]:
    """The packages of both conda-forge and `defaults`: Pythons, tools, compilers, CUDA."""
    for python in matrix.package.pythons:
        tag = "cp" + python.replace(".", "")
        abi = {"weak": (f"python_abi {python}.* *_{tag}",), "noarch": ("python",)}
        yield Stub("python", f"{python}.9", f"h0_0_{tag}", run_exports=abi)
        yield Stub("python_abi", python, f"8_{tag}", constrains=(f"python {python}.* *_{tag}",))
    for name, version in (("pip", "25.3"), ("setuptools", "80.9.0")):
        yield Stub(name, version, "h0_0", depends=("python >=3.10",))
    for name, version in (("ninja", "1.13.0"), ("libstdcxx", "15.2.0"), ("libgcc", "15.2.0")):
        yield Stub(name, version, "h0_0")
    glibc, gcc = ("__glibc >=2.28,<3.0.a0",), ("libstdcxx >=14", "libgcc >=14")
    yield Stub(f"sysroot_{SUBDIR}", "2.28", "h0_0", run_exports={"strong": glibc})
    sysroot = (f"sysroot_{SUBDIR}",)
    yield Stub(f"gxx_{SUBDIR}", "14.3.0", "h0_0", depends=sysroot, run_exports={"strong": gcc})
    for version in CUDA_VERSIONS:
        yield cuda_version(version)
        after = int(version.split(".")[0]) + 1
        exact, pin = f"cuda-version {version}.*", f"cuda-version >={version},<{after}"
        cudart = f"cuda-cudart >={version}.96,<{after}.0a0"
        for name, depends, exports in (
            ("cuda-nvcc", (exact,), {"strong": (pin,)}),
            ("cuda-cudart", (pin,), {}),
            ("cuda-cudart-dev", (f"cuda-cudart {version}.96", exact), {"weak": (cudart,)}),
        ):
            yield Stub(name, f"{version}.96", "h0_0", depends=depends, run_exports=exports)


def cuda_version(version: str) -> Stub:
    """conda-forge's `cuda-version`, which has no files either."""
    major = version.split(".")[0]
    return Stub("cuda-version", version, "h0_3", 3, constrains=(f"__cuda >={major}",))


def exports_of_pytorch(release: str) -> dict[str, tuple[str, ...]]:
    """conda-forge's run_exports of pytorch: they pin packages built against it to its minor."""
    major, minor = pair(release)
    pin = f">={release},<{major}.{minor + 1}.0a0"
    return {"weak": (f"pytorch {pin}", f"libtorch {pin}")}


def pytorch(release: str, pythons: Iterable[str], cuda: str | None, build: str) -> Iterator[Stub]:
    """One build of pytorch for each Python, with its libtorch and its metapackage.

    Args:
        build: the build string up to its number, with `{}` for the digits of Python.
    """
    number = 300 if cuda else 100
    depends, binds = ["libstdcxx >=14", "__glibc >=2.28,<3.0.a0"], [f"pytorch-cpu {release}"]
    if cuda:
        after = int(cuda.split(".")[0]) + 1
        depends += [f"cuda-version >={cuda},<{after}", f"cuda-cudart >={cuda}.96,<{after}.0a0"]
        binds = [f"pytorch-gpu {release}"]
    binds.append(f"pytorch-{'cpu' if cuda else 'gpu'} <0.0a0")
    library = f"{build.partition('_py')[0]}_h0_{number}"
    yield Stub("libtorch", release, library, number, tuple(depends))
    needs = (f"pytorch {release} {build.partition('_py')[0]}_*",)
    yield Stub(binds[0].split()[0], release, library, number, needs)
    for python in pythons:
        tag = python.replace(".", "")
        own = [f"python {python}.*", f"python_abi {python}.* *_cp{tag}"]
        own += [f"libtorch {release} {library}", *(["__cuda"] if cuda else []), *depends]
        exports = exports_of_pytorch(release)
        text = f"{build.format(tag)}_{number}"
        yield Stub("pytorch", release, text, number, tuple(own), tuple(binds), exports)


def pack(stub: Stub) -> bytes:
    """The package's file: its metadata, and its files if it has any."""
    paths = [{"_path": name, "path_type": "hardlink"} for name in stub.files]
    members = {
        "info/index.json": json.dumps(stub.index),
        "info/paths.json": json.dumps({"paths": paths, "paths_version": 1}),
        "info/run_exports.json": json.dumps(stub.run_exports),
        **stub.files,
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:bz2", compresslevel=1) as archive:
        for name, text in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


def write_channel(folder: Path, packages: Iterable[Stub]) -> Path:
    """Writes a channel into `folder`, over an older one, and returns `folder`."""
    entries: dict[str, Any] = {}
    for subdir in (SUBDIR, "noarch"):
        (folder / subdir).mkdir(parents=True, exist_ok=True)
    for stub in packages:
        name, data = f"{stub.name}-{stub.version}-{stub.build}.tar.bz2", pack(stub)
        (folder / SUBDIR / name).write_bytes(data)
        sha256 = hashlib.sha256(data).hexdigest()
        entries[name] = {**stub.index, "sha256": sha256, "size": len(data)}
    for subdir, found in ((SUBDIR, entries), ("noarch", {})):
        text = json.dumps({"info": {"subdir": subdir}, "packages": found, "packages.conda": {}})
        (folder / subdir / "repodata.json").write_text(text, encoding="utf-8")
    return folder


def link_torch(folder: Path, env: Path, python: str) -> Path:
    return write_channel(folder, linked(find_torch(env), python))


def linked(torch: TorchInstall, python: str) -> Iterator[Stub]:
    """The pytorch packages of an installed torch, with the `cuda-version` of a CUDA build.

    PyPI has no CPU builds, so a CUDA build is also packed as a CPU build: without a driver it
    computes on the CPU. That build string names both (`cpu_linked_cu128_py311_0`), without the word
    by which CUDA packages recognise a CUDA build.
    """
    release, tag = torch.version.split("+")[0], f"py{python.replace('.', '')}_0"
    builds: dict[str, tuple[str, ...]] = {f"cpu_linked_{tag}": ()}
    if torch.cuda:
        flavour, after = torch.cuda.replace(".", ""), int(torch.cuda.split(".")[0]) + 1
        yield cuda_version(torch.cuda)
        needs = ("__cuda", f"cuda-version >={torch.cuda},<{after}")
        builds = {f"cuda{flavour}_linked_{tag}": needs, f"cpu_linked_cu{flavour}_{tag}": ()}
    # One .pth file does: torch's dependencies, CUDA libraries included, are in its folder.
    files = {f"lib/python{python}/site-packages/{LINK}": f"{torch.root.resolve().parent}\n"}
    for build, needs in builds.items():
        needs, exports = (f"python {python}.*", *needs), exports_of_pytorch(release)
        yield Stub("pytorch", release, build, 0, needs, run_exports=exports, files=files)
