"""The cure that mends a fault in this environment (pip or conda), each of a kind in `cures.py`.

A docstring such as "Install torch" says what the returned cure does. If a function takes
a binary of another package, the cure builds or installs that package where it would
otherwise build or install the project. The functions read `support.json` and
`symbols.json`; `open_path` looks at the folders above a path, and the cures for torch at the
name of its metadata.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ..project import Project
from ..reading.layouts import LAYOUTS, minors_with
from ..records import (
    BinaryRecord,
    Environment,
    GlueName,
    Owner,
    Runtime,
    TorchInstall,
    dotted,
    parse_minor,
    parse_version,
)
from ..support import load
from ..text import list_names, printable
from . import cures
from .cures import Cure, command_alone, command_in_words, in_words, quoted
from .installers import Conda, Pip

if TYPE_CHECKING:
    from ..target import Target

_PYPI = "https://pypi.org/simple"
#: PyTorch's own index of each build, such as `cpu` and `cu130`, which are local versions there.
_PYTORCH_INDEX = "https://download.pytorch.org/whl/"
_LOCAL_VERSION = r"(cpu|xpu|cu\d{2,4}|rocm\d[\d.]*)"
#: What PyTorch's index of a build has besides torch.
_PYTORCHS_OWN = ("torch", "torchvision", "torchaudio", "torchcodec")
#: PyPI's torch is built for CUDA 13 from this minor on, and for CUDA 12 before.
_FIRST_WITH_CUDA_13 = (2, 11)
_CUDA_RUNTIME = r"libcudart\.so\.(\d+)"
#: The oldest driver that serves each CUDA major (NVIDIA's minor-version compatibility).
DRIVER_FLOORS = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}


def _by(environment: Environment, kind: cures.Kind, *, pip: str, conda: str) -> Cure:
    """The command of the environment's installer. `kind` is that of pip's."""
    return _by_conda(conda) if environment.kind == "conda" else command_alone(kind, pip)


def _by_conda(command: str, words: str = "{command}") -> Cure:
    """A command of conda's, in the words of the cure."""
    is_again = " --force-reinstall " in command
    kind = cures.REINSTALL_BY_CONDA if is_again else cures.INSTALL_BY_CONDA
    return command_in_words(kind, words, command)


def _where_published(environment: Environment, project: Project) -> str | None:
    """The option that names the project's channel (conda) or index (pip); "" for PyPI, and None if
    the project has none."""
    facts = load(project.folder)
    if environment.kind == "conda":
        return f"-c {facts.channel}" if facts.channel else None
    if not facts.index:
        return None
    return f"--index-url {facts.index}" if facts.index != _PYPI else ""


def _at_hand(environment: Environment) -> Cure | None:
    """Install again from the package's original file or folder; None if unknown or gone."""
    if environment.source is None:
        return None
    source = quoted(environment.source)
    isolation = "" if environment.source.endswith(".whl") else "--no-build-isolation"
    return _by(
        environment,
        cures.INSTALL_PROJECT,
        pip=Pip(environment).reinstall(isolation, source),
        conda=Conda(environment).reinstall(source),
    )


def build(project: Project) -> Cure:
    """Compile the project for the installed torch."""
    return command_alone(cures.BUILD_PROJECT, f"{project.command} build")


def install_here(project: Project) -> Cure:
    """Install the project from the source folder that is the current one."""
    return command_in_words(
        cures.BUILD_PROJECT,
        f"{{command}}   (or: {build(project)})",
        "python -m pip install . --no-build-isolation",
    )


def without_binaries(project: Project) -> Cure:
    module, _, name = project.definition.rpartition(".")
    if not module:
        return in_words(cures.BY_HAND, "use another machine")
    code = f'{project.variable("LOAD")}=0 python -c "from {module} import {name}"'
    return command_in_words(
        cures.USE_DEFINITION, "use the plain PyTorch definition: {command}", code
    )


def unset(variable: str) -> Cure:
    return command_alone(cures.UNSET_VARIABLE, f"unset {variable}")


