"""Reason: a module that is imported is not there, or not in the release that is here."""

from __future__ import annotations

import os
import re
import sys
from difflib import get_close_matches
from pathlib import Path

from ...judge import fixes
from ...judge.records import Finding, dotted
from ...judge.text import is_file, list_names, quoted
from ...judge.words import codes
from ..checks.packages import get_its_binaries
from ..environment.catalog import Requirement
from ..environment.elsewhere import environment_with
from ..environment.installed import Distribution
from ..environment.metadata import wheel_tags
from ..environment.standards import Python, admits, fits_python, normal, parse_need
from ..fixes.mending import fit_package, install, install_torch, meet, reinstall
from .case import Case
from .damaged import file_is_gone

#: Modules that a distribution no longer has, and what it was when it did.
_FORMERLY = {"pkg_resources": ("setuptools", "<82")}
#: Within quotes: without them, nobody tells where the command ends.
_ASKS_TO_INSTALL = re.compile(
    r"(?P<quote>[`'\"])(?:python3? -m )?pip3? install (?:-U |--upgrade )?"
    r"(?P<names>[A-Za-z][\w.-]*(?:\[[\w,-]+\])?(?: [A-Za-z][\w.-]*(?:\[[\w,-]+\])?){0,5})(?P=quote)"
)
_NO_MODULE = re.compile(r"No module named '?([\w.]{1,300})'?")
#: The distributions of modules that are named otherwise, where no metadata says so.
_DISTRIBUTION_OF = {
    "PIL": "pillow",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "google": "protobuf",
    "pkg_resources": "setuptools",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}


def module_is_missing(case: Case) -> Finding | None:
    for error in case.errors:
        match = _NO_MODULE.search(error.message) if "Error" in error.type else None
        if match is None:
            continue
        module = match[1]
        top = module.partition(".")[0]
        if top in sys.stdlib_module_names | case.runtime.target.library():
            return _of_library(case, module)
        owner = case.catalog.of_module(top)
        asking = case.raiser
        is_asked = not error.frames and f"{case.seen.what}.".startswith(f"{module}.")
        if owner is not None and "." in module and is_asked:
            return of_itself(case, owner, module) or _not_in_release(case, owner, module)
        if module in _FORMERLY and (finding := _removed(case, asking, module)):
            return finding
        if owner is not None and asking is not None and normal(owner.name) == normal(asking.name):
            return of_itself(case, owner, module)
        if owner is None:
            return _not_installed(case, asking, module)
        if "." in module:
            return other_release(case, asking, owner, f"has no {module}")
        return None
    return None


def package_asks_for_others(case: Case) -> Finding | None:
    """The package looks for others itself, and names the command that installs them."""
    package = case.raiser
    for error in case.errors:
        match = _ASKS_TO_INSTALL.search(error.message)
        if match is None or package is None:
            continue
        words = match["names"].split()
        needs = [need for need in map(parse_need, words) if need is not None]
        lacking = [need for need in needs if case.catalog.named(need.name) is None]
        if not lacking or lacking != needs or any(need.name == "torch" for need in needs):
            continue
        return case.finding(
            codes.REQUIREMENT_NOT_MET,
            f"{package.name} {package.version} looks for {', '.join(words)}, which is not "
            "installed, and asks to install it",
            observed="not installed",
            needed=", ".join(words),
            fix=install(case.runtime, *words),
        )
    return None


def _of_library(case: Case, module: str) -> Finding:
    """A module of the standard library that this Python was built or installed without."""
    home = os.environ.get("PYTHONHOME", "")
    if home:
        return case.finding(
            codes.MODULE_MISSING,
            f"PYTHONHOME makes this Python take the files of {home}, which lack {module}",
            observed=f"PYTHONHOME={home}",
            needed=module,
            fix=fixes.unset("PYTHONHOME"),
        )
    version = dotted(case.runtime.python[:2])
    of_version = case.runtime.target.library()
    if of_version and module.partition(".")[0] not in of_version:
        return case.finding(
            codes.MODULE_MISSING,
            f"Python {version} has no module {module}: the code is for another Python",
            needed=module,
            fix=fixes.in_words(
                f"use a Python that has {module}, or a release of the package for Python {version}",
            ),
        )
    return case.finding(
        codes.MODULE_MISSING,
        f"this build of Python {version} was installed without its module {module}",
        needed=module,
        fix=fixes.python_with(module, case.runtime.target),
    )


