"""The exact command that fixes what was found, for this environment (pip or conda). Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ..project import Project
from .records import BinaryRecord, Environment, Runtime, TorchInstall, dotted, parse_version
from .support import load

#: The oldest driver of each CUDA major (NVIDIA's minor-version compatibility).
DRIVER_FLOORS = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}


def _pip(environment: Environment, what: str) -> str:
    return f"{environment.python} -m pip install {what}"


def _conda(project: Project, what: str) -> str:
    channel = load(project.folder).channel
    return f"conda install {what}" + (f" -c {channel}" if channel else "")


def _release(torch: TorchInstall | None, sign: str) -> str:
    """`==2.9.1`: without the local version, which no index has."""
    return "" if torch is None else sign + torch.version.partition("+")[0]


def build(project: Project) -> str:
    """Compile for the torch that is here."""
    return f"{project.command} build"


def without_binaries(project: Project) -> str:
    """Do without binaries, where none is made."""
    module, _, name = project.definition.rpartition(".")
    if not module:
        return "use another machine"
    code = f'{project.variable("LOAD")}=0 python -c "from {module} import {name}"'
    return f"use the plain PyTorch definition: {code}"


def install_torch(environment: Environment, project: Project) -> str:
    """Install a torch that is served."""
    minimum = dotted(load(project.folder).torch_min)
    if environment.kind == "conda":
        return f'conda install "pytorch>={minimum}"'
    return _pip(environment, f'"torch>={minimum}"')


def reinstall_torch(environment: Environment, torch: TorchInstall | None) -> str:
    """Replace a damaged torch by a whole one of the same release."""
    if environment.kind == "conda":
        return f"conda install --force-reinstall pytorch{_release(torch, '=')}"
    return _pip(environment, f'--force-reinstall --no-deps "torch{_release(torch, "==")}"')


def cuda_torch(environment: Environment, torch: TorchInstall | None) -> str:
    """Replace a CPU build of torch by the CUDA build."""
    if environment.kind == "conda":
        return f'conda install "pytorch{_release(torch, "=") or "=*"}=cuda*"'
    return _pip(environment, f'--force-reinstall "torch{_release(torch, "==")}"')


def reinstall(runtime: Runtime) -> str:
    """Put this package's files back as they were released."""
    name, pin = runtime.project.distribution, runtime.package_version
    if runtime.environment.kind == "conda":
        return _conda(runtime.project, f"--force-reinstall {name}={pin}")
    return _pip(runtime.environment, f'--force-reinstall --no-deps "{name}=={pin}"')


def install_once(environment: Environment, project: Project) -> str:
    """Put an end to two installations over each other: nothing may be left before the new one."""
    name = project.distribution
    again = _conda(project, f"--force-reinstall {name}")
    if environment.kind != "conda":
        again = _pip(environment, f"--force-reinstall --no-deps {name}")
    remove = f"{environment.python} -m pip uninstall {name}"
    return f"{remove}   (again, until nothing is left), then {again}"


def fit_torch(runtime: Runtime) -> str:
    """Get a binary that fits the torch which is here: a released one if one exists, else build."""
    torch, project = runtime.torch, runtime.project
    if torch is None or torch.version_tuple < load(project.folder).torch_min:
        return install_torch(runtime.environment, project)
    if not torch.is_release or not _is_served(torch, project):
        return build(project)
    name = project.distribution
    if runtime.environment.kind == "conda":
        if runtime.environment.installer == "pip":  # a wheel over the conda package
            return install_once(runtime.environment, project)
        return _conda(project, f'{name} "pytorch={dotted(torch.version_tuple)}"')
    return _pip(runtime.environment, f"--upgrade --force-reinstall --no-deps {name}")


def _is_served(torch: TorchInstall, project: Project) -> bool:
    """Whether the matrix has a glue for this torch."""
    name = f"aten{torch.version_tuple[0]}{torch.version_tuple[1]}-abi{torch.cxx11_abi}"
    return ("stable210" if torch.version_tuple >= (2, 10) else name) in load(project.folder).glues()


def newer_driver(cuda: tuple[int, ...] | None) -> str:
    """Update the driver to one for this CUDA."""
    floor = DRIVER_FLOORS.get(cuda[0]) if cuda else None
    least = f" to {floor} or newer" if floor else ""
    return f"update the NVIDIA driver{least} (it must serve CUDA {dotted(cuda)})"