def install_torch(
    environment: Environment, project: Project, minor: tuple[int, int] | None = None
) -> Cure:
    """Install torch `minor`; by default, a torch no older than the project's `torch_min`."""
    if minor is not None:
        return _by(
            environment,
            cures.INSTALL_TORCH,
            pip=Pip(environment).install(f'"torch=={dotted(minor)}.*"'),
            conda=Conda(environment).install(f'"pytorch={dotted(minor)}"'),
        )
    oldest = dotted(load(project.folder).torch_min)
    return _by(
        environment,
        cures.INSTALL_TORCH,
        pip=Pip(environment).install(f'"torch>={oldest}"'),
        conda=Conda(environment).install(f'"pytorch>={oldest}"'),
    )


def _public(torch: TorchInstall) -> str:
    """`2.9.1` of torch 2.9.1+cpu."""
    return torch.version.partition("+")[0]


def _local_version(torch: TorchInstall | None) -> str:
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
    return local if re.fullmatch(_LOCAL_VERSION, local) else ""


def _index_of(torch: TorchInstall | None) -> str:
    """The option that names PyTorch's index of this torch's build; "" for PyPI."""
    local = _local_version(torch)
    return f"--index-url {_PYTORCH_INDEX}{local}" if local else ""


def reinstall_torch(environment: Environment, torch: TorchInstall | None) -> Cure:
    """Install all files of this build of torch again, and no other build."""
    if torch is None:
        return in_words(cures.BY_HAND, "install torch again with the command that installed it")
    if environment.kind != "conda" and not torch.is_release:
        return in_words(cures.BY_HAND, f"install torch {torch.version} again from where it came")
    local = _local_version(torch)
    exact = f"{_public(torch)}+{local}" if local else _public(torch)
    return _by(
        environment,
        cures.REINSTALL_TORCH,
        pip=Pip(environment).reinstall(_index_of(torch), f'"torch=={exact}"'),
        conda=Conda(environment).reinstall(f"pytorch={_public(torch)}"),
    )


def cuda_torch(environment: Environment, torch: TorchInstall | None) -> Cure:
    """Replace a build of torch without CUDA by a CUDA build."""
    release = f"={_public(torch)}" if torch else "=*"
    if torch is None and environment.kind != "conda":
        return in_words(cures.BY_HAND, "install a CUDA build of torch")
    return _by(
        environment,
        cures.CUDA_TORCH,
        pip=Pip(environment).install("--force-reinstall", f'"torch={release}"'),
        conda=Conda(environment).install(f'"pytorch{release}=*cuda*"'),
    )


def reinstall(runtime: Runtime, unpublished: Cure | None = None) -> Cure:
    """Install the project's files again.

    `unpublished` is the step to take if the project has no index (pip) or channel (conda); by
    default, to install from the original file or folder if it still exists, else to build.
    """
    project = runtime.project
    published = _published(runtime.environment, project, exact=project.version)
    return published or unpublished or _at_hand(runtime.environment) or build(project)


def _published(environment: Environment, project: Project, exact: str = "") -> Cure | None:
    """Install the project's files again, of this version or of any, from where it is published;
    None if it is not."""
    where = _where_published(environment, project)
    if where is None:
        return None
    name = project.distribution
    return _by(
        environment,
        cures.INSTALL_PROJECT,
        pip=Pip(environment).reinstall(where, f'"{name}=={exact}"' if exact else name),
        conda=Conda(environment).reinstall(f"{name}={exact}" if exact else name, where),
    )


def install_for_platform(runtime: Runtime) -> Cure:
    """Install the project's binaries for the machine of the runtime."""
    project = runtime.project
    wheel = f"{project.wheel_name}-{project.version}-py3-none-manylinux_*_{runtime.machine}.whl"
    compile_it = build(project)
    by_hand = command_in_words(
        cures.BUILD_PROJECT, f"install {wheel}, or: {{command}}", compile_it.command
    )
    return reinstall(runtime, unpublished=by_hand)