def of_itself(case: Case, owner: Distribution, module: str) -> Finding | None:
    """A module of the package itself: for another Python, or not among its files."""
    stem = module.rpartition(".")[2]
    folder = _folder_of(case, owner, module)
    others = [name for name in list_names(folder) if name.startswith(f"{stem}.")]
    natives = [name for name in others if name.endswith((".so", ".pyd", ".dylib"))]
    if natives:
        return case.finding(
            codes.OTHER_PYTHON,
            f"{natives[0]} of {owner.name} {owner.version} is not for Python "
            f"{dotted(case.runtime.python[:2])}",
            observed=natives[0],
            needed=case.runtime.python_tag.rstrip("-"),
            fix=reinstall(owner, case.runtime),
        )
    tags = wheel_tags(case.runtime.target, owner.place)
    if tags and not any(fits_python(tag, Python.of(case.runtime)) for tag in tags):
        return case.finding(
            codes.PACKAGE_OF_ANOTHER_PYTHON,
            f"the wheel of {owner.name} is for {tags[0]}, not for Python "
            f"{dotted(case.runtime.python[:2])}",
            fix=reinstall(owner, case.runtime),
        )
    if others or not stem.startswith("_"):
        return None
    return case.finding(
        codes.WITHOUT_ITS_OPS,
        f"{owner.name} {owner.version} was installed without its binary {module}",
        needed=module,
        fix=get_its_binaries(owner, case.runtime),
    )


def _not_in_release(case: Case, owner: Distribution, module: str) -> Finding:
    """A module that the user imports by its name, and that this release of its package lacks."""
    parts = {name.partition(".")[0] for name in list_names(_folder_of(case, owner, module))}
    near = get_close_matches(module.rpartition(".")[2], sorted(parts - {"__init__"}), n=1)
    beside = f" (it has {module.rpartition('.')[0]}.{near[0]})" if near else ""
    return case.finding(
        codes.MODULE_MISSING,
        f"{owner.name} {owner.version} has no module {module}{beside}: what imports it was written "
        "for another release",
        observed=f"{owner.name} {owner.version}",
        needed=module,
        fix=fixes.other_release(
            f"import it by its name in {owner.name} {owner.version}, or install a release that has "
            "it",
            owner.name,
        ),
    )


def _no_torch(case: Case) -> Finding | None:
    if case.runtime.torch is not None or case.runtime.torch_shadow:
        return None
    return case.finding(
        codes.TORCH_MISSING,
        "torch is not installed",
        observed="not installed",
        needed="an installed torch",
        fix=install_torch(case.runtime),
    )


def _folder_of(case: Case, owner: Distribution, module: str) -> Path:
    """The folder in which a module of a package is sought: that of an editable is its sources'."""
    packages = module.split(".")[:-1]
    inside = owner.site.joinpath(*packages)
    if not packages or is_file(inside / "__init__.py"):
        return inside
    files = (Path(frame.file) for frame in case.frames())
    folders = (folder for file in files for folder in file.parents)
    return next((f for f in folders if [*f.parts[-len(packages) :]] == packages), inside)


def _not_installed(case: Case, asking: Distribution | None, module: str) -> Finding | None:
    """A module of a distribution that is not installed."""
    top = module.partition(".")[0]
    if top == "torch":
        return _no_torch(case)
    requirement = _requirement_of(case, asking, top) or _requirement_of(case, case.subject, top)
    if requirement is not None:
        who = asking or case.subject
        name = case.name_of(who)
        return case.finding(
            codes.REQUIREMENT_NOT_MET,
            f"{name} requires {requirement.text}, which is not installed",
            observed="not installed",
            needed=requirement.text,
            fix=meet(requirement, case.runtime),
        )
    optional = _left_out(case, asking or case.subject, top)
    if optional is not None:
        return optional
    owner = case.catalog.named(_DISTRIBUTION_OF.get(top, ""))
    if owner is not None:
        files = case.catalog.files(owner)
        gone = next((one.path for one in files if re.split(r"[/.]", one.name)[0] == top), None)
        if gone is not None:
            return file_is_gone(case, owner, gone)
        return other_release(case, asking, owner, f"has no {top}")
    if asking is not None and _is_binary_of(asking, top):
        return case.finding(
            codes.WITHOUT_ITS_OPS,
            f"{asking.name} {asking.version} was installed without its binary {top}",
            needed=top,
            fix=get_its_binaries(asking, case.runtime),
        )
    # One without torch, such as the system's, is not the one that is meant.
    other = environment_with(case.runtime.target, top, "torch")
    if other is not None:
        return case.finding(
            codes.MODULE_MISSING,
            f"the module {top} is installed in {other.prefix}, and this is the Python of "
            f"{case.runtime.target.prefix}",
            needed=top,
            fix=fixes.set_variable("PATH", f'{quoted(other.bin)}:"$PATH"'),
        )
    return case.finding(
        codes.MODULE_MISSING,
        f"the module {top} is not installed, and no metadata says what has it",
        needed=top,
        fix=fixes.in_words(
            f"install what has the module {top}, as the documentation of "
            f"{asking.name if asking else case.seen.what} says",
        ),
    )


