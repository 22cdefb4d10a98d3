"""The command, or the step in words, that mends a fault in this environment (pip or conda).

A docstring such as "Install torch" says what the returned command does. If a function takes
a binary of another package, the command builds or installs that package where it would
otherwise build or install the project. The functions read no file but `support.json`.
"""

from collections.abc import Iterable

from .project import Project
from .records import (
    BinaryRecord,
    Environment,
    GlueName,
    Owner,
    Runtime,
    TorchInstall,
    dotted,
    parse_file_name,
    parse_version,
)
from .support import load

_PYPI = "https://pypi.org/simple"
#: PyPI's builds of these packages for x86-64 can need CUDA; PyTorch's CPU index has CPU builds.
_PYTORCHS_OWN = ("torchvision", "torchaudio", "torchcodec")
_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
#: The oldest driver that serves each CUDA major (NVIDIA's minor-version compatibility).
DRIVER_FLOORS = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}


def ours(binary: BinaryRecord, runtime: Runtime) -> bool:
    """Whether the binary is a glue or kernels of the project. The record names the binary's
    package, else the owner does; a binary with neither counts as the project's."""
    distribution = runtime.project.distribution
    is_named_so = (
        binary.kind in ("glue", "kernels") or parse_file_name(binary.path.name) is not None
    )
    if not distribution or not is_named_so:
        return False
    if binary.record is not None:
        return binary.record.package == distribution
    return binary.owner is None or binary.owner.name == distribution


def install(environment: Environment, pip: str, conda: str) -> str:
    """The install command of the environment's tool, with the arguments for this tool."""
    if environment.kind == "conda":
        return f"conda install {conda}"
    return f"{environment.python} -m pip install {pip}"


def _published(environment: Environment, project: Project, pip: str, conda: str) -> str | None:
    """Install from the project's channel (conda) or index (pip); None if the project has none."""
    facts = load(project.folder)
    if not (facts.channel if environment.kind == "conda" else facts.index):
        return None
    index = f"--index-url {facts.index} " if facts.index != _PYPI else ""
    return install(environment, index + pip, f"{conda} -c {facts.channel}")


def _at_hand(environment: Environment) -> str | None:
    """Install again from the package's original file or folder; None if unknown or gone."""
    source = environment.source
    if source is None:
        return None
    isolation = "" if source.endswith(".whl") else " --no-build-isolation"
    pip = f"--force-reinstall --no-deps{isolation} {source}"
    return install(environment, pip, f"--force-reinstall {source}")


def _release(torch: TorchInstall | None, sign: str) -> str:
    """`==2.9.1` for torch 2.9.1+cpu, sign `==` (PyPI has no local versions); "" without torch."""
    return "" if torch is None else sign + torch.version.partition("+")[0]


def build(project: Project) -> str:
    """Compile the project for the installed torch."""
    return f"{project.command} build"


def without_binaries(project: Project) -> str:
    module, _, name = project.definition.rpartition(".")
    if not module:
        return "use another machine"
    code = f'{project.variable("LOAD")}=0 python -c "from {module} import {name}"'
    return f"use the plain PyTorch definition: {code}"


def install_torch(
    environment: Environment, project: Project, minor: tuple[int, int] | None = None
) -> str:
    """Install torch `minor`; by default, a torch no older than the project's `torch_min`."""
    if minor is not None:
        return install(environment, f'"torch=={dotted(minor)}.*"', f'"pytorch={dotted(minor)}"')
    oldest = dotted(load(project.folder).torch_min)
    return install(environment, f'"torch>={oldest}"', f'"pytorch>={oldest}"')


def reinstall_torch(environment: Environment, torch: TorchInstall | None) -> str:
    """Install all files of torch again; keep the release if it is known."""
    pip = f'--force-reinstall --no-deps "torch{_release(torch, "==")}"'
    return install(environment, pip, f"--force-reinstall pytorch{_release(torch, '=')}")


def cuda_torch(environment: Environment, torch: TorchInstall | None) -> str:
    """Replace a build of torch without CUDA by a CUDA build."""
    conda = f'"pytorch{_release(torch, "=") or "=*"}=*cuda*"'
    return install(environment, f'--force-reinstall "torch{_release(torch, "==")}"', conda)


