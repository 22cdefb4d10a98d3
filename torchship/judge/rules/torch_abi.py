"""Rules about torch: it is there, it is whole, and its ABI is the one the binary expects."""

from __future__ import annotations

from pathlib import Path

from .. import fixes, support
from ..reading.binary import is_symbol_of_torch
from ..reading.layouts import OLDER_LAYOUTS, difference, layout_of
from ..records import (
    NOTE,
    OK,
    REJECTED,
    UNKNOWN,
    BinaryRecord,
    BuildRecord,
    Finding,
    Runtime,
    TorchInstall,
    dotted,
)
from ..text import printable, some
from ..words import codes
from .rule import Rule


def whole_torch(binary: BinaryRecord, runtime: Runtime) -> TorchInstall | None:
    """The torch, if it is undamaged and the binary is a glue or an extension; else None."""
    torch = runtime.torch
    if binary.kind not in ("glue", "extension") or torch is None or torch.problems:
        return None
    return torch


def check_installed_torch(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    """Is there a whole torch for this Python?"""
    torch = runtime.torch
    if binary.kind not in ("glue", "extension"):
        return None
    if torch is None:
        return _no_torch(binary, runtime)
    if torch.problems:
        return _unusable_torch(
            runtime,
            code=codes.TORCH_DAMAGED,
            observed="; ".join(torch.problems),
            needed="a whole torch installation",
            why=f"the torch installation is damaged: {torch.problems[0]}",
        )
    starts = [f"{tag}-" for tag in torch.python_tags]
    if starts and not any(start.startswith(runtime.python_tag) for start in starts):
        return _unusable_torch(
            runtime,
            code=codes.TORCH_OF_ANOTHER_PYTHON,
            observed=f"torch for {', '.join(torch.python_tags)}",
            needed=runtime.python_tag.rstrip("-"),
            why="this torch was built for another Python",
        )
    if runtime.torch_import is not None and runtime.torch_import.status == REJECTED:
        # The doctor's finding, with a code of its own: from a look, or of checks/torch_loading.py.
        return runtime.torch_import
    if (torch.hip or torch.xpu) and runtime.is_ours(binary):
        return _cpu_tensors_alone(torch, runtime)
    return Finding(status=OK, observed=torch.version, needed="an installed torch")


def _no_torch(binary: BinaryRecord, runtime: Runtime) -> Finding:
    problem = runtime.torch_problem
    if runtime.torch_shadow:
        return Finding(
            status=REJECTED,
            code=codes.TORCH_SHADOWED,
            observed=runtime.torch_shadow,
            needed="an installed torch",
            why=f"{runtime.torch_shadow} hides torch: Python imports it, and it is not PyTorch",
            fix=fixes.rename_shadow(Path(runtime.torch_shadow)),
        )
    built_for = [minor for minor, _ in binary.owner.built_for] if binary.owner else []
    minor = next(iter(built_for), None)
    return Finding(
        status=REJECTED,
        code=codes.TORCH_MISSING,
        observed=problem or "not installed",
        needed="an installed torch",
        why=f"torch cannot be used: {problem}" if problem else "torch is not installed",
        fix=fixes.install_torch(runtime.environment, runtime.project, minor),
    )


def _unusable_torch(
    runtime: Runtime, *, code: codes.Code, observed: str, needed: str, why: str
) -> Finding:
    return Finding(
        status=REJECTED,
        code=code,
        observed=observed,
        needed=needed,
        why=why,
        fix=fixes.reinstall_torch(runtime.environment, runtime.torch),
    )


def _cpu_tensors_alone(torch: TorchInstall, runtime: Runtime) -> Finding:
    """ROCm and XPU builds of torch load the project's CPU binaries."""
    device = torch.device.partition(" ")[0]
    module = runtime.project.definition.rpartition(".")[0]
    why = f"CPU tensors are served, {device} tensors are not"
    if module:
        why += f": use {module} for {device} tensors"
    return Finding(
        status=NOTE,
        code=codes.CPU_TENSORS_ALONE,
        observed=f"{torch.version} ({torch.device})",
        needed="a CPU or CUDA build of torch",
        why=why,
    )


def check_torch_version(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    """Does this torch have the ABI that the binary's record or layout fingerprint names?"""
    torch = whole_torch(binary, runtime)
    if torch is None:
        return None
    if binary.lane != "stable" and (binary.record or binary.layout):
        return _check_layout(binary, torch, runtime)
    if binary.record is None:
        return None  # `check_vouched` judges an extension without a record
    return _check_stable(binary, binary.record, torch, runtime)


def _check_stable(
    binary: BinaryRecord, record: BuildRecord, torch: TorchInstall, runtime: Runtime
) -> Finding:
    """The stable ABI serves its torch and every later one."""
    oldest = record.torch_target or (2, 10)
    newest_tested = support.load(runtime.project.folder).torch_max
    requirement = f"torch >= {dotted(oldest)}"
    if torch.version_tuple < oldest:
        return Finding(
            status=REJECTED,
            code=codes.TORCH_TOO_OLD,
            observed=torch.version,
            needed=requirement,
            why=f"{binary.name} needs the stable ABI of torch {dotted(oldest)} or newer",
            fix=fixes.fix_for(fixes.Wrong.TORCH, binary, runtime),
        )
    if torch.version_tuple > newest_tested:
        return Finding(
            status=NOTE,
            code=codes.TORCH_NEWER_THAN_TESTED,
            observed=torch.version,
            needed=requirement,
            why=(
                f"torch {dotted(newest_tested)} is the newest tested; "
                "the stable ABI serves newer ones, too"
            ),
        )
    return Finding(status=OK, observed=torch.version, needed=requirement)


def _check_layout(binary: BinaryRecord, torch: TorchInstall, runtime: Runtime) -> Finding:
    """Compare the class layout that is recorded in the binary with the layout of this torch."""
    record = binary.record
    if record and record.torch_built == torch.version:
        as_built = f"torch {torch.version}, as built"
        return Finding(status=OK, observed=torch.version, needed=as_built)
    target = record.torch_target if record else None
    label = f"torch {dotted(target)}" if target else "a torch that it does not name"
    if runtime.is_ours(binary) and torch.version_tuple in OLDER_LAYOUTS:
        return _older_than_served(binary, torch, runtime, label)
    measured = layout_of(torch.version_tuple) if torch.is_release else None
    if measured is None:
        return _unmeasured_torch(binary, torch, runtime, label)
    if not binary.layout:
        return _no_fingerprint(binary, runtime, label)
    differences = difference(binary.layout, measured)
    if differences:
        return _other_layout(binary, torch, runtime, (label, differences))
    if target == torch.version_tuple:
        return Finding(status=OK, observed=torch.version, needed=label)
    appended = "" if binary.layout == measured else " and other scalar types at the end"
    return Finding(
        status=NOTE,
        code=codes.SAME_LAYOUT,
        observed=torch.version,
        needed=f"{label}, or one of the same layout",
        why=(
            f"built for {label}; torch {dotted(torch.version_tuple)} has "
            f"the same class layout{appended}"
        ),
    )


def _older_than_served(
    binary: BinaryRecord, torch: TorchInstall, runtime: Runtime, label: str
) -> Finding:
    """The project's own binaries never ran beside such a torch, whatever its class layout."""
    return Finding(
        status=REJECTED,
        code=codes.TORCH_TOO_OLD,
        observed=torch.version,
        needed=label,
        why=(
            f"{binary.name} was built for {label}; "
            f"torch {torch.version} is older than every torch that it serves"
        ),
        fix=fixes.fix_for(fixes.Wrong.TORCH, binary, runtime),
    )


def _unmeasured_torch(
    binary: BinaryRecord, torch: TorchInstall, runtime: Runtime, label: str
) -> Finding:
    return Finding(
        status=REJECTED if runtime.is_ours(binary) else UNKNOWN,
        code=codes.TORCH_NOT_MEASURED,
        observed=torch.version,
        needed=f"{label}, or one of the same layout",
        why=(
            f"{binary.name} was built for {label}; "
            f"the class layout of torch {torch.version} was never measured"
        ),
        fix=fixes.fix_for(fixes.Wrong.TORCH, binary, runtime),
    )


def _no_fingerprint(binary: BinaryRecord, runtime: Runtime, label: str) -> Finding:
    fix = fixes.fix_for(fixes.Wrong.TORCH, binary, runtime)
    if runtime.is_ours(binary):
        fix = fixes.fix_for(fixes.Wrong.FILES, binary, runtime)
    return Finding(
        status=REJECTED,
        code=codes.NO_FINGERPRINT,
        observed="no layout fingerprint in the file",
        needed=f"{label}, or one of the same layout",
        why=f"{binary.name} does not say which class layout it was compiled with",
        fix=fix,
    )


def _other_layout(
    binary: BinaryRecord,
    torch: TorchInstall,
    runtime: Runtime,
    built: tuple[str, tuple[tuple[str, int, int], ...]],
) -> Finding:
    """`built` is the label of the torch that the binary is for, with the differences to it."""
    label, differences = built
    fields = [f"{name} {recorded} here {current}" for name, recorded, current in differences]
    return Finding(
        status=REJECTED,
        code=codes.OTHER_TORCH,
        observed=f"torch {torch.version} ({some(fields, 12)})",
        needed=f"{label}, or one of the same layout",
        why=(
            f"{binary.name} was built for {label}, torch {torch.version} lays its classes out "
            "differently: loading it would abort or compute wrongly"
        ),
        fix=fixes.fix_for(fixes.Wrong.TORCH, binary, runtime),
    )


def check_cxx_abi(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    torch = whole_torch(binary, runtime)
    recorded = binary.record.cxx11_abi if binary.record else None
    flavour = binary.cxx11_abi if binary.cxx11_abi is not None else recorded
    if torch is None or flavour is None or binary.lane == "stable":
        return None
    status = REJECTED
    code = codes.OTHER_CXX_ABI
    requirement = f"flavour {flavour}"
    if recorded is not None and recorded != flavour:
        observed = f"symbols of flavour {flavour}"
        requirement = f"flavour {recorded}, as its record says"
        code = codes.WRONG_CXX_FLAG
        why = f"{binary.file} was compiled with the wrong C++ ABI flag"
        fix = fixes.fix_for(fixes.Wrong.BUILD, binary, runtime)
    elif torch.cxx11_abi is None:
        status = UNKNOWN
        code = codes.CXX_ABI_UNKNOWN
        observed = "not known"
        library = printable(torch.lib_dir / "libc10.so")
        why = f"the C++ ABI flavour of {library} cannot be read"
        fix = fixes.reinstall_torch(runtime.environment, torch)
    elif torch.cxx11_abi != flavour:
        observed = f"torch {torch.version} of flavour {torch.cxx11_abi}"
        why = f"{binary.name} has the C++11 ABI {requirement}, but this torch has {torch.cxx11_abi}"
        fix = fixes.fix_for(fixes.Wrong.TORCH, binary, runtime)
    else:
        flavour_here = f"flavour {torch.cxx11_abi}"
        return Finding(status=OK, observed=flavour_here, needed=requirement)
    return Finding(
        status=status,
        code=code,
        observed=observed,
        needed=requirement,
        why=why,
        fix=fix,
    )


def check_registration(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    """Are the operators registered already, by another copy of the package?"""
    if binary.kind != "glue" or runtime.registered_by is None:
        return None
    project = runtime.project
    library = printable(runtime.registered_by)
    return Finding(
        status=REJECTED,
        code=codes.REGISTERED_TWICE,
        observed=f"already registered by {library}",
        needed=f"{project.operators} registered once",
        why=f"another copy of {project.distribution} is loaded in this process",
        fix=fixes.remove_copy(runtime.environment, project, library),
    )


def check_torch_symbols(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    torch = whole_torch(binary, runtime)
    if torch is None:
        return None
    count = len(binary.torch_symbols)
    requirement = f"{count} symbols"
    not_found = runtime.missing_symbols.get(str(binary.path))
    if not_found is None:
        return Finding(
            status=UNKNOWN,
            code=codes.SYMBOLS_NOT_LOOKED_UP,
            observed="not looked up",
            needed=requirement,
            why=f"the symbols of {binary.file} were not looked up in torch",
        )
    missing = [name for name in not_found if is_symbol_of_torch(name.encode())]
    if not missing:
        return Finding(
            status=OK,
            observed=f"all {count} found",
            needed=requirement,
        )
    return Finding(
        status=REJECTED,
        code=codes.TORCH_LACKS_SYMBOLS,
        observed=f"{len(missing)} of {count} missing: {some(missing)}",
        needed=requirement,
        why=f"torch {torch.version} lacks symbols that {binary.file} needs",
        fix=fixes.fix_for(fixes.Wrong.TORCH, binary, runtime),
    )


def check_vouched(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    """Does something name the torch that an extension without a record was built for?"""
    torch = whole_torch(binary, runtime)
    if torch is None or binary.record is not None:
        return None
    if binary.lane != "stable" and binary.layout:
        return None  # `check_torch_version` has compared the layout
    from . import vouching  # an import of the package does not need it

    return vouching.check(binary, torch, runtime)


INSTALLED_TORCH = Rule(
    rank=300,
    dimension="torch",
    codes=(
        codes.TORCH_MISSING,
        codes.TORCH_DAMAGED,
        codes.TORCH_OF_ANOTHER_PYTHON,
        codes.TORCH_SHADOWED,
        codes.CPU_TENSORS_ALONE,
    ),
    check=check_installed_torch,
)
TORCH_VERSION = Rule(
    rank=310,
    dimension="torch version",
    codes=(
        codes.OTHER_TORCH,
        codes.TORCH_TOO_OLD,
        codes.TORCH_NOT_MEASURED,
        codes.NO_FINGERPRINT,
        codes.TORCH_NEWER_THAN_TESTED,
        codes.SAME_LAYOUT,
    ),
    check=check_torch_version,
)
CXX_ABI = Rule(
    rank=320,
    dimension="C++ ABI",
    codes=(codes.OTHER_CXX_ABI, codes.WRONG_CXX_FLAG, codes.CXX_ABI_UNKNOWN),
    check=check_cxx_abi,
)
REGISTRATION = Rule(
    rank=330, dimension="op registration", codes=(codes.REGISTERED_TWICE,), check=check_registration
)
TORCH_SYMBOLS = Rule(
    rank=600,
    dimension="torch symbols",
    codes=(codes.TORCH_LACKS_SYMBOLS, codes.SYMBOLS_NOT_LOOKED_UP),
    check=check_torch_symbols,
)
VOUCHED = Rule(
    rank=900,
    dimension="torch version",
    codes=(codes.VOUCHED, codes.TARGET_UNKNOWN, codes.MAYBE_OTHER_TORCH, codes.OTHER_TORCH),
    check=check_vouched,
)
