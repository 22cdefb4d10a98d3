"""A channel of packages without content, shaped like conda-forge: what a solver sees of it.

Against it the recipe is rendered and every kind of machine is solved in seconds, without a network
or a GPU (`tests/release/test_conda_solve.py`). What matters of the shape: pytorch's run_exports pin
its minor; its CUDA builds need `__cuda` and bind `cuda-version` to one major; `cuda-version`
constrains `__cuda`; build strings begin with `cpu_` or `cuda<version>_`; CUDA builds have 200 more
in their build number.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from release.schema import Matrix

# The CUDA versions that conda-forge builds each pytorch with, one for each major.
CUDA_OF_TORCH = {
    "2.4": ("12.0",),
    "2.5": ("12.6",),
    "2.6": ("12.6",),
    "2.7": ("12.6",),
    "2.8": ("12.9",),
    "2.9": ("12.9", "13.0"),
}
NEWER_CUDA = ("12.9", "13.0")
CUDA_VERSIONS = ("12.0", "12.6", "12.8", "12.9", "13.0", "13.2")


@dataclass(frozen=True)
class Stub:
    """One package: what a solver sees of it, its run_exports, and its files, if it has any.

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
        return {**facts, "subdir": "linux-64"}


def below(version: str) -> str:
    """The upper bound that `pin_subpackage(..., upper_bound="x.x")` makes: 2.13 -> 2.14.0a0."""
    major, minor = version.split(".")[:2]
    return f"{major}.{int(minor) + 1}.0a0"


def stubs(matrix: Matrix) -> Iterator[Stub]:
    """Every package of the channel: Pythons, tools, compilers, CUDA, and pytorch in all builds."""
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
    yield Stub("sysroot_linux-64", "2.28", "h0_0", run_exports={"strong": glibc})
    sysroot = ("sysroot_linux-64",)
    yield Stub("gxx_linux-64", "14.3.0", "h0_0", depends=sysroot, run_exports={"strong": gcc})
    for version in CUDA_VERSIONS:
        yield cuda_version(version)
        yield from _cuda(version)
    for minor, torch in matrix.torch.items():
        for python in torch.pythons:
            for cuda in (None, *CUDA_OF_TORCH.get(minor, NEWER_CUDA)):
                yield _pytorch(torch.release, python, cuda)


def cuda_version(version: str) -> Stub:
    """conda-forge's `cuda-version`, which has no files either."""
    major = version.split(".")[0]
    return Stub("cuda-version", version, "h0_3", 3, constrains=(f"__cuda >={major}",))


def exports_of_pytorch(release: str) -> dict[str, tuple[str, ...]]:
    """conda-forge's run_exports of pytorch: they pin what is built against it to its minor."""
    return {"weak": tuple(f"{n} >={release},<{below(release)}" for n in ("pytorch", "libtorch"))}


def _cuda(version: str) -> Iterator[Stub]:
    after = int(version.split(".")[0]) + 1
    exact, pin = f"cuda-version {version}.*", f"cuda-version >={version},<{after}"
    cudart = f"cuda-cudart >={version}.96,<{after}.0a0"
    names = "cuda-nvcc", "cuda-cudart", "cuda-cudart-dev"
    nvcc, runtime, headers = (Stub(name, f"{version}.96", "h0_0") for name in names)
    yield replace(nvcc, depends=(exact,), run_exports={"strong": (pin,)})
    yield replace(runtime, depends=(pin,))
    needs = (f"cuda-cudart {version}.96", exact)
    yield replace(headers, depends=needs, run_exports={"weak": (cudart,)})


def _pytorch(release: str, python: str, cuda: str | None) -> Stub:
    tag = python.replace(".", "")
    depends = [f"python {python}.*", f"python_abi {python}.* *_cp{tag}", "libstdcxx >=14"]
    depends.append("__glibc >=2.28,<3.0.a0")
    number, flavour = 100, "cpu_mkl"
    if cuda:
        number, flavour = 300, f"cuda{cuda.replace('.', '')}_mkl"
        after = int(cuda.split(".")[0]) + 1
        depends += ["__cuda", f"cuda-version >={cuda},<{after}"]
        depends.append(f"cuda-cudart >={cuda}.96,<{after}.0a0")
    return Stub(
        "pytorch",
        release,
        f"{flavour}_py{tag}_h0_{number}",
        build_number=number,
        depends=tuple(depends),
        run_exports=exports_of_pytorch(release),
    )


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
    """Writes a channel into `folder`, which it returns; an older one there is overwritten."""
    entries: dict[str, Any] = {}
    for subdir in ("linux-64", "noarch"):
        (folder / subdir).mkdir(parents=True, exist_ok=True)
    for stub in packages:
        name, data = f"{stub.name}-{stub.version}-{stub.build}.tar.bz2", pack(stub)
        (folder / "linux-64" / name).write_bytes(data)
        sha256 = hashlib.sha256(data).hexdigest()
        entries[name] = {**stub.index, "sha256": sha256, "size": len(data)}
    for subdir, found in (("linux-64", entries), ("noarch", {})):
        text = json.dumps({"info": {"subdir": subdir}, "packages": found, "packages.conda": {}})
        (folder / subdir / "repodata.json").write_text(text, encoding="utf-8")
    return folder