def reinstall(runtime: Runtime, unpublished: str = "") -> str:
    """Install the project's files again.

    `unpublished` is the step to take if the project has no index (pip) or channel (conda); by
    default, to install from the original file or folder if it still exists, else to build.
    """
    project = runtime.project
    published = _published(
        runtime.environment,
        project,
        pip=f'--force-reinstall --no-deps "{project.distribution}=={project.version}"',
        conda=f"--force-reinstall {project.distribution}={project.version}",
    )
    return published or unpublished or _at_hand(runtime.environment) or build(project)


def install_for_platform(runtime: Runtime) -> str:
    """Install the project's binaries for the machine of the runtime."""
    project = runtime.project
    wheel = f"{project.distribution}-{project.version}-py3-none-manylinux_*_{runtime.machine}.whl"
    return reinstall(runtime, unpublished=f"install {wheel}, or: {build(project)}")


def install_once(environment: Environment, project: Project) -> str:
    """Remove every copy of the package, then install it once."""
    name = project.distribution
    published = _published(
        environment,
        project,
        pip=f"--force-reinstall --no-deps {name}",
        conda=f"--force-reinstall {name}",
    )
    by_hand = "install it again from the wheel or the package that you have"
    install_again = published or _at_hand(environment) or by_hand
    remove = f"{environment.python} -m pip uninstall {name}"
    return f"{remove}   (again, until nothing is left), then {install_again}"


def fit_torch(runtime: Runtime, binary: BinaryRecord | None = None) -> str:
    """Get a binary that fits the installed torch: a released one, else a local build. If
    torch is missing or too old, install torch. None as `binary` stands for a binary of the
    project."""
    torch = runtime.torch
    project = runtime.project
    environment = runtime.environment
    if binary is not None and not ours(binary, runtime):
        return rebuild(binary, runtime)
    if torch is None or torch.version_tuple < load(project.folder).torch_min:
        return install_torch(environment, project)
    if environment.kind == "conda" and environment.installer == "pip":
        return install_once(environment, project)  # pip put a wheel over the conda package
    published = None
    glues = load(project.folder).glues(runtime.platform)
    if torch.is_release and any(GlueName.parse(glue).serves(torch) for glue in glues):
        published = _published(
            environment,
            project,
            pip=f"--upgrade --force-reinstall --no-deps {project.distribution}",
            conda=f'{project.distribution} "pytorch={dotted(torch.version_tuple)}"',
        )
    return published or build(project)


def newer_driver(cuda: tuple[int, ...] | None, binary: BinaryRecord, runtime: Runtime) -> str:
    if runtime.l4t:
        return (
            "on a Jetson the driver comes with JetPack: install the JetPack of CUDA "
            f"{dotted(cuda)}, or compile with the CUDA of this one: {compile_here(binary, runtime)}"
        )
    floor = DRIVER_FLOORS.get(cuda[0]) if cuda else None
    least = f" to {floor} or newer" if floor else ""
    return f"update the NVIDIA driver{least} (it must serve CUDA {dotted(cuda)})"


def build_cuda(
    binary: BinaryRecord, runtime: Runtime, capabilities: Iterable[tuple[int, int]]
) -> str:
    """Compile for GPUs of these capabilities; for another package, first suggest a ready build."""
    archs = ";".join(sorted({f"{major}.{minor}" for major, minor in capabilities}))
    compile_for_gpu = f'TORCH_CUDA_ARCH_LIST="{archs}" {compile_here(binary, runtime)}'
    if ours(binary, runtime):
        return compile_for_gpu
    name = binary.owner.name if binary.owner else "its package"
    return (
        f"install a build of {name} that has code for compute capability {archs}, "
        f"or: {compile_for_gpu}"
    )


def compile_here(binary: BinaryRecord, runtime: Runtime) -> str:
    """Compile the package that owns a binary."""
    if ours(binary, runtime):
        return build(runtime.project)
    sources = f":all: PACKAGE, which owns {binary.file}"
    if binary.owner is not None:
        sources = f"{binary.owner.name} {binary.owner.name}=={binary.owner.version}"
    flags = "--force-reinstall --no-deps --no-build-isolation --no-binary"
    return f"{runtime.environment.python} -m pip install {flags} {sources}"


def rebuild(binary: BinaryRecord, runtime: Runtime) -> str:
    """Build the project or, for another package, get or compile it for the installed torch."""
    owner = binary.owner
    version = runtime.torch.version if runtime.torch else "as installed"
    if ours(binary, runtime):
        return build(runtime.project)
    if owner is None:
        return f"reinstall or rebuild the package that owns {binary.file} for torch {version}"
    release = _paired_release(binary, runtime)
    if release and f"{owner.version}.".startswith(f"{release}."):
        return put_back(binary, runtime)  # the release is right, so its files must be damaged
    if release:
        return _paired(owner, release, runtime)
    return (
        f"install a release of {owner.name} that was built for torch {version}, "
        f"or build this one: {compile_here(binary, runtime)}"
    )