def build_cuda(project: Project, capabilities: Iterable[tuple[int, int]]) -> str:
    """Build the CUDA kernels here, for these GPUs."""
    archs = ";".join(sorted({f"{major}.{minor}" for major, minor in capabilities}))
    return f'TORCH_CUDA_ARCH_LIST="{archs}" {build(project)}'


def system_libraries(runtime: Runtime, family: str) -> str:
    """Get a newer libstdc++ where that is possible, else build against the one that is here."""
    if family != "GLIBC" and runtime.environment.kind == "conda":
        return "conda install -c conda-forge libstdcxx-ng"
    return build(runtime.project)


def remove_duplicate(runtime: Runtime, other: str) -> str:
    """Remove the second copy of the package."""
    remove = f"{runtime.environment.python} -m pip uninstall"
    if runtime.environment.kind == "conda":
        remove = "conda remove --force"
    return (
        f"{remove} {runtime.project.distribution}   (the other copy: {other}); then restart Python"
    )


def other_package(binary: BinaryRecord, runtime: Runtime) -> str:
    """Get a release of another package that was built for the torch that is here."""
    torch, owner = runtime.torch, binary.owner
    here = torch.version if torch else "as installed"
    if owner is None:
        return f"reinstall or rebuild the package that owns {binary.file} for torch {here}"
    release = owner.release_for.get(torch.version_tuple if torch else (0, 0), "").split()
    if release and f"{owner.version}.".startswith(f"{release[0]}."):
        return reinstall_owner(binary, runtime)  # it is the right one, and damaged or another build
    if release and owner.channel == "conda":
        return f'conda install "{owner.name}={release[0]}"'
    if release:
        every = ".*" if release[0].count(".") < 2 else ""
        return _pip(runtime.environment, f'"{owner.name}=={release[0]}{every}"')
    return (
        f"install a release of {owner.name} that was built for torch {here}, or build this one: "
        + _pip(
            runtime.environment,
            "--force-reinstall --no-deps --no-build-isolation "
            f"--no-binary {owner.name} {owner.name}=={owner.version}",
        )
    )


def reinstall_owner(binary: BinaryRecord, runtime: Runtime) -> str:
    """Put the files of another package back, for this Python and platform."""
    owner = binary.owner
    if owner is None:
        return f"reinstall the package that owns {binary.file} with this Python's pip"
    if owner.channel == "conda":
        return f"conda install --force-reinstall {owner.name}={owner.version}"
    what = f'--force-reinstall --no-deps "{owner.name}=={owner.version}"'
    return _pip(runtime.environment, what)


def cuda_of_owner(binary: BinaryRecord, runtime: Runtime, major: str) -> str:
    """Bring the CUDA of another package and that of torch together."""
    torch, name = runtime.torch, binary.owner.name if binary.owner else binary.file
    wanted = f"a torch built for CUDA {major}" if major else "a CUDA build of torch"
    here = f"for CUDA {torch.cuda}" if torch and torch.cuda else "for the CPU"
    return f"install a build of {name} {here}, or {wanted} (each index names its CUDA)"


#: Libraries that a machine provides, and how it gets them.
_MACHINE = (
    (("libavutil", "libavcodec", "libavformat", "libavdevice", "libavfilter", "libsw"), "FFmpeg"),
    (("libsox",), "SoX"),
    (("libsndfile",), "libsndfile"),
    (("libnvinfer",), "TensorRT"),
    (("libascend", "libhccl", "libge_", "libacl", "libprofapi"), "Ascend's CANN toolkit"),
    (("libamdhip", "librocm", "libhip", "libroc", "libMIOpen"), "ROCm"),
)


def machine_library(library: str, binary: BinaryRecord, runtime: Runtime) -> str:
    """Install what provides a library that neither torch nor the package brings."""
    for starts, what in _MACHINE:
        if library.startswith(starts):
            number = (parse_version(library.partition(".so.")[2]) or (None,))[0]
            found = f" ({library} is version {number} of that library)" if number else ""
            if what != "FFmpeg":
                return f"install {what}{found}"
            conda = runtime.environment.kind == "conda"
            how = "conda install ffmpeg" if conda else "apt-get install ffmpeg, or your system's"
            return f"install FFmpeg of the version that has {library}: {how}"
    return (
        f"install the package of your system that provides {library}, or: "
        f"{other_package(binary, runtime)}"
    )
