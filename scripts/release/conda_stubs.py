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
from dataclasses import dataclass, field
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
    """One package: its index entry, its run_exports, its files.

    Attributes:
        files: path in the prefix -> text; none in a stub.
    """

    name: str
    version: str
    build: str
    number: int = 0
    depends: tuple[str, ...] = ()
    constrains: tuple[str, ...] = ()
    run_exports: dict[str, tuple[str, ...]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}-{self.build}.tar.bz2"

    @property
    def index(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "version": self.version,
            "build": self.build,
            "build_number": self.number,
            "depends": list(self.depends),
            "constrains": list(self.constrains),
            "subdir": "linux-64",
            "license": "BSD-3-Clause",
            "timestamp": 1700000000000,
        }


def below(version: str) -> str:
    """The upper bound that `pin_subpackage(..., upper_bound="x.x")` makes: 2.13 -> 2.14.0a0."""
    major, minor = version.split(".")[:2]
    return f"{major}.{int(minor) + 1}.0a0"


def stubs(matrix: Matrix) -> Iterator[Stub]:
    """Every package of the channel: Pythons, tools, compilers, CUDA, and pytorch in all builds."""
    for python in matrix.package.pythons:
        tag = "cp" + python.replace(".", "")
        yield Stub(
            "python",
            f"{python}.9",
            f"h0_0_{tag}",
            run_exports={"weak": (f"python_abi {python}.* *_{tag}",), "noarch": ("python",)},
        )
        yield Stub("python_abi", python, f"8_{tag}", constrains=(f"python {python}.* *_{tag}",))
    for name, version in (("pip", "25.3"), ("setuptools", "80.9.0"), ("ninja", "1.13.0")):
        yield Stub(name, version, "h0_0", depends=("python >=3.10",) if name != "ninja" else ())
    yield Stub(
        "sysroot_linux-64",
        "2.28",
        "h0_0",
        run_exports={"strong": ("__glibc >=2.28,<3.0.a0",)},
    )
    yield Stub(
        "gxx_linux-64",
        "14.3.0",
        "h0_0",
        depends=("sysroot_linux-64",),
        run_exports={"strong": ("libstdcxx >=14", "libgcc >=14")},
    )
    yield Stub("libstdcxx", "15.2.0", "h0_0")
    yield Stub("libgcc", "15.2.0", "h0_0")
    for version in CUDA_VERSIONS:
        yield cuda_version(version)
        yield from _cuda(version)
    for minor, torch in matrix.torch.items():
        for python in torch.pythons:
            yield _pytorch(torch.release, python, None)
            for cuda in CUDA_OF_TORCH.get(minor, NEWER_CUDA):
                yield _pytorch(torch.release, python, cuda)


def cuda_version(version: str) -> Stub:
    """conda-forge's `cuda-version`, which has no files either."""
    major = version.split(".")[0]
    return Stub("cuda-version", version, "h0_3", 3, constrains=(f"__cuda >={major}",))


def exports_of_pytorch(release: str) -> dict[str, tuple[str, ...]]:
    """conda-forge's run_exports of pytorch: they pin what is built against it to its minor."""
    return {"weak": tuple(f"{n} >={release},<{below(release)}" for n in ("pytorch", "libtorch"))}


def _cuda(version: str) -> Iterator[Stub]:
    major = int(version.split(".")[0])
    pin = f"cuda-version >={version},<{major + 1}"
    yield Stub(
        "cuda-nvcc",
        f"{version}.48",
        "h0_0",
        depends=(f"cuda-version {version}.*",),
        run_exports={"strong": (pin,)},
    )
    yield Stub("cuda-cudart", f"{version}.96", "h0_0", depends=(pin,))
    yield Stub(
        "cuda-cudart-dev",
        f"{version}.96",
        "h0_0",
        depends=(f"cuda-cudart {version}.96", f"cuda-version {version}.*"),
        run_exports={"weak": (f"cuda-cudart >={version}.96,<{major + 1}.0a0",)},
    )


def _pytorch(release: str, python: str, cuda: str | None) -> Stub:
    tag = python.replace(".", "")
    depends = [f"python {python}.*", f"python_abi {python}.* *_cp{tag}", "libstdcxx >=14"]
    depends.append("__glibc >=2.28,<3.0.a0")
    number, flavour = 100, "cpu_mkl"
    constrains = [f"pytorch-cpu {release}", "pytorch-gpu <0.0a0"]
    if cuda:
        number, flavour = 300, f"cuda{cuda.replace('.', '')}_mkl"
        major = int(cuda.split(".")[0])
        depends += ["__cuda", f"cuda-version >={cuda},<{major + 1}"]
        depends.append(f"cuda-cudart >={cuda}.96,<{major + 1}.0a0")
        constrains = [f"pytorch-gpu {release}", "pytorch-cpu <0.0a0"]
    return Stub(
        "pytorch",
        release,
        f"{flavour}_py{tag}_h0_{number}",
        number,
        tuple(depends),
        tuple(constrains),
        exports_of_pytorch(release),
    )


def _member(archive: tarfile.TarFile, name: str, text: str) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(text.encode())
    archive.addfile(info, io.BytesIO(text.encode()))


def pack(stub: Stub) -> bytes:
    """The package's file: its metadata, and its files if it has any."""
    paths = [
        {
            "_path": name,
            "path_type": "hardlink",
            "sha256": hashlib.sha256(text.encode()).hexdigest(),
            "size_in_bytes": len(text.encode()),
        }
        for name, text in stub.files.items()
    ]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:bz2", compresslevel=1) as archive:
        _member(archive, "info/index.json", json.dumps(stub.index))
        _member(archive, "info/files", "".join(f"{name}\n" for name in stub.files))
        _member(archive, "info/paths.json", json.dumps({"paths": paths, "paths_version": 1}))
        if stub.run_exports:
            _member(archive, "info/run_exports.json", json.dumps(stub.run_exports))
        for name, text in stub.files.items():
            _member(archive, name, text)
    return buffer.getvalue()


def write_channel(folder: Path, matrix: Matrix) -> Path:
    """Writes the channel of stubs into `folder`, which it returns."""
    return write_packages(folder, stubs(matrix))


def write_packages(folder: Path, packages: Iterable[Stub]) -> Path:
    """Writes a channel into `folder`, which it returns; an older one there is overwritten."""
    entries = {}
    (folder / "linux-64").mkdir(parents=True, exist_ok=True)
    (folder / "noarch").mkdir(exist_ok=True)
    for stub in packages:
        data = pack(stub)
        (folder / "linux-64" / stub.file_name).write_bytes(data)
        digests = {"md5": hashlib.md5(data).hexdigest(), "sha256": hashlib.sha256(data).hexdigest()}
        entries[stub.file_name] = {**stub.index, **digests, "size": len(data)}
    for subdir, packages in (("linux-64", entries), ("noarch", {})):
        data = {"info": {"subdir": subdir}, "packages": packages, "packages.conda": {}}
        text = json.dumps({**data, "repodata_version": 1})
        (folder / subdir / "repodata.json").write_text(text, encoding="utf-8")
    return folder