def _paired_release(binary: BinaryRecord, runtime: Runtime) -> str:
    """The best release of the binary's package for the installed torch; "" if none is known."""
    if binary.owner is None or runtime.torch is None:
        return ""
    return binary.owner.release_for.get(runtime.torch.version_tuple, "").partition(" ")[0]


def _paired(owner: Owner, release: str, runtime: Runtime) -> str:
    if owner.channel == "conda":
        return f'conda install "{owner.name}={release}"'
    any_patch = ".*" if release.count(".") < 2 else ""
    requirement = f'"{owner.name}=={release}{any_patch}"'
    flags = ""
    is_cpu_torch = runtime.torch is not None and not runtime.torch.cuda
    if is_cpu_torch and owner.name in _PYTORCHS_OWN and runtime.machine == "x86_64":
        flags = f"--force-reinstall --no-deps --index-url {_CPU_INDEX} "
    return f"{runtime.environment.python} -m pip install {flags}{requirement}"


def put_back(binary: BinaryRecord, runtime: Runtime) -> str:
    """Install the files of the binary's package again, for this Python and platform."""
    owner = binary.owner
    if ours(binary, runtime):
        return reinstall(runtime)
    if owner is None:
        return f"reinstall the package that owns {binary.file} with this Python's pip"
    if owner.channel == "conda":
        return f"conda install --force-reinstall {owner.name}={owner.version}"
    requirement = f'"{owner.name}=={owner.version}"'
    flags = "--force-reinstall --no-deps"
    return f"{runtime.environment.python} -m pip install {flags} {requirement}"


def same_cuda(binary: BinaryRecord, runtime: Runtime, major: str) -> str:
    """Make torch and another package use one CUDA: install another build or release of either."""
    torch = runtime.torch
    owner = binary.owner
    name = owner.name if owner else binary.file
    release = _paired_release(binary, runtime)
    if release and torch and owner:
        # `release` normally has the CUDA of this torch.
        is_another = not f"{owner.version}.".startswith(f"{release}.")
        if is_another if torch.cuda else name in _PYTORCHS_OWN:
            return _paired(owner, release, runtime)
    other_torch = f"a torch built for CUDA {major}" if major else "a CUDA build of torch"
    device = torch.device if torch else "the CPU"
    return f"install a build of {name} for {device}, or {other_torch} (each index names its CUDA)"


#: The software that provides system libraries, by the starts of the libraries' names.
_SYSTEM_SOFTWARE: dict[str, tuple[str, ...]] = {
    "FFmpeg": (
        "libavutil",
        "libavcodec",
        "libavformat",
        "libavdevice",
        "libavfilter",
        "libsw",
    ),
    "SoX": ("libsox",),
    "libsndfile": ("libsndfile",),
    "TensorRT": ("libnvinfer",),
    "Ascend's CANN toolkit": ("libascend", "libhccl", "libge_", "libacl", "libprofapi"),
    "Intel's oneAPI runtime": (
        "libsvml",
        "libimf",
        "libirng",
        "libintlc",
        "libsycl",
        "libze_",
    ),
    "ROCm": ("libamdhip", "librocm", "libhip", "libroc", "libMIOpen"),
}


def machine_library(library: str, binary: BinaryRecord, runtime: Runtime) -> str:
    """Install the software that has `library`; for a binary of the project, build the project."""
    if ours(binary, runtime):
        return build(runtime.project)
    providers = (name for name, starts in _SYSTEM_SOFTWARE.items() if library.startswith(starts))
    software = next(providers, None)
    if software == "FFmpeg":
        is_conda = runtime.environment.kind == "conda"
        command = "conda install ffmpeg" if is_conda else "apt-get install ffmpeg, or your system's"
        return f"install FFmpeg of the version that has {library}: {command}"
    if software is not None:
        number = (parse_version(library.partition(".so.")[2]) or (None,))[0]
        version = f" ({library} is version {number} of that library)" if number else ""
        return f"install {software}{version}"
    return f"install your system's package that has {library}, or: {rebuild(binary, runtime)}"
