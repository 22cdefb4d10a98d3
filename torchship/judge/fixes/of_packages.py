"""The fixes for the packages of others, and for those that a package requires."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..reading.layouts import LAYOUTS, minors_with
from ..records import BinaryRecord, Environment, Fix, Owner, Runtime, dotted
from ..text import quoted
from .installers import Conda, Pip, by_conda, by_installer
from .kinds import Kind, command_alone, command_in_words, in_words, other_release
from .of_torch import FIRST_WITH_CUDA_13, LOCAL_VERSION, PYTORCH_INDEX, index_of, local_version

#: What PyTorch's index of a build has besides torch.
PYTORCHS_OWN = ("torch", "torchvision", "torchaudio", "torchcodec")

#: Those of them of which each release has the patch number of the torch that it is for.
_OF_ONE_PATCH = ("torchvision", "torchaudio")
_CUDA_RUNTIME = r"libcudart\.so\.(\d+)"


def compile_here(binary: BinaryRecord, runtime: Runtime) -> Fix:
    """Compile the package that owns a binary, if its sources are published or here."""
    owner = binary.owner
    if owner is None:
        return in_words(f"build the package that owns {binary.file} from its sources here")
    if owner.source:
        command = Pip(runtime.environment).compile(quoted(owner.source))
        return command_alone(Kind.COMPILE_PACKAGE, command)
    if owner.has_sdist and "+" not in owner.version:
        command = compile_sdist(owner.name, owner.version, runtime.environment)
        return command_alone(Kind.COMPILE_PACKAGE, command)
    return in_words(f"build {owner.name} {owner.version} from its sources here")


def compile_sdist(name: str, version: str, environment: Environment) -> str:
    """The command that compiles a release whose sources are on PyPI."""
    return Pip(environment).compile(f"--no-binary {name} {name}=={version}")


def fit_package(binary: BinaryRecord, runtime: Runtime) -> Fix:
    """Get a binary that fits the installed torch, or a torch that fits the binary."""
    owner = binary.owner
    version = runtime.torch.version if runtime.torch else "as installed"
    if owner is None:
        return in_words(
            f"reinstall or rebuild the package that owns {binary.file} for torch {version}",
        )
    release = _paired_release(binary, runtime)
    if release and f"{owner.version}.".startswith(f"{release}."):
        return install_again(binary, runtime)  # the release is right, so its files must be damaged
    if release:
        return _paired(owner, release, runtime)
    compilation = compile_here(binary, runtime)
    if compilation.command:
        words = f"install a release of {owner.name} that was built for torch {version}"
        return command_in_words(
            Kind.COMPILE_PACKAGE, f"{words}, or build this one: {{command}}", compilation.command
        )
    return _torch_of(binary, runtime) or other_release(
        f"install a release of {owner.name} that was built for torch {version}, or {compilation}",
        owner.name,
    )


def _torch_of(binary: BinaryRecord, runtime: Runtime, *, from_pypi: bool = False) -> Fix | None:
    """Install the torch that the package names, or that has all the file's symbols; None if
    neither tells one, or if it is the torch that is here.

    It comes from where the installed torch came from, or from PyPI, whose builds have CUDA.
    """
    torch = runtime.torch
    owner = binary.owner
    environment = runtime.environment
    if torch is None or owner is None:
        return None
    oldest = min(LAYOUTS)
    fitting = minors_with(binary.torch_symbols)
    minors = {
        minor for minor, _ in owner.built_for if not fitting or minor in fitting or minor < oldest
    }
    if not minors:
        minors = {minor for minor, _ in binary.of_siblings} or {*fitting}
        if oldest in minors:
            return None  # it may be older than all measured minors
    index = "" if from_pypi else index_of(torch)
    if not index and environment.kind != "conda":
        minors = {minor for minor in minors if _has_cuda_of(binary, minor)}
    if not minors or torch.version_tuple in minors:
        return None
    minor = dotted(max(minors))
    words = f"install a release of {owner.name} that was built for torch {torch.version}"
    words = f"{words}, or the torch that it was built for: {{command}}"
    if environment.kind == "conda":
        return by_conda(Conda(environment).install(f'"pytorch={minor}"'), words)
    command = Pip(environment).install(index, f'"torch=={minor}.*"')
    return command_in_words(Kind.FIT_TORCH, words, command, (owner.name,))


def _has_cuda_of(binary: BinaryRecord, minor: tuple[int, int]) -> bool:
    """Whether PyPI's torch of a minor is built for the CUDA major that a binary needs."""
    majors = {match[1] for name in binary.needed if (match := re.match(_CUDA_RUNTIME, name))}
    return not majors or majors == {"13" if minor >= FIRST_WITH_CUDA_13 else "12"}


def _paired_release(binary: BinaryRecord, runtime: Runtime) -> str:
    """The best release of the binary's package for the installed torch; "" if none is known."""
    if binary.owner is None or runtime.torch is None:
        return ""
    return binary.owner.release_for.get(runtime.torch.version_tuple, "").partition(" ")[0]


def _is_paired(owner: Owner, runtime: Runtime) -> bool:
    """Whether a package is here in a release for the installed torch, not in a build between."""
    minor = runtime.torch.version_tuple if runtime.torch else (0, 0)
    releases = owner.release_for.get(minor, "").split()
    version = owner.version.partition("+")[0]
    is_release = re.fullmatch(r"\d+(\.\d+)+(\.post\d+)?", version) is not None
    return is_release and any(f"{version}.".startswith(f"{release}.") for release in releases)


