"""The fixes that the reasons need, for a distribution as a whole."""

from __future__ import annotations

from pathlib import Path

from ...judge import fixes
from ...judge.fixes.installers import Pip
from ...judge.reading.binary import read_binary
from ...judge.records import Fix, Runtime
from ...judge.text import is_file
from ..environment.built_for import paired_releases
from ..environment.catalog import Requirement
from ..environment.installed import Distribution
from ..environment.owner import distributions, find_owner
from ..environment.standards import normal


def reinstall(package: Distribution, runtime: Runtime) -> Fix:
    """Install the files of a distribution again."""
    if normal(package.name) == "torch":
        return fixes.reinstall_torch(runtime.environment, runtime.torch)
    owned = distributions(runtime.target, package.site).get(package.place, [])
    there = next((file for file in owned if is_file(file)), None)
    if there is not None:
        owner = find_owner(runtime.target, there)
        return fixes.fix_for(
            fixes.Wrong.FILES, read_binary(there, light=True)._replace(owner=owner), runtime
        )
    if "+" in package.version or runtime.environment.kind == "conda":
        words = f"install {package.name} {package.version} again from where it came"
        return fixes.in_words(words)
    exact = f'"{package.name}=={package.version}"'
    command = Pip(runtime.environment).reinstall(exact)
    return fixes.command_alone(fixes.Kind.REINSTALL_PACKAGE, command)


def meet(requirement: Requirement, runtime: Runtime) -> Fix:
    """Install what a distribution requires. The requirement names a version that is not here."""
    return fixes.install_requirements(runtime.environment, requirement.text)


def fit_package(package: Distribution, runtime: Runtime) -> Fix:
    """Get a release of a package that goes with the torch that is here."""
    torch = runtime.torch
    version = torch.version if torch else "this torch"
    words = f"install a release of {package.name} for torch {version}"
    pairs = paired_releases(package.name)
    release = pairs.get(torch.version_tuple, "").partition(" ")[0] if torch else ""
    if not release or f"{package.version}.".startswith(f"{release}."):
        return fixes.other_release(f"{words}, or the torch that it is for", package.name)
    wanted = f"{release}.*" if release.count(".") < 2 else release
    if runtime.environment.kind == "conda":
        # In words: the releases are PyPI's, and which of them a channel has, only its index tells.
        return fixes.in_words(f"{words}: {release}")
    command = Pip(runtime.environment).reinstall(f'"{package.name}=={wanted}"')
    return fixes.command_alone(fixes.Kind.INSTALL_RELEASE, command)


def move_away(path: Path) -> Fix:
    """Give another name to a file or a folder that hides a module."""
    return fixes.rename_shadow(path)