def install_once(environment: Environment, project: Project) -> Cure:
    """Remove every copy of the package, then install it once."""
    by_hand = in_words(
        cures.BY_HAND, "install it again from the wheel or the package that you have"
    )
    install_again = _published(environment, project) or _at_hand(environment) or by_hand
    return command_in_words(
        cures.INSTALL_ONCE,
        f"{{command}}   (again, until nothing is left), then {install_again}",
        Pip(environment).remove(project.distribution),
    )


def remove_copy(environment: Environment, project: Project, library: str) -> Cure:
    """Remove one of two copies of the project; `library` is an object of the other copy."""
    words = f"{{command}}   (the other copy: {library}); then restart Python"
    if environment.kind == "conda":
        by_conda = Conda(environment).remove(project.distribution)
        return command_in_words(cures.REMOVE_BY_CONDA, words, by_conda)
    by_pip = Pip(environment).remove(project.distribution)
    return command_in_words(cures.REMOVE_COPY, words, by_pip)


def fit_torch(runtime: Runtime, binary: BinaryRecord | None = None) -> Cure:
    """Get a binary that fits the installed torch: a released one, else a local build. If
    torch is missing or too old, install torch. None as `binary` stands for a binary of the
    project."""
    torch = runtime.torch
    project = runtime.project
    environment = runtime.environment
    if binary is not None and not runtime.is_ours(binary):
        return rebuild(binary, runtime)
    if torch is None or torch.version_tuple < load(project.folder).torch_min:
        return install_torch(environment, project)
    if environment.kind == "conda" and environment.installer == "pip":
        return install_once(environment, project)  # pip put a wheel over the conda package
    glues = load(project.folder).glues(runtime.platform)
    is_served = torch.is_release and any(GlueName.parse(glue).serves(torch) for glue in glues)
    where = _where_published(environment, project) if is_served else None
    if where is None:
        return build(project)
    name = project.distribution
    return _by(
        environment,
        cures.INSTALL_PROJECT,
        pip=Pip(environment).reinstall("--upgrade", where, name),
        conda=Conda(environment).install(name, f'"pytorch={dotted(torch.version_tuple)}"', where),
    )


def torch_of_files(runtime: Runtime, name: str, version: str) -> Cure:
    """Install the torch of the newest file that a package has, which opens one by torch's
    version."""
    words = f"install a release of {name} that has a file for this torch"
    words = f"{words}, or the newest torch that it has one for: {{command}}"
    if runtime.environment.kind == "conda":
        return _by_conda(Conda(runtime.environment).install(f'"pytorch={version}"'), words)
    exact = f"=={version}" if version.count(".") > 1 else f"=={version}.*"
    command = Pip(runtime.environment).install(_index_of(runtime.torch), f'"torch{exact}"')
    return command_in_words(cures.FIT_TORCH, words, command, (name,))


def torch_of_package(runtime: Runtime, name: str, wanted: str, *, cuda: str = "") -> Cure:
    """Install the torch that a package says it is for, such as `2.9.1` or `>=2.14`; "" if that
    would not do. `cuda` is the major that it asks of torch; "" for any."""
    words = f"install a release of {name} for this torch"
    version = wanted.lstrip("=~<>!")
    sign = wanted[: len(wanted) - len(version)]
    minor = parse_minor(version)
    index = _index_of(runtime.torch)
    if minor and cuda and not (runtime.torch and f"cuda {cuda}" in runtime.torch.device.lower()):
        # PyPI's builds of torch have CUDA.
        of_pypi = "13" if minor >= _FIRST_WITH_CUDA_13 else "12"
        if cuda != of_pypi or runtime.machine != "x86_64":
            minor = None
        index = ""
    if minor is None or sign == "!=" or runtime.environment.kind == "conda":
        return cures.other_release(f"{words}, or the torch that it is for", name)
    if sign in ("", "=="):
        whole = version.count(".") > 1 and not version.endswith(".*")
        wanted = f"=={version}" if whole else f"=={dotted(minor)}.*"
    command = Pip(runtime.environment).install(index, f'"torch{wanted}"')
    words = f"{words}, or the torch that it is for: {{command}}"
    return command_in_words(cures.FIT_TORCH, words, command, (name,))