def _paired(owner: Owner, release: str, runtime: Runtime) -> Fix:
    """Install a release of a package for the installed torch, and leave that torch as it is."""
    if owner.channel == "conda":
        return by_conda(Conda(runtime.environment).install(f'"{owner.name}={release}"'))
    wanted = wanted_of_pair(owner.name, release, owner.release_for, runtime)
    index = index_of_pair(owner.name, runtime)
    local = local_of_pair(owner.name, runtime)
    installed = owner.version.partition("+")[0]
    is_release = re.fullmatch(r"\d+(\.\d+)+", installed) is not None
    is_of_x86 = runtime.machine == "x86_64"  # Arm's builds have had no local version
    if local and is_release and is_of_x86 and f"{installed}.".startswith(f"{release}."):
        wanted = f"{installed}+{local}"  # the right release, built for another device
    command = Pip(runtime.environment).reinstall(index, f'"{owner.name}=={wanted}"')
    return command_alone(Kind.INSTALL_RELEASE, command)


def wanted_of_pair(
    name: str, release: str, releases: Mapping[tuple[int, int], str], runtime: Runtime
) -> str:
    """`0.28.0+cpu` for the release `0.28` of a build of PyTorch's index, and else `0.28.*`.

    With an index that pip's settings add, any build of the release would count as the one of
    PyTorch's index, if its local version were not named. `releases` are those of each minor.
    """
    local = local_of_pair(name, runtime)
    patch = re.match(r"\d+\.\d+\.(\d+)(\+|$)", runtime.torch.version if runtime.torch else "")
    is_for_one_minor = [*releases.values()].count(release) == 1
    is_known = name in _OF_ONE_PATCH and is_for_one_minor and release.count(".") == 1
    if local and patch and is_known and runtime.machine == "x86_64":
        return f"{release}.{patch[1]}+{local}"
    return any_patch_of(release)


def any_patch_of(release: str) -> str:
    """`0.28.*` for `0.28`, and a release of three numbers as it is."""
    return f"{release}.*" if release.count(".") < 2 else release


def local_of_pair(name: str, runtime: Runtime) -> str:
    """The local version of the build of PyTorch's own package for this torch, such as `cpu`; ""
    for a build on PyPI, and for other packages."""
    if name not in PYTORCHS_OWN or runtime.torch is None:
        return ""
    local = local_version(runtime.torch)
    if not local and runtime.torch.device == "the CPU" and runtime.machine == "x86_64":
        return "cpu"  # PyPI's builds of these packages for x86-64 can need CUDA
    return local


def index_of_pair(name: str, runtime: Runtime) -> str:
    """The option that names PyTorch's index of the build of its own package; "" for PyPI."""
    local = local_of_pair(name, runtime)
    return f"--index-url {PYTORCH_INDEX}{local}" if local else ""


def install_again(binary: BinaryRecord, runtime: Runtime) -> Fix:
    """Install the files of the binary's package again, for this Python, platform and torch."""
    owner = binary.owner
    if owner is None:
        return in_words(f"reinstall the package that owns {binary.file}, for this Python")
    if owner.channel == "conda":
        exact = f"{owner.name}={owner.version}"
        return by_conda(Conda(runtime.environment).reinstall(exact))
    if owner.source:
        return compile_here(binary, runtime)
    release = _paired_release(binary, runtime)
    if release and not _is_paired(owner, runtime):
        return _paired(owner, release, runtime)  # the one that is here would still not fit
    version, _, local = owner.version.partition("+")
    index = ""
    if of_torch := local_of_pair(owner.name, runtime):
        # The build that was here may have been for another device than this torch is.
        index = f"--index-url {PYTORCH_INDEX}{of_torch}"
        is_of_x86 = runtime.machine == "x86_64"  # Arm's builds have had no local version
        version = f"{version}+{of_torch}" if is_of_x86 else version
    elif local and owner.name in PYTORCHS_OWN and re.fullmatch(LOCAL_VERSION, local):
        index = f"--index-url {PYTORCH_INDEX}{local}"
        version = owner.version
    elif local:
        return in_words(f"install {owner.name} {owner.version} again from where it came")
    command = Pip(runtime.environment).reinstall(index, f'"{owner.name}=={version}"')
    return command_alone(Kind.REINSTALL_PACKAGE, command)


def install_requirements(environment: Environment, *requirements: str) -> Fix:
    """Install what a package needs, such as `numpy` or `einops>=0.7`."""
    is_name = re.compile(r"[\w.-]+")
    arguments = " ".join(r if is_name.fullmatch(r) else quoted(r) for r in requirements)
    return by_installer(
        environment,
        Kind.INSTALL_REQUIREMENT,
        pip=Pip(environment).install(arguments),
        conda=Conda(environment).install(arguments),
    )


def same_cuda(binary: BinaryRecord, runtime: Runtime, major: str) -> Fix:
    """Make torch and another package use one CUDA: install another build or release of either."""
    torch = runtime.torch
    owner = binary.owner
    name = owner.name if owner else binary.file
    release = _paired_release(binary, runtime)
    if release and torch and owner:
        # `release` normally has the CUDA of this torch.
        is_another = not f"{owner.version}.".startswith(f"{release}.")
        if is_another if torch.cuda else name in PYTORCHS_OWN:
            return _paired(owner, release, runtime)
    if owner and owner.built_for and runtime.machine == "x86_64":
        is_cpu_torch = torch is not None and not torch.cuda
        fitting = _torch_of(binary, runtime, from_pypi=is_cpu_torch)
        if fitting is not None:
            return fitting
    other_torch = f"a torch built for CUDA {major}" if major else "a CUDA build of torch"
    device = torch.device if torch else "the CPU"
    return in_words(
        f"install a build of {name} for {device}, or {other_torch} (each index names its CUDA)",
    )
