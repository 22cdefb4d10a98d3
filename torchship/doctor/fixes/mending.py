"""The fixes that the reasons need, for a distribution as a whole."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path

from ...judge import fixes
from ...judge.fixes.installers import Conda, Pip
from ...judge.reading.binary import read_binary, unread
from ...judge.reading.named_torch import Minor
from ...judge.records import Fix, Runtime, dotted
from ...judge.text import is_file, printable, quoted, some
from ..environment.built_for import paired_releases
from ..environment.catalog import Catalog, Requirement, catalog_of
from ..environment.installed import Distribution
from ..environment.owner import distributions, find_owner
from ..environment.standards import Need, admits, combine, normal, parse_need


def reinstall(package: Distribution, runtime: Runtime) -> Fix:
    """Install the files of a distribution again."""
    if normal(package.name) == "torch":
        return fixes.reinstall_torch(runtime.environment, runtime.torch)
    owned = distributions(runtime.target, package.site).get(package.place, [])
    if owned:
        there = next((file for file in owned if is_file(file)), owned[0])
        binary = read_binary(there, light=True) if is_file(there) else unread(there)
        owner = find_owner(runtime.target, there)
        return fixes.fix_for(fixes.Wrong.FILES, binary._replace(owner=owner), runtime)
    if "+" in package.version or runtime.environment.kind == "conda":
        words = f"install {package.name} {package.version} again from where it came"
        return fixes.in_words(words)
    exact = f'"{package.name}=={package.version}"'
    command = Pip(runtime.environment).reinstall(exact)
    return fixes.command_alone(fixes.Kind.REINSTALL_PACKAGE, command)


def meet(requirement: Requirement, runtime: Runtime) -> Fix:
    """Install what a distribution requires. The requirement names a version that is not here."""
    return install(runtime, requirement.text)


def install(runtime: Runtime, *wanted: str) -> Fix:
    """Install what these requirements ask for, within what the installed distributions require of
    the same; in words if no version is both."""
    catalog = catalog_of(runtime)
    texts: list[str] = []
    for text in wanted:
        need = parse_need(text)
        if need is None or "@" in text:
            texts.append(text)
            continue
        others = [*catalog.specifiers_on(need.name)]
        together = _together(catalog, need, others)
        if together is None:
            return _at_odds(need, others)
        is_same = combine([need.specifier]) == together
        texts.append(text if is_same else need.within(together))
    return fixes.install_requirements(runtime.environment, *texts)


def _together(
    catalog: Catalog, need: Need, others: Sequence[tuple[Distribution, str]]
) -> str | None:
    """The specifier of a requirement and of those that others have on the same; None if no version
    is within all. Of what is not so here anyway, nothing is broken."""
    asked = [need.specifier]
    together = combine([*asked, *(specifier for _, specifier in others)])
    here = catalog.named(need.name)
    if together is None and here is not None:
        kept = [specifier for _, specifier in others if admits(specifier, here.version)]
        together = combine([*asked, *kept])
    return together


def _at_odds(need: Need, others: Sequence[tuple[Distribution, str]]) -> Fix:
    """No version of a distribution is what all ask for."""
    clashing = [one for one in others if combine([need.specifier, one[1]]) is None] or others
    asking = [f"{one.name} {one.version} requires {need.within(text)}" for one, text in clashing]
    words = f"no {need.name} is {need.text}, which is needed here, and what others ask for"
    return fixes.advice(
        f"{words}: {some(asking, 2)}. Install another release of one of them",
        *dict.fromkeys(one.name for one, _ in clashing),
    )


def install_torch(runtime: Runtime, built_for: Collection[Minor] = ()) -> Fix:
    """Install the torch that the installed distributions require, of the minor that their objects
    were built for; in words if no torch is all of that."""
    asking = [(one, text) for one, text in catalog_of(runtime).specifiers_on("torch") if text]
    together = combine(text for _, text in asking)
    minors = [f"=={dotted(minor)}.*" for minor in sorted(built_for)]
    if together is None or combine([together, *minors]) is None:
        words = [f"{one.name} {one.version} requires torch{text}" for one, text in asking]
        words += [f"objects were built for torch {dotted(minor)}" for minor in sorted(built_for)]
        return fixes.in_words(
            f"install the torch of one of these, and releases of the others for it: {some(words)}"
        )
    if minors and not re.search(r"==[\d.]+$", together):
        return fixes.install_torch(runtime.environment, runtime.project, min(built_for))
    oldest = f">={fixes.oldest_torch(runtime.project)}"
    return fixes.torch_within(runtime.environment, combine([together, oldest]) or together)


def fit_package(package: Distribution, runtime: Runtime) -> Fix:
    """Get a release of a package that goes with the torch that is here."""
    torch = runtime.torch
    version = torch.version if torch else "this torch"
    words = f"install a release of {package.name} for torch {version}"
    release = _paired_release(package.name, runtime)
    if not release or f"{package.version}.".startswith(f"{release}."):
        return fixes.other_release(f"{words}, or the torch that it is for", package.name)
    if runtime.environment.kind == "conda":
        # In words: the releases are PyPI's, and which of them a channel has, only its index tells.
        return fixes.in_words(f"{words}: {release}")
    name = normal(package.name)
    wanted = fixes.wanted_of_pair(name, release, paired_releases(name), runtime)
    index = fixes.index_of_pair(name, runtime)
    command = Pip(runtime.environment).reinstall(index, f'"{package.name}=={wanted}"')
    return fixes.command_alone(fixes.Kind.INSTALL_RELEASE, command)


def install_package(name: str, runtime: Runtime) -> str:
    """The command that installs a package that is not here, in a release for this torch; "" if none
    is known for it, or if others require another one."""
    release = _paired_release(name, runtime)
    exactly = f"=={fixes.wanted_of_pair(name, release, paired_releases(name), runtime)}"
    asked = (specifier for _, specifier in catalog_of(runtime).specifiers_on(name))
    if not release or combine([exactly, *asked]) is None:
        return ""
    if runtime.environment.kind == "conda":
        return Conda(runtime.environment).install(f'"{name}={release}"')
    exact = f'"{name}{exactly}"'
    return Pip(runtime.environment).install(fixes.index_of_pair(name, runtime), exact)


def _paired_release(name: str, runtime: Runtime) -> str:
    """The best release of a package for the torch that is here; "" if none is known."""
    torch = runtime.torch
    return paired_releases(name).get(torch.version_tuple, "").partition(" ")[0] if torch else ""


def replace_leftover(folder: Path, runtime: Runtime) -> Fix:
    """Remove the folder of a package that was removed, and install the package."""
    name = normal(folder.name)
    install_it = install_package(name, runtime)
    if name == "torch" and runtime.torch is None:
        install_it = install_torch(runtime).command
    words = "{command}" if install_it else f"{{command}}   (then install {folder.name} again)"
    return fixes.remove_leftover(folder, words, install_it)


def names_in_variable(folder: Path) -> bool:
    """Whether PYTHONPATH names a folder."""
    return any(_is_same(entry, folder) for entry in _entries_of_variable())


def leave_out(folder: Path) -> Fix:
    """Take a folder out of what brings it onto the path of Python."""
    if not names_in_variable(folder):
        words = f"take {printable(str(folder))} out of PYTHONPATH and of the .pth files"
        return fixes.in_words(words)
    kept = [entry for entry in _entries_of_variable() if not _is_same(entry, folder)]
    if not kept:
        return fixes.unset("PYTHONPATH")
    return fixes.set_variable("PYTHONPATH", quoted(os.pathsep.join(kept)))


def _entries_of_variable() -> list[str]:
    return [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]


def _is_same(entry: str, folder: Path) -> bool:
    return os.path.realpath(entry) == os.path.realpath(folder)


def move_away(path: Path) -> Fix:
    """Give another name to a file or a folder that hides a module."""
    return fixes.rename_shadow(path)
