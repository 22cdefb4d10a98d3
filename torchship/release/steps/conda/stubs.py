"""Channels of packages with few files; the channel of `stubs` looks like conda-forge to a solver.

With it, tests render the recipe and solve for every kind of machine in seconds. The channel
copies these facts of conda-forge: the run_exports of pytorch pin its minor; pytorch needs
one build of libtorch; a CUDA build of pytorch needs `__cuda`, binds `cuda-version` to one
major, and has a build number higher by 200 than a CPU build has; `cuda-version` constrains
`__cuda`. Build strings have conda-forge's form: cuda126_mkl_py311_h0_300 and
cpu_mkl_py311_h0_100; before torch 2.5, cuda118_py311h0_300 and cpu_mkl_py311h0_100.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ....judge.machine.torch_probe import find_torch
from ...matrix.platforms import FIRST
from ...matrix.schema import Matrix, pair, subdir_of

FIRST_SUBDIR = subdir_of(FIRST)

# By CUDA version, the first and last minor of torch 2 that conda-forge built with it (99:
# no last).
CUDA_BUILDS = {"11.8": (3, 5), "12.0": (3, 5), "12.6": (5, 7), "12.9": (7, 99), "13.0": (10, 99)}
# A pytorch older than every pytorch of the matrix: its release and its Pythons.
OLDER = ("2.3.1", ("3.10", "3.11", "3.12"))
# A package that only links to an installed torch has `linked` in its build string. The link
# saves the gigabytes of a copy, and works as long as torch's environment exists.
LINK = "linked-torch.pth"
CUDA_VERSIONS = ("11.8", "12.0", "12.4", "12.6", "12.8", "12.9", "13.0", "13.2")


class Stub(NamedTuple):
    """One package: its metadata for a solver, its run_exports, and its files (text by path)."""

    name: str
    version: str
    build: str
    build_number: int = 0
    depends: tuple[str, ...] = ()
    constrains: tuple[str, ...] = ()
    run_exports: Mapping[str, tuple[str, ...]] = {}
    files: Mapping[str, str] = {}

    def metadata(self, subdir: str) -> dict[str, object]:
        """The package's metadata for a solver, in conda's form."""
        return {
            "name": self.name,
            "version": self.version,
            "build": self.build,
            "build_number": self.build_number,
            "depends": self.depends,
            "constrains": self.constrains,
            "subdir": subdir,
        }


def stubs(matrix: Matrix) -> Iterator[Stub]:
    """The packages that a solver needs from conda-forge: those of `tools` and pytorch's builds."""
    yield from tools(matrix)
    releases = [OLDER, *((torch.release, torch.pythons) for torch in matrix.torch.values())]
    for release, pythons in releases:
        minor = pair(release)[1]
        blas = "" if minor < 5 else "_mkl"  # old CUDA builds do not name the BLAS library
        built = [cuda for cuda, (first, last) in CUDA_BUILDS.items() if first <= minor <= last]
        for cuda in (None, *built):
            flavour = f"cuda{cuda.replace('.', '')}{blas}" if cuda else "cpu_mkl"
            tag = "py{}_h0" if blas else "py{}h0"
            yield from pytorch(release, pythons, cuda, f"{flavour}_{tag}")


def tools(matrix: Matrix) -> Iterator[Stub]:
    """The packages of both conda-forge and `defaults`: Pythons, tools, compilers, CUDA."""
    subdir = subdir_of(matrix.platform)
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
    yield Stub(f"sysroot_{subdir}", "2.28", "h0_0", run_exports={"strong": glibc})
    sysroot = (f"sysroot_{subdir}",)
    yield Stub(f"gxx_{subdir}", "14.3.0", "h0_0", depends=sysroot, run_exports={"strong": gcc})
    for version in CUDA_VERSIONS:
        yield cuda_version(version)
        after = int(version.split(".")[0]) + 1
        exact = f"cuda-version {version}.*"
        pin = f"cuda-version >={version},<{after}"
        full = f"{version}.96"
        cudart = f"cuda-cudart >={full},<{after}.0a0"
        yield Stub("cuda-nvcc", full, "h0_0", depends=(exact,), run_exports={"strong": (pin,)})
        yield Stub("cuda-cudart", full, "h0_0", depends=(pin,))
        needs = (f"cuda-cudart {full}", exact)
        yield Stub("cuda-cudart-dev", full, "h0_0", depends=needs, run_exports={"weak": (cudart,)})


def cuda_version(version: str) -> Stub:
    """The package `cuda-version`, which has no files on conda-forge either."""
    major = version.split(".")[0]
    return Stub("cuda-version", version, "h0_3", 3, constrains=(f"__cuda >={major}",))


def exports_of_pytorch(release: str) -> dict[str, tuple[str, ...]]:
    """pytorch's run_exports: a package built against `release` needs it or a later patch of it."""
    major, minor = pair(release)
    pin = f">={release},<{major}.{minor + 1}.0a0"
    return {"weak": (f"pytorch {pin}", f"libtorch {pin}")}