def set_variable(variable: str, value: str) -> Cure:
    """Give a variable of the environment a value, in the shell that starts Python."""
    return command_alone(cures.SET_VARIABLE, f"export {variable}={value}")


def share_torch(libraries: Iterable[str]) -> Cure:
    """Let `import torch` share the symbols of its libraries, with which a file was not linked."""
    return command_in_words(
        cures.SHARE_TORCH,
        f"link it with {', '.join(libraries)}, as torch.utils.cpp_extension does; until then: "
        "{command}   (import torch then shares its symbols)",
        "export TORCH_USE_RTLD_GLOBAL=1",
    )


def allow_execution(mount: Path) -> Cure:
    """Mount a file system so that its files may be executed; only root may do that."""
    return command_in_words(
        cures.ALLOW_EXECUTION,
        "as root: {command}   (or move the files to another file system)",
        f"mount -o remount,exec {quoted(mount)}",
    )


def rename_shadow(shadow: Path) -> Cure:
    """Give another name to the file or the folder that Python imports instead of torch."""
    renamed = shadow.with_name(f"my_{shadow.name}")
    return command_alone(cures.RENAME_SHADOW, f"mv {quoted(shadow)} {quoted(renamed)}")


def newer_driver(cuda: tuple[int, ...] | None, binary: BinaryRecord, runtime: Runtime) -> Cure:
    if runtime.l4t:
        compilation = compile_here(binary, runtime)
        return in_words(
            cures.DRIVER,
            "on a Jetson the driver comes with JetPack: install the JetPack of CUDA "
            f"{dotted(cuda)}, or compile with the CUDA of this one: {compilation}",
        )
    floor = DRIVER_FLOORS.get(cuda[0]) if cuda else None
    least = f" to {floor} or newer" if floor else ""
    return in_words(
        cures.DRIVER, f"update the NVIDIA driver{least} (it must serve CUDA {dotted(cuda)})"
    )


def install_driver() -> Cure:
    return in_words(
        cures.DRIVER,
        "install the NVIDIA driver; on a machine without an NVIDIA GPU this cannot be used",
    )


def build_cuda(
    binary: BinaryRecord, runtime: Runtime, capabilities: Iterable[tuple[int, int]]
) -> Cure:
    """Compile for GPUs of these capabilities; for another package, first suggest a ready build."""
    archs = ";".join(sorted({f"{major}.{minor}" for major, minor in capabilities}))
    compilation = compile_here(binary, runtime)
    command = f'TORCH_CUDA_ARCH_LIST="{archs}" {compilation.command}'
    if runtime.is_ours(binary):
        return command_alone(cures.BUILD_FOR_GPU, command)
    name = binary.owner.name if binary.owner else "its package"
    words = f"install a build of {name} that has code for compute capability {archs}"
    if not compilation.command:
        return in_words(cures.OTHER_BUILD, words)
    return command_in_words(cures.BUILD_FOR_GPU, f"{words}, or: {{command}}", command)


def compile_here(binary: BinaryRecord, runtime: Runtime) -> Cure:
    """Compile the package that owns a binary, if its sources are published or here."""
    if runtime.is_ours(binary):
        return build(runtime.project)
    owner = binary.owner
    if owner is None:
        return in_words(
            cures.OTHER_RELEASE, f"build the package that owns {binary.file} from its sources here"
        )
    if owner.source:
        command = Pip(runtime.environment).compile(quoted(owner.source))
        return command_alone(cures.COMPILE_PACKAGE, command)
    if owner.has_sdist and "+" not in owner.version:
        command = compile_sdist(owner.name, owner.version, runtime.environment)
        return command_alone(cures.COMPILE_PACKAGE, command)
    return in_words(
        cures.OTHER_RELEASE, f"build {owner.name} {owner.version} from its sources here"
    )


