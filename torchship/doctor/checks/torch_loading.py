"""Would `import torch` load torch's own libraries, and if not, why?

torch is judged like any extension, and before all of them: where `import torch` fails, no
extension works.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path

from ...judge import fixes
from ...judge.budget import BudgetSpentError
from ...judge.fixes.installers import Pip
from ...judge.linking import after_torch
from ...judge.linking.process import Opening
from ...judge.linking.search import Settings, settings_here
from ...judge.machine.torch_probe import dist_info
from ...judge.reading.binary import read_binary
from ...judge.records import (
    NOTE,
    NOWHERE,
    OK,
    REJECTED,
    BinaryRecord,
    Environment,
    Finding,
    Fix,
    Runtime,
    TorchInstall,
    Verdict,
)
from ...judge.target import Target, once
from ...judge.text import is_file, printable, some
from ...judge.words import codes, faults
from ..environment.metadata import listed_files
from .torch_wheels import WheelFault, absent_wheel, faults_of_wheels

_MODULE_OF_TORCH = re.compile(r"torch/_C\.[^/]{1,200}\.so")
_NEEDED = "a torch that can be imported"
#: This Python is the first that PYTHONSAFEPATH keeps from importing out of the working folder.
_FIRST_WITH_SAFE_PATH = (3, 11)


def judge_torch(runtime: Runtime) -> Verdict | None:
    """The verdict on the installed torch itself; None if there is none to judge."""
    torch = runtime.torch
    if torch is None or torch.root == NOWHERE:
        return None
    path = next(iter(after_torch.modules_of_torch(torch.root)), torch.lib_dir / "libtorch_cpu.so")
    binary = read_binary(path)
    hidden = _hidden_here(torch, runtime)
    problems = (hidden,) if hidden else tuple(_problems(binary, torch, runtime))
    if problems:
        return Verdict(binary, problems)
    findings = (check_import(runtime), _check_wheels(torch, runtime))
    return Verdict(binary, tuple(finding for finding in findings if finding is not None))


def _hidden_here(torch: TorchInstall, runtime: Runtime) -> Finding | None:
    """Does a file or a folder named torch in the working folder hide the installed torch?

    Python looks there first for a script of this folder, for `-c` and for `-m`.
    """
    if os.environ.get("PYTHONSAFEPATH") and runtime.python[:2] >= _FIRST_WITH_SAFE_PATH:
        return None
    with suppress(OSError):
        here = Path.cwd()
        for shadow in (here / "torch" / "__init__.py", here / "torch.py"):
            place = shadow.parent if shadow.name == "__init__.py" else shadow
            if is_file(shadow) and place.resolve() != torch.root.resolve():
                return Finding(
                    dimension="torch",
                    status=REJECTED,
                    code=codes.TORCH_SHADOWED,
                    observed=printable(place),
                    needed="no file and no folder named torch beside the program",
                    why=f"{printable(place)} hides torch {torch.version}: Python imports it for "
                    "programs of this folder",
                    fix=fixes.rename_shadow(place),
                    fault=faults.PACKAGE_FILES,
                )
    return None


def _problems(binary: BinaryRecord, torch: TorchInstall, runtime: Runtime) -> list[Finding]:
    """The findings on a torch that is damaged, or built for another Python."""
    from ...judge.rules import torch_abi

    extension = binary._replace(kind="extension")
    finding = torch_abi.check_installed_torch(extension, runtime)
    return [finding] if finding is not None and finding.status == REJECTED else []


def check_import(runtime: Runtime) -> Finding | None:
    """Would the libraries of the installed torch load? None if that cannot be told here."""
    torch = runtime.torch
    if torch is None or torch.root == NOWHERE or torch.problems:
        return None
    target = runtime.target
    judged = target.python
    if runtime.python[:2] != (judged.version if judged else sys.version_info)[:2]:
        return None  # no program of that Python is known
    try:
        by_linker = _check_import(
            target, torch, settings_here(), target.program(), environment=runtime.environment
        )
    except BudgetSpentError:
        return None
    if by_linker is None or by_linker.status == REJECTED:
        return by_linker
    return _check_files(target, torch, runtime.environment) or by_linker


@once
def _check_files(target: Target, torch: TorchInstall, environment: Environment) -> Finding | None:
    """Is the module torch._C missing, which was installed?"""
    with suppress(OSError):  # a torch of which only the version is known
        for place in dist_info(torch.root, "torch", torch.version):
            gone = _module_that_is_gone(target, place)
            if gone:
                return _damaged(torch, environment, gone)
    return None


def _module_that_is_gone(target: Target, place: Path) -> str:
    """The file of the module torch._C that was installed and is not there; "" if it is."""
    modules = [
        file for file in listed_files(target, place) if _MODULE_OF_TORCH.fullmatch(file.name)
    ]
    is_there = any(is_file(file.path) for file in modules)
    return "" if is_there or not modules else printable(modules[0].name)


def _damaged(torch: TorchInstall, environment: Environment, gone: str) -> Finding:
    return Finding(
        dimension="import torch",
        status=REJECTED,
        code=codes.TORCH_DAMAGED,
        observed=f"no {gone}",
        needed="a whole torch installation",
        why=f"the torch installation is damaged: {gone} is not there",
        fix=fixes.reinstall_torch(environment, torch),
        fault=faults.TORCH_NOT_LOADED,
    )


@once
def _check_import(
    target: Target,
    torch: TorchInstall,
    settings: Settings,
    program: Path,
    *,
    environment: Environment,
) -> Finding | None:
    failure = after_torch.import_torch(target, torch.root, settings, program).failure
    if failure is None:
        return Finding(
            dimension="import torch", status=OK, observed="its libraries load", needed=_NEEDED
        )
    variable = _variable_at_fault(target, torch.root, settings, program)
    observed = _first_fault(failure)
    if variable:
        return _overridden(target, torch, failure, variable=variable, observed=observed)
    wheel = _wheel_at_fault(target, torch, failure)
    why = f"import torch fails: {observed}"
    fix = fixes.reinstall_torch(environment, torch)
    code = codes.TORCH_DOES_NOT_LOAD
    if wheel is not None:
        why = f"{why} ({wheel.why})"
        fix = _put_back(wheel, environment)
        code = codes.TORCH_REQUIREMENTS
    return Finding(
        dimension="import torch",
        status=REJECTED,
        code=code,
        observed=observed,
        needed=wheel.pin.requirement if wheel else _NEEDED,
        why=why,
        fix=fix,
        fault=faults.TORCH_NOT_LOADED,
    )


def _variable_at_fault(target: Target, root: Path, settings: Settings, program: Path) -> str:
    """The variable without which torch would load; "" if there is none."""
    for variable, changed in after_torch.without_variables(settings).items():
        if after_torch.import_torch(target, root, changed, program).failure is None:
            return variable
    return ""


def _overridden(
    target: Target, torch: TorchInstall, failure: Opening, *, variable: str, observed: str
) -> Finding:
    process = after_torch.import_torch(
        target, torch.root, settings_here(), target.program()
    ).process
    files = [*process.preloaded]
    if variable == "LD_LIBRARY_PATH":
        files = [*failure.by_library_path, *(refusal.path for refusal in failure.refused)]
        files = files or [*dict.fromkeys(missing.library for missing in failure.versions)]
    brought = some([printable(path) for path in files])
    return Finding(
        dimension="import torch",
        status=REJECTED,
        code=codes.OTHER_LIBRARY_FIRST,
        observed=observed,
        needed=f"{variable} without {brought}",
        why=f"import torch fails: {variable} brings in {brought} before torch's own libraries",
        fix=fixes.unset(variable),
        fault=faults.TORCH_NOT_LOADED,
    )


def _first_fault(failure: Opening) -> str:
    """What the dynamic linker would complain about first, in words."""
    if failure.refused:
        refusal = failure.refused[0]
        return f"{printable(refusal.path)}: {refusal.why}"
    if failure.missing:
        return f"{some(failure.missing)} cannot be found"
    if failure.forbidding:
        path = failure.forbidding[0]
        return f"{printable(path)}: {failure.new[path].refusal}"
    if failure.versions:
        missing = failure.versions[0]
        return (
            f"{missing.needed_by.name} needs {missing.version}, "
            f"which {printable(missing.library)} lacks"
        )
    path, names = next(iter(failure.symbols.items()))
    return f"{path.name} needs {some(names, 1)}, which no library defines"


def _wheel_at_fault(target: Target, torch: TorchInstall, failure: Opening) -> WheelFault | None:
    """The wheel that is not as torch requires it and that explains the failure."""
    wheels = faults_of_wheels(torch, target)
    concerned = {*failure.missing, *(refusal.path.name for refusal in failure.refused)}
    concerned |= {missing.library.name for missing in failure.versions}
    exact = (wheel for wheel in wheels if concerned & {*wheel.files})
    if concerned:
        return next(exact, None) or absent_wheel(torch, failure.missing, target)
    # The name of a symbol begins with that of its library: `ncclCommRegister`.
    symbols = [name for names in failure.symbols.values() for name in names]
    loaded = {path.name for path in failure.files}
    for wheel in wheels:
        stems = [name.partition(".")[0].removeprefix("lib") for name in wheel.files]
        if any(name.lstrip("_").startswith(stem) for name in symbols for stem in stems):
            return wheel
    return next((wheel for wheel in wheels if loaded & {*wheel.files}), None)


def _put_back(wheel: WheelFault, environment: Environment) -> Fix:
    pip = Pip(environment)
    requirement = f'"{wheel.pin.requirement}"'
    command = pip.reinstall(requirement) if wheel.is_file else pip.install(requirement)
    return fixes.command_alone(fixes.Kind.INSTALL_PINNED, command)


def _check_wheels(torch: TorchInstall, runtime: Runtime) -> Finding | None:
    """A note if a wheel is not as torch requires it; torch may load all the same."""
    wheels = faults_of_wheels(torch, runtime.target)
    if not wheels:
        return None
    wheel = wheels[0]
    return Finding(
        dimension="torch's requirements",
        status=NOTE,
        code=codes.TORCH_REQUIREMENTS,
        observed=wheel.why,
        needed=wheel.pin.requirement,
        why=wheel.why,
        fix=_put_back(wheel, runtime.environment),
    )