def _removed(case: Case, asking: Distribution | None, module: str) -> Finding | None:
    """A module that its distribution had in former releases."""
    name, wanted = _FORMERLY[module]
    owner = case.catalog.named(name)
    if owner is not None and admits(wanted, owner.version):
        return None
    here = f"{owner.name} {owner.version} no longer has it" if owner else f"{name} is not installed"
    return case.finding(
        codes.REQUIREMENT_NOT_MET,
        f"{asking.name if asking else case.seen.what} imports {module}: {here}",
        observed=f"{owner.name} {owner.version}" if owner else "not installed",
        needed=f"{name}{wanted}",
        fix=install(case.runtime, f"{name}{wanted}"),
    )


def _is_binary_of(package: Distribution, top: str) -> bool:
    """Whether a top-level module is named as the binaries of a package are: `flash_attn_2_cuda`
    of flash-attn."""
    stem = normal(package.name).replace("-", "_")
    is_native = re.search(r"(?:^_|_)(cuda|cpp|C|ext|kernels?|hip|cpu)(?:$|_|\d)", top) is not None
    return is_native and (top.startswith(stem[:5]) or top.strip("_").startswith(stem[:5]))


def _requirement_of(case: Case, package: Distribution | None, top: str) -> Requirement | None:
    if package is None:
        return None
    names = {normal(top), normal(_DISTRIBUTION_OF.get(top, top))}
    found = (one for one in case.catalog.requirements(package) if one.name in names)
    return next((one for one in found if one.installed is None), None)


def _left_out(case: Case, package: Distribution | None, top: str) -> Finding | None:
    """What a package requires with an extra, or on another Python, and imports all the same."""
    names = {normal(top), normal(_DISTRIBUTION_OF.get(top, top))}
    for need in map(parse_need, package.core.needs if package is not None else ()):
        if package is None or need is None or need.name not in names or not need.condition:
            continue
        return case.finding(
            codes.REQUIREMENT_NOT_MET,
            f"{package.name} {package.version} imports {top}, and requires it only where "
            f"{need.condition}; it is not installed",
            observed="not installed",
            needed=need.text,
            fix=install(case.runtime, need.text),
        )
    return None


def other_release(
    case: Case, asking: Distribution | None, owner: Distribution, what: str
) -> Finding | None:
    """A distribution that is here in another release than the package was written for."""
    here = f"{owner.name} {owner.version} {what}"
    requirement = case.catalog.requirement_on(asking, owner.name)
    if requirement is None:
        asking_too = case.subject
        requirement = case.catalog.requirement_on(asking_too, owner.name)
        asking = asking_too if requirement is not None else asking
    if asking is None or normal(asking.name) == normal(owner.name):
        return None
    name = f"{asking.name} {asking.version}"
    if normal(owner.name) == "torch" and case.seen.what != "torch":
        return _for_another_torch(case, asking, requirement, here)
    if requirement is not None and requirement.is_met is False:
        return case.finding(
            codes.REQUIREMENT_NOT_MET,
            f"{here}; {name} requires {requirement.text}",
            observed=f"{owner.name} {owner.version}",
            needed=requirement.text,
            fix=meet(requirement, case.runtime),
        )
    allowed = f", though its requirement {requirement.text} allows this one" if requirement else ""
    return case.finding(
        codes.REQUIREMENT_NOT_MET,
        f"{here}: {name} was written for another release of it{allowed}",
        observed=f"{owner.name} {owner.version}",
        needed=f"a release of {owner.name} that {asking.name} was written for",
        fix=fixes.advice(
            f"install another release of {owner.name}, or a newer one of {asking.name}",
            asking.name,
            owner.name,
        ),
    )


def _for_another_torch(
    case: Case, asking: Distribution, requirement: Requirement | None, here: str
) -> Finding:
    asks = f"; it requires {requirement.text}" if requirement is not None else ""
    return case.finding(
        codes.WRITTEN_FOR_ANOTHER_TORCH,
        f"{here}: {asking.name} {asking.version} was written for another torch{asks}",
        needed=requirement.text if requirement else f"the torch that {asking.name} is for",
        fix=fit_package(asking, case.runtime),
    )