def compile_sdist(name: str, version: str, environment: Environment) -> str:
    """The command that compiles a release whose sources are on PyPI."""
    return Pip(environment).compile(f"--no-binary {name} {name}=={version}")


def rebuild(binary: BinaryRecord, runtime: Runtime) -> Cure:
    """Get a binary that fits the installed torch, or a torch that fits the binary."""
    owner = binary.owner
    version = runtime.torch.version if runtime.torch else "as installed"
    if runtime.is_ours(binary):
        return build(runtime.project)
    cache = compiled_at_run_time(binary.path)
    if cache is not None:
        return remove_folder(cache)
    if owner is None:
        return in_words(
            cures.OTHER_RELEASE,
            f"reinstall or rebuild the package that owns {binary.file} for torch {version}",
        )
    release = _paired_release(binary, runtime)
    if release and f"{owner.version}.".startswith(f"{release}."):
        return put_back(binary, runtime)  # the release is right, so its files must be damaged
    if release:
        return _paired(owner, release, runtime)
    compilation = compile_here(binary, runtime)
    if compilation.command:
        words = f"install a release of {owner.name} that was built for torch {version}"
        return command_in_words(
            cures.COMPILE_PACKAGE, f"{words}, or build this one: {{command}}", compilation.command
        )
    return _torch_of(binary, runtime) or cures.other_release(
        f"install a release of {owner.name} that was built for torch {version}, or {compilation}",
        owner.name,
    )


def _torch_of(binary: BinaryRecord, runtime: Runtime, *, from_pypi: bool = False) -> Cure | None:
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
    index = "" if from_pypi else _index_of(torch)
    if not index and environment.kind != "conda":
        minors = {minor for minor in minors if _has_cuda_of(binary, minor)}
    if not minors or torch.version_tuple in minors:
        return None
    minor = dotted(max(minors))
    words = f"install a release of {owner.name} that was built for torch {torch.version}"
    words = f"{words}, or the torch that it was built for: {{command}}"
    if environment.kind == "conda":
        return _by_conda(Conda(environment).install(f'"pytorch={minor}"'), words)
    command = Pip(environment).install(index, f'"torch=={minor}.*"')
    return command_in_words(cures.FIT_TORCH, words, command, (owner.name,))


def _has_cuda_of(binary: BinaryRecord, minor: tuple[int, int]) -> bool:
    """Whether PyPI's torch of a minor is built for the CUDA major that a binary needs."""
    majors = {match[1] for name in binary.needed if (match := _CUDA_RUNTIME.match(name))}
    return not majors or majors == {"13" if minor >= _FIRST_WITH_CUDA_13 else "12"}


def _paired_release(binary: BinaryRecord, runtime: Runtime) -> str:
    """The best release of the binary's package for the installed torch; "" if none is known."""
    if binary.owner is None or runtime.torch is None:
        return ""
    return binary.owner.release_for.get(runtime.torch.version_tuple, "").partition(" ")[0]


def _paired(owner: Owner, release: str, runtime: Runtime) -> Cure:
    """Install a release of a package for the installed torch, and leave that torch as it is."""
    if owner.channel == "conda":
        return _by_conda(Conda(runtime.environment).install(f'"{owner.name}={release}"'))
    wanted = f"{release}.*" if release.count(".") < 2 else release
    index = ""
    if local := _local_version_of_pair(owner, runtime):
        index = f"--index-url {_PYTORCH_INDEX}{local}"
        installed = owner.version.partition("+")[0]
        is_release = re.fullmatch(r"\d+(\.\d+)+", installed) is not None
        is_of_x86 = runtime.machine == "x86_64"  # Arm's builds have had no local version
        if is_release and is_of_x86 and f"{installed}.".startswith(f"{release}."):
            # It is the right release, built for another device. With an index that pip's
            # settings add, any other build of the release would count as this one.
            wanted = f"{installed}+{local}"
    command = Pip(runtime.environment).reinstall(index, f'"{owner.name}=={wanted}"')
    return command_alone(cures.INSTALL_RELEASE, command)