def pytorch(release: str, pythons: Iterable[str], cuda: str | None, build: str) -> Iterator[Stub]:
    """Builds of pytorch for `pythons`, with the libtorch and the metapackage that they share.

    `cuda` is None for a CPU build. `build` is the build string up to its number, with `{}`
    for the digits of Python's version.
    """
    number, own, other = (300, "gpu", "cpu") if cuda else (100, "cpu", "gpu")
    depends = ["libstdcxx >=14", "__glibc >=2.28,<3.0.a0"]
    if cuda:
        after = int(cuda.split(".")[0]) + 1
        depends += [f"cuda-version >={cuda},<{after}", f"cuda-cudart >={cuda}.96,<{after}.0a0"]
    flavour = build.partition("_py")[0]
    library = f"{flavour}_h0_{number}"
    binds = (f"pytorch-{own} {release}", f"pytorch-{other} <0.0a0")
    yield Stub("libtorch", release, library, number, tuple(depends))
    yield Stub(f"pytorch-{own}", release, library, number, (f"pytorch {release} {flavour}_*",))
    for python in pythons:
        tag = python.replace(".", "")
        needs = [f"python {python}.*", f"python_abi {python}.* *_cp{tag}"]
        needs += [f"libtorch {release} {library}", *(["__cuda"] if cuda else []), *depends]
        yield Stub(
            name="pytorch",
            version=release,
            build=f"{build.format(tag)}_{number}",
            build_number=number,
            depends=tuple(needs),
            constrains=binds,
            run_exports=exports_of_pytorch(release),
        )


def pack(stub: Stub, subdir: str) -> bytes:
    """The content of the package's file, a `.tar.bz2`."""
    paths = [{"_path": name, "path_type": "hardlink"} for name in stub.files]
    members = {
        "info/index.json": json.dumps(stub.metadata(subdir)),
        "info/paths.json": json.dumps({"paths": paths, "paths_version": 1}),
        "info/run_exports.json": json.dumps(stub.run_exports),
        **stub.files,
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:bz2", compresslevel=1) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content.encode())
            archive.addfile(info, io.BytesIO(content.encode()))
    return buffer.getvalue()


def write_channel(folder: Path, packages: Iterable[Stub], *, subdir: str = FIRST_SUBDIR) -> Path:
    """Writes a channel into `folder`, over an older channel if there is one.

    Returns `folder`.
    """
    entries: dict[str, dict[str, object]] = {}
    (folder / subdir).mkdir(parents=True, exist_ok=True)
    for stub in packages:
        data = pack(stub, subdir)
        name = f"{stub.name}-{stub.version}-{stub.build}.tar.bz2"
        (folder / subdir / name).write_bytes(data)
        sha256 = hashlib.sha256(data).hexdigest()
        entries[name] = {**stub.metadata(subdir), "sha256": sha256, "size": len(data)}
    _write_repodata(folder / subdir, entries)
    _write_repodata(folder / "noarch", {})
    return folder


def _write_repodata(folder: Path, entries: Mapping[str, Mapping[str, object]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    repodata = {"info": {"subdir": folder.name}, "packages": entries, "packages.conda": {}}
    (folder / "repodata.json").write_text(json.dumps(repodata), encoding="utf-8")


def link_torch(folder: Path, env: Path, python: str, *, subdir: str = FIRST_SUBDIR) -> Path:
    """Writes a channel with the packages `linked_torch`."""
    return write_channel(folder, linked_torch(env, python), subdir=subdir)


def linked_torch(env: Path, python: str) -> list[Stub]:
    """Packages of the torch in an environment, and its `cuda-version` if it has one.

    For x86-64, PyPI has no CPU builds. So a CUDA build becomes a CPU package, too: without
    a driver it computes on the CPU. The build string of the CPU package
    (`cpu_linked_cu128_py311_0`) must not contain `cuda`, by which our CUDA packages
    recognise a CUDA build.
    """
    torch = find_torch(env)
    release = torch.version.split("+")[0]
    tag = f"py{python.replace('.', '')}_0"
    packages = []
    needs_by_build: dict[str, tuple[str, ...]] = {f"cpu_linked_{tag}": ()}
    if torch.cuda:
        flavour = torch.cuda.replace(".", "")
        after = int(torch.cuda.split(".")[0]) + 1
        packages.append(cuda_version(torch.cuda))
        needs_by_build = {
            f"cuda{flavour}_linked_{tag}": (
                "__cuda",
                f"cuda-version >={torch.cuda},<{after}",
            ),
            f"cpu_linked_cu{flavour}_{tag}": (),
        }
    # One .pth file is enough: it names a folder with torch, its dependencies and CUDA's
    # libraries.
    files = {f"lib/python{python}/site-packages/{LINK}": f"{torch.root.resolve().parent}\n"}
    for build, needs in needs_by_build.items():
        package = Stub(
            name="pytorch",
            version=release,
            build=build,
            depends=(f"python {python}.*", *needs),
            run_exports=exports_of_pytorch(release),
            files=files,
        )
        packages.append(package)
    return packages
