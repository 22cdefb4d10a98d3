"""The fixes for the project whose package was imported, and for its files."""

from __future__ import annotations

from ..project import Project
from ..records import Environment, Fix, GlueName, Runtime, dotted
from ..support import load
from ..text import quoted
from .installers import Conda, Pip, by_installer
from .kinds import Kind, command_alone, command_in_words, in_words
from .of_torch import install_torch

_PYPI = "https://pypi.org/simple"


def _where_published(environment: Environment, project: Project) -> str | None:
    """The option that names the project's channel (conda) or index (pip); "" for PyPI, and None if
    the project has none."""
    facts = load(project.folder)
    if environment.kind == "conda":
        return f"-c {facts.channel}" if facts.channel else None
    if not facts.index:
        return None
    return f"--index-url {facts.index}" if facts.index != _PYPI else ""


def _at_hand(environment: Environment) -> Fix | None:
    """Install again from the package's original file or folder; None if unknown or gone."""
    if environment.source is None:
        return None
    source = quoted(environment.source)
    isolation = "" if environment.source.endswith(".whl") else "--no-build-isolation"
    return by_installer(
        environment,
        Kind.INSTALL_PROJECT,
        pip=Pip(environment).reinstall(isolation, source),
        conda=Conda(environment).reinstall(source),
    )


def build(project: Project) -> Fix:
    """Compile the project for the installed torch."""
    return command_alone(Kind.BUILD_PROJECT, f"{project.command} build")


def install_here(runtime: Runtime) -> Fix:
    """Install the project from the source folder that is the current one."""
    return command_in_words(
        Kind.BUILD_PROJECT,
        f"{{command}}   (or: {build(runtime.project)})",
        Pip(runtime.environment).install(". --no-build-isolation"),
    )


def without_binaries(project: Project) -> Fix:
    module, _, name = project.definition.rpartition(".")
    if not module:
        return in_words("use another machine")
    code = f'{project.variable("LOAD")}=0 python -c "from {module} import {name}"'
    return command_in_words(
        Kind.USE_DEFINITION, "use the plain PyTorch definition: {command}", code
    )


def reinstall(runtime: Runtime, unpublished: Fix | None = None) -> Fix:
    """Install the project's files again.

    `unpublished` is the step to take if the project has no index (pip) or channel (conda); by
    default, to install from the original file or folder if it still exists, else to build.
    """
    project = runtime.project
    published = _published(runtime.environment, project, exact=project.version)
    return published or unpublished or _at_hand(runtime.environment) or build(project)


def _published(environment: Environment, project: Project, exact: str = "") -> Fix | None:
    """Install the project's files again, of this version or of any, from where it is published;
    None if it is not."""
    where = _where_published(environment, project)
    if where is None:
        return None
    name = project.distribution
    return by_installer(
        environment,
        Kind.INSTALL_PROJECT,
        pip=Pip(environment).reinstall(where, f'"{name}=={exact}"' if exact else name),
        conda=Conda(environment).reinstall(f"{name}={exact}" if exact else name, where),
    )


def install_for_platform(runtime: Runtime) -> Fix:
    """Install the project's binaries for the machine of the runtime."""
    project = runtime.project
    wheel = f"{project.wheel_name}-{project.version}-py3-none-manylinux_*_{runtime.machine}.whl"
    compile_it = build(project)
    by_hand = command_in_words(
        Kind.BUILD_PROJECT, f"install {wheel}, or: {{command}}", compile_it.command
    )
    return reinstall(runtime, unpublished=by_hand)


def install_once(environment: Environment, project: Project) -> Fix:
    """Remove every copy of the package, then install it once."""
    by_hand = in_words("install it again from the wheel or the package that you have")
    install_again = _published(environment, project) or _at_hand(environment) or by_hand
    return command_in_words(
        Kind.INSTALL_ONCE,
        f"{{command}}   (again, until nothing is left), then {install_again}",
        Pip(environment).remove(project.distribution),
    )


def remove_copy(environment: Environment, project: Project, library: str) -> Fix:
    """Remove one of two copies of the project; `library` is an object of the other copy."""
    words = f"{{command}}   (the other copy: {library}); then restart Python"
    if environment.kind == "conda":
        by_conda = Conda(environment).remove(project.distribution)
        return command_in_words(Kind.REMOVE_BY_CONDA, words, by_conda)
    by_pip = Pip(environment).remove(project.distribution)
    return command_in_words(Kind.REMOVE_COPY, words, by_pip)


def fit_torch(runtime: Runtime) -> Fix:
    """Get binaries that fit the installed torch: released ones, else a local build. If torch is
    missing or too old, install torch."""
    torch = runtime.torch
    project = runtime.project
    environment = runtime.environment
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
    return by_installer(
        environment,
        Kind.INSTALL_PROJECT,
        pip=Pip(environment).reinstall("--upgrade", where, name),
        conda=Conda(environment).install(name, f'"pytorch={dotted(torch.version_tuple)}"', where),
    )