def _local_version_of_pair(owner: Owner, runtime: Runtime) -> str:
    """The local version of the build of PyTorch's own package for this torch, such as `cpu`; ""
    for a build on PyPI, and for other packages."""
    if owner.name not in _PYTORCHS_OWN or runtime.torch is None:
        return ""
    local = _local_version(runtime.torch)
    if not local and runtime.torch.device == "the CPU" and runtime.machine == "x86_64":
        return "cpu"  # PyPI's builds of these packages for x86-64 can need CUDA
    return local


def put_back(binary: BinaryRecord, runtime: Runtime) -> Cure:
    """Install the files of the binary's package again, for this Python and platform."""
    owner = binary.owner
    if runtime.is_ours(binary):
        return reinstall(runtime)
    cache = compiled_at_run_time(binary.path)
    if cache is not None:
        return remove_folder(cache)
    if owner is None:
        return in_words(
            cures.OTHER_RELEASE, f"reinstall the package that owns {binary.file}, for this Python"
        )
    if owner.channel == "conda":
        exact = f"{owner.name}={owner.version}"
        return _by_conda(Conda(runtime.environment).reinstall(exact))
    if owner.source:
        return compile_here(binary, runtime)
    version, _, local = owner.version.partition("+")
    index = ""
    if local and owner.name in _PYTORCHS_OWN and re.fullmatch(_LOCAL_VERSION, local):
        index = f"--index-url {_PYTORCH_INDEX}{local}"
    elif local:
        return in_words(
            cures.OTHER_RELEASE, f"install {owner.name} {owner.version} again from where it came"
        )
    requirement = f'"{owner.name}=={owner.version if index else version}"'
    command = Pip(runtime.environment).reinstall(index, requirement)
    return command_alone(cures.REINSTALL_PACKAGE, command)


def install_requirements(environment: Environment, *requirements: str) -> Cure:
    """Install what a package needs, such as `numpy` or `einops>=0.7`."""
    is_name = re.compile(r"[\w.-]+")
    arguments = " ".join(r if is_name.fullmatch(r) else quoted(r) for r in requirements)
    return _by(
        environment,
        cures.INSTALL_REQUIREMENT,
        pip=Pip(environment).install(arguments),
        conda=Conda(environment).install(arguments),
    )


def python_with(module: str, target: Target) -> Cure:
    """Get a module of the standard library that the target was installed without."""
    from . import system_packages  # an import of the package does not need them

    base = target.base_prefix
    other = f"create the environment with another Python that has {module}"
    package = system_packages.part_of_python(module, base=base, executable=target.executable())
    if package:
        words = f"install the system's package, as root: {{command}}   (or {other})"
        return by_apt(package, words)
    return in_words(
        cures.OTHER_PYTHON,
        f"{other}, or build the one in {printable(base)} again, beside the headers of the library "
        f"that {module} needs",
    )


def by_apt(package: str, words: str) -> Cure:
    """Install a package of Debian or Ubuntu, whose lists may be empty, as in containers."""
    command = f"apt-get update && apt-get install -y {package}"
    return command_in_words(cures.INSTALL_BY_APT, words, command)


def open_path(path: Path) -> Cure:
    """Let this user read a file: open the first folder above it that is closed, else the file."""
    for folder in (*reversed(path.absolute().parents),):
        if not os.access(folder, os.X_OK):
            return command_alone(cures.OPEN_FILE, f"chmod a+rx {quoted(folder)}")
    mode = "a+rx" if _is_folder(path) else "a+r"
    return command_alone(cures.OPEN_FILE, f"chmod {mode} {quoted(path)}")


def _is_folder(path: Path) -> bool:
    with suppress(OSError):
        return path.is_dir()
    return False


