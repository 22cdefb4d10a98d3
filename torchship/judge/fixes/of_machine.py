"""The fixes for the machine: its variables, driver, GPUs, Python and libraries."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ..records import BinaryRecord, Environment, Fix, Runtime, dotted, parse_version
from ..text import printable, quoted
from . import system_packages
from .installers import Conda, by_conda
from .kinds import Kind, command_alone, command_in_words, in_words
from .of_project import build
from .table import Wrong, fix_for

if TYPE_CHECKING:
    from ..target import Target


def unset(variable: str) -> Fix:
    return command_alone(Kind.UNSET_VARIABLE, f"unset {variable}")


def set_variable(variable: str, value: str) -> Fix:
    """Give a variable of the environment a value, in the shell that starts Python."""
    return command_alone(Kind.SET_VARIABLE, f"export {variable}={value}")


def allow_execution(mount: Path) -> Fix:
    """Mount a file system so that its files may be executed; only root may do that."""
    return command_in_words(
        Kind.ALLOW_EXECUTION,
        "as root: {command}   (or move the files to another file system)",
        f"mount -o remount,exec {quoted(mount)}",
    )


def newer_driver(
    cuda: tuple[int, ...] | None, floor: str | None, binary: BinaryRecord, runtime: Runtime
) -> Fix:
    """Get a driver that serves this CUDA: `floor` or newer, if that is known."""
    if runtime.l4t:
        compilation = fix_for(Wrong.MACHINE, binary, runtime)
        return in_words(
            "on a Jetson the driver comes with JetPack: install the JetPack of CUDA "
            f"{dotted(cuda)}, or compile with the CUDA of this one: {compilation}",
        )
    least = f" to {floor} or newer" if floor else ""
    return in_words(f"update the NVIDIA driver{least} (it must serve CUDA {dotted(cuda)})")


def install_driver() -> Fix:
    return in_words(
        "install the NVIDIA driver; on a machine without an NVIDIA GPU this cannot be used",
    )


def build_cuda(
    binary: BinaryRecord, runtime: Runtime, capabilities: Iterable[tuple[int, int]]
) -> Fix:
    """Compile for GPUs of these capabilities; for another package, first suggest a ready build."""
    archs = ";".join(sorted({f"{major}.{minor}" for major, minor in capabilities}))
    compilation = fix_for(Wrong.MACHINE, binary, runtime)
    command = f'TORCH_CUDA_ARCH_LIST="{archs}" {compilation.command}'
    if runtime.is_ours(binary):
        return command_alone(Kind.BUILD_FOR_GPU, command)
    name = binary.owner.name if binary.owner else "its package"
    words = f"install a build of {name} that has code for compute capability {archs}"
    if not compilation.command:
        return in_words(words)
    return command_in_words(Kind.BUILD_FOR_GPU, f"{words}, or: {{command}}", command)


def python_with(module: str, target: Target) -> Fix:
    """Get a module of the standard library that the target was installed without."""
    base = target.base_prefix
    other = f"create the environment with another Python that has {module}"
    package = system_packages.part_of_python(module, base=base, executable=target.executable())
    if package:
        words = f"install the system's package, as root: {{command}}   (or {other})"
        return by_apt(package, words)
    return in_words(
        f"{other}, or build the one in {printable(base)} again, beside the headers of the library "
        f"that {module} needs",
    )


def by_apt(package: str, words: str) -> Fix:
    """Install a package of Debian or Ubuntu, whose lists may be empty, as in containers."""
    command = f"apt-get update && apt-get install -y {package}"
    return command_in_words(Kind.INSTALL_BY_APT, words, command)


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
    "TensorRT": ("libnvinfer", "libnvonnxparser"),
    "curl": ("libcurl",),
    "CUPS": ("libcups",),
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


def machine_library(library: str, binary: BinaryRecord, runtime: Runtime) -> Fix:
    """Install the software that has `library`; for a binary of the project, build the project."""
    if runtime.is_ours(binary):
        return build(runtime.project)
    providers = (name for name, starts in _SYSTEM_SOFTWARE.items() if library.startswith(starts))
    software = next(providers, None)
    if software == "FFmpeg":
        return _ffmpeg(library, binary, runtime.environment)
    package = system_packages.apt_package_of(library)
    if package and runtime.environment.kind != "conda":
        return by_apt(
            package, f"install the system's package, as root: {{command}}   (it has {library})"
        )
    another = fix_for(Wrong.BUILD, binary, runtime)
    if software is not None:
        number = (parse_version(library.partition(".so.")[2]) or (None,))[0]
        version = f" ({library} is version {number} of that library)" if number else ""
        return in_words(f"install {software}{version}")
    return in_words(
        f"install your system's package that has {library}, or: {another}",
    )


def _ffmpeg(library: str, binary: BinaryRecord, environment: Environment) -> Fix:
    """Install the FFmpeg that has a library, or another one for which the package has a file."""
    version = system_packages.ffmpeg_of(library)
    is_in_conda = environment.kind == "conda"
    if version is not None and is_in_conda:
        return by_conda(Conda(environment).install("-c conda-forge", f'"ffmpeg={version}"'))
    of_apt = system_packages.ffmpeg_of_apt()
    variant = re.sub(r"\d+(?=\.so$)", str(of_apt), binary.path.name)
    has_variant = binary.owner is not None and variant in binary.owner.libraries
    if of_apt is not None and (version == of_apt or (version is not None and has_variant)):
        return by_apt("ffmpeg", f"install FFmpeg {of_apt}, as root: {{command}}")
    source = "conda" if is_in_conda else "your system"
    return in_words(
        f"install FFmpeg of the version that has {library}, from {source} (package ffmpeg)",
    )


def newer_libstdcxx(binary: BinaryRecord, runtime: Runtime) -> Fix:
    if runtime.environment.kind == "conda":
        return by_conda(Conda(runtime.environment).install("-c conda-forge libstdcxx-ng"))
    return fix_for(Wrong.MACHINE, binary, runtime)
