"""The fixes for torch itself."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from ..project import Project
from ..records import Environment, Fix, Runtime, TorchInstall, dotted, parse_minor
from ..support import load
from ..text import list_names, quoted
from .installers import Conda, Pip, by_conda, by_installer
from .kinds import Kind, command_alone, command_in_words, in_words, other_release

#: PyTorch's own index of each build, such as `cpu` and `cu130`, which are local versions there.
PYTORCH_INDEX = "https://download.pytorch.org/whl/"


#: PyPI's torch is built for CUDA 13 from this minor on, and for CUDA 12 before.
FIRST_WITH_CUDA_13 = (2, 11)
LOCAL_VERSION = r"(cpu|xpu|cu\d{2,4}|rocm\d[\d.]*)"


def install_torch(
    environment: Environment, project: Project, minor: tuple[int, int] | None = None
) -> Fix:
    """Install torch `minor`; by default, a torch no older than the project's `torch_min`."""
    if minor is not None:
        return by_installer(
            environment,
            Kind.INSTALL_TORCH,
            pip=Pip(environment).install(f'"torch=={dotted(minor)}.*"'),
            conda=Conda(environment).install(f'"pytorch={dotted(minor)}"'),
        )
    return torch_within(environment, f">={oldest_torch(project)}")


def torch_within(environment: Environment, specifier: str) -> Fix:
    """Install a torch that a specifier such as `==2.13.0` admits."""
    return by_installer(
        environment,
        Kind.INSTALL_TORCH,
        pip=Pip(environment).install(f'"torch{specifier}"'),
        conda=Conda(environment).install(f'"pytorch{specifier}"'),
    )


def oldest_torch(project: Project) -> str:
    """The oldest torch that serves a project, such as `2.4`."""
    return dotted(load(project.folder).torch_min)


def _public(torch: TorchInstall) -> str:
    """`2.9.1` of torch 2.9.1+cpu."""
    return torch.version.partition("+")[0]


def local_version(torch: TorchInstall | None) -> str:
    """`cpu` or `cu130` if this torch came from PyTorch's index of that build; else "".

    PyPI's torch says `2.9.1+cu128` of itself, but its metadata has no local version.
    """
    if torch is None:
        return ""
    version = torch.version
    for name in list_names(torch.root.parent):
        if name.startswith(f"torch-{_public(torch)}") and name.endswith(".dist-info"):
            version = name.removeprefix("torch-").removesuffix(".dist-info")
    local = version.partition("+")[2]
    return local if re.fullmatch(LOCAL_VERSION, local) else ""


def _of_build(version: str, local: str) -> str:
    """A version in the build of one of PyTorch's indexes, such as `2.9.1+cpu`: other indexes that
    pip's settings add have the same version in another build."""
    return f"{version}+{local}" if local and "+" not in version else version


def index_of(torch: TorchInstall | None) -> str:
    """The option that names PyTorch's index of this torch's build; "" for PyPI."""
    local = local_version(torch)
    return f"--index-url {PYTORCH_INDEX}{local}" if local else ""


def reinstall_torch(environment: Environment, torch: TorchInstall | None) -> Fix:
    """Install all files of this build of torch again, and no other build."""
    if torch is None:
        return in_words("install torch again with the command that installed it")
    if environment.kind != "conda" and not torch.is_release:
        return in_words(f"install torch {torch.version} again from where it came")
    local = local_version(torch)
    exact = _of_build(_public(torch), local)
    return by_installer(
        environment,
        Kind.REINSTALL_TORCH,
        pip=Pip(environment).reinstall(index_of(torch), f'"torch=={exact}"'),
        conda=Conda(environment).reinstall(f"pytorch={_public(torch)}"),
    )


def cuda_torch(environment: Environment, torch: TorchInstall | None) -> Fix:
    """Replace a build of torch without CUDA by a CUDA build."""
    release = f"={_public(torch)}" if torch else "=*"
    if torch is None and environment.kind != "conda":
        return in_words("install a CUDA build of torch")
    return by_installer(
        environment,
        Kind.CUDA_TORCH,
        pip=Pip(environment).install("--force-reinstall", f'"torch={release}"'),
        conda=Conda(environment).install(f'"pytorch{release}=*cuda*"'),
    )


def torch_of_files(runtime: Runtime, name: str, version: str) -> Fix:
    """Install the torch of the newest file that a package has, which opens one by torch's
    version."""
    words = f"install a release of {name} that has a file for this torch"
    words = f"{words}, or the newest torch that it has one for: {{command}}"
    if runtime.environment.kind == "conda":
        return by_conda(Conda(runtime.environment).install(f'"pytorch={version}"'), words)
    local = local_version(runtime.torch)
    is_whole = version.count(".") > 1
    exact = f"=={_of_build(version, local)}" if is_whole else f"=={version}.*"
    command = Pip(runtime.environment).install(index_of(runtime.torch), f'"torch{exact}"')
    return command_in_words(Kind.FIT_TORCH, words, command, (name,))


def torch_of_package(runtime: Runtime, name: str, wanted: str, *, cuda: str = "") -> Fix:
    """Install the torch that a package says it is for, such as `2.9.1` or `>=2.14`; "" if that
    would not do. `cuda` is the major that it asks of torch; "" for any."""
    words = f"install a release of {name} for this torch"
    version = wanted.lstrip("=~<>!")
    sign = wanted[: len(wanted) - len(version)]
    minor = parse_minor(version)
    index, local = index_of(runtime.torch), local_version(runtime.torch)
    if minor and cuda and not (runtime.torch and f"cuda {cuda}" in runtime.torch.device.lower()):
        # PyPI's builds of torch have CUDA.
        of_pypi = "13" if minor >= FIRST_WITH_CUDA_13 else "12"
        if cuda != of_pypi or runtime.machine != "x86_64":
            minor = None
        index = local = ""
    if minor is None or sign == "!=" or runtime.environment.kind == "conda":
        return other_release(f"{words}, or the torch that it is for", name)
    if sign in ("", "=="):
        whole = version.count(".") > 1 and not version.endswith(".*")
        wanted = f"=={_of_build(version, local)}" if whole else f"=={dotted(minor)}.*"
    command = Pip(runtime.environment).install(index, f'"torch{wanted}"')
    words = f"{words}, or the torch that it is for: {{command}}"
    return command_in_words(Kind.FIT_TORCH, words, command, (name,))


def share_torch(libraries: Iterable[str]) -> Fix:
    """Let `import torch` share the symbols of its libraries, with which a file was not linked."""
    return command_in_words(
        Kind.SHARE_TORCH,
        f"link it with {', '.join(libraries)}, as torch.utils.cpp_extension does; until then: "
        "{command}   (import torch then shares its symbols)",
        "export TORCH_USE_RTLD_GLOBAL=1",
    )


def rename_shadow(shadow: Path) -> Fix:
    """Give another name to the file or the folder that Python imports instead of torch."""
    renamed = shadow.with_name(f"my_{shadow.name}")
    return command_alone(Kind.RENAME_SHADOW, f"mv {quoted(shadow)} {quoted(renamed)}")