def compiled_at_run_time(path: Path) -> Path | None:
    """The folder of one build in the cache of torch's or Triton's compiler; None elsewhere."""
    parts = path.parts
    for index, part in enumerate(parts[:-1]):
        inner = len(parts) - 1 - index
        if part == "torch_extensions" and inner > 2:  # then `py311_cu130`, and the name
            return Path(*parts[: index + 3])
        if part == ".triton" and parts[index + 1] == "cache" and inner > 3:
            return Path(*parts[: index + 3])
    variable = os.environ.get("TORCH_EXTENSIONS_DIR")
    if variable and Path(variable) in path.parents and path.parent != Path(variable):
        return Path(variable, path.relative_to(variable).parts[0])
    return None


def remove_folder(folder: Path) -> Cure:
    """Remove what a compiler has cached in a folder: its next use compiles again."""
    return command_in_words(
        cures.REMOVE_CACHE,
        "{command}   (its next use compiles it for this torch)",
        f"rm -r {quoted(folder)}",
    )


def remove_file(path: Path) -> Cure:
    """Remove a file that is left over, and hides the right one."""
    return command_alone(cures.REMOVE_FILE, f"rm {quoted(path)}")


def remove_lock(lock: Path) -> Cure:
    """Remove the lock of a build that is dead."""
    return command_alone(cures.REMOVE_LOCK, f"rm {quoted(lock)}")


def same_cuda(binary: BinaryRecord, runtime: Runtime, major: str) -> Cure:
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
    if owner and owner.built_for and runtime.machine == "x86_64":
        is_cpu_torch = torch is not None and not torch.cuda
        fitting = _torch_of(binary, runtime, from_pypi=is_cpu_torch)
        if fitting is not None:
            return fitting
    other_torch = f"a torch built for CUDA {major}" if major else "a CUDA build of torch"
    device = torch.device if torch else "the CPU"
    return in_words(
        cures.OTHER_BUILD,
        f"install a build of {name} for {device}, or {other_torch} (each index names its CUDA)",
    )


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


def machine_library(library: str, binary: BinaryRecord, runtime: Runtime) -> Cure:
    """Install the software that has `library`; for a binary of the project, build the project."""
    from . import system_packages  # an import of the package does not need it

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
    if software is not None:
        number = (parse_version(library.partition(".so.")[2]) or (None,))[0]
        version = f" ({library} is version {number} of that library)" if number else ""
        return in_words(cures.SYSTEM_LIBRARY, f"install {software}{version}")
    return in_words(
        cures.SYSTEM_LIBRARY,
        f"install your system's package that has {library}, or: {rebuild(binary, runtime)}",
    )


def _ffmpeg(library: str, binary: BinaryRecord, environment: Environment) -> Cure:
    """Install the FFmpeg that has a library, or another one for which the package has a file."""
    from . import system_packages  # an import of the package does not need it

    version = system_packages.ffmpeg_of(library)
    is_in_conda = environment.kind == "conda"
    if version is not None and is_in_conda:
        return _by_conda(Conda(environment).install("-c conda-forge", f'"ffmpeg={version}"'))
    of_apt = system_packages.ffmpeg_of_apt()
    variant = re.sub(r"\d+(?=\.so$)", str(of_apt), binary.path.name)
    has_variant = binary.owner is not None and variant in binary.owner.libraries
    if of_apt is not None and (version == of_apt or (version is not None and has_variant)):
        return by_apt("ffmpeg", f"install FFmpeg {of_apt}, as root: {{command}}")
    source = "conda" if is_in_conda else "your system"
    return in_words(
        cures.SYSTEM_LIBRARY,
        f"install FFmpeg of the version that has {library}, from {source} (package ffmpeg)",
    )


def newer_libstdcxx(binary: BinaryRecord, runtime: Runtime) -> Cure:
    if runtime.environment.kind == "conda":
        return _by_conda(Conda(runtime.environment).install("-c conda-forge libstdcxx-ng"))
    return compile_here(binary, runtime)
