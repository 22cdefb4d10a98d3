"""Dimensions of torch: is it there, its version and class layout, C++ ABI, symbols, libraries."""

from __future__ import annotations

from collections.abc import Iterator

from . import faults, fixes, support
from .judge_host import fitting
from .layouts import HARMLESS, LAYOUTS, difference
from .records import (
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
from .text import printable, some


def _whole_torch(binary: BinaryRecord, runtime: Runtime) -> TorchInstall | None:
    """The torch that the binary would be loaded beside; None where there is nothing to compare."""
    torch = runtime.torch
    wanted = binary.kind in ("glue", "extension")
    return torch if wanted and torch is not None and not torch.problems else None


def installed_torch(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
    torch, environment = runtime.torch, runtime.environment
    if binary.kind not in ("glue", "extension"):
        return
    if torch is None:
        problem, needed = runtime.torch_problem, "an installed torch"
        why = f"torch cannot be used: {problem}" if problem else "torch is not installed"
        observed, fix = (
            problem or "not installed",
            fixes.install_torch(environment, runtime.project),
        )
    elif torch.problems:
        observed, needed = "; ".join(torch.problems), "a whole torch installation"
        why = f"the torch installation is damaged: {torch.problems[0]}"
        fix = fixes.reinstall_torch(environment, torch)
    elif torch.python_tags and not any(
        f"{tag}-".startswith(runtime.python_tag) for tag in torch.python_tags
    ):
        observed = f"torch for {', '.join(torch.python_tags)}"
        needed, why = runtime.python_tag.rstrip("-"), "this torch was built for another Python"
        fix = fixes.reinstall_torch(environment, torch)
    elif torch.hip or torch.xpu:
        name = "ROCm" if torch.hip else "XPU"
        observed = f"{torch.version} ({name} {torch.hip or torch.xpu})"
        definition = runtime.project.definition.rpartition(".")[0]
        why = f"CPU tensors are served, {name} tensors are not"
        why += f": use {definition} for those" if definition else ""
        yield Finding("torch", NOTE, observed, "a CPU or CUDA build of torch", why)
        return
    else:
        yield Finding("torch", OK, torch.version, "an installed torch")
        return
    yield Finding("torch", REJECTED, observed, needed, why, fix, faults.TORCH_NOT_LOADED)


def torch_version(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
    torch, record = _whole_torch(binary, runtime), binary.record
    if torch is None:
        return
    dimension, version, newest = (
        "torch version",
        torch.version,
        support.load(runtime.project.folder).torch_max,
    )
    if record is None:
        why = (
            "judged from its symbols alone: a missing one proves a mismatch, none missing does not "
            "prove a fit"
        )
        yield Finding(dimension, NOTE, version, "not recorded in the file", why)
        return
    if record.lane != "stable":
        yield _aten_version(binary, record, torch, runtime)
        return
    target = record.torch_target or (2, 10)
    needed = f"torch >= {dotted(target)}"
    if torch.version_tuple < target:
        why = (
            f"{binary.name} uses the stable ABI of torch {dotted(target)}, torch {version} is older"
        )
        fix, fault = fixes.fit_torch(runtime), faults.TORCH_VERSION
        yield Finding(dimension, REJECTED, version, needed, why, fix, fault)
    elif torch.version_tuple > newest:
        why = (
            f"newer than {dotted(newest)}, the newest that was tested: the stable ABI promises "
            "that it works"
        )
        yield Finding(dimension, NOTE, version, needed, why)
    else:
        yield Finding(dimension, OK, version, needed)


def _aten_version(
    binary: BinaryRecord, record: BuildRecord, torch: TorchInstall, runtime: Runtime
) -> Finding:
    dimension, version, target = "torch version", torch.version, record.torch_target
    needed = f"torch {dotted(target)}, or one of the same layout"
    if record.torch_built == version:
        return Finding(dimension, OK, version, f"torch {version}, as built")
    observed, fault, fix = version, faults.TORCH_VERSION, fixes.fit_torch(runtime)
    built = f"{binary.name} was built for torch {dotted(target)}"
    here = LAYOUTS.get(torch.version_tuple) if torch.is_release else None
    differs = difference(dict(binary.layout or {}), here or {})
    changed = [item for item in differs if item[0] not in HARMLESS]
    if here is None:
        why = f"{built}; the class layout of torch {version} was never measured, and is not guessed"
    elif not binary.layout:
        observed, fault = "no layout fingerprint in the file", faults.PACKAGE_FILES
        why = f"{binary.name} does not say which class layout it was compiled with"
        fix = fixes.reinstall(runtime)
    elif changed:
        texts = [f"{name} {there} here {now}" for name, there, now in changed]
        observed = f"torch {version} ({some(texts, 12)})"
        why = (
            f"{built}, torch {version} lays its classes out differently: loading it would abort "
            "or compute wrongly"
        )
    elif target == torch.version_tuple:
        return Finding(dimension, OK, version, f"torch {dotted(target)}")
    else:
        same = "the same class layout" + (" and other scalar types at the end" if differs else "")
        why = f"built for torch {dotted(target)}; torch {dotted(torch.version_tuple)} has {same}"
        return Finding(dimension, NOTE, version, needed, why)
    return Finding(dimension, REJECTED, observed, needed, why, fix, fault)


def cxx_abi(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
    torch = _whole_torch(binary, runtime)
    claimed = binary.record.cxx11_abi if binary.record else None
    flavour = binary.cxx11_abi if binary.cxx11_abi is not None else claimed
    if torch is None or flavour is None or binary.lane == "stable":
        return
    status, needed = REJECTED, f"flavour {flavour}"
    if claimed is not None and claimed != flavour:
        observed, needed = f"symbols of {needed}", f"flavour {claimed}, as its record says"
        why = f"{binary.file} was compiled with the wrong C++ ABI flag"
        fix = fixes.build(runtime.project)
    elif torch.cxx11_abi is None:
        status, observed = UNKNOWN, "not known"
        library = printable(torch.lib_dir / "libc10.so")
        why = f"the C++ ABI flavour of {library} cannot be read"
        fix = fixes.reinstall_torch(runtime.environment, torch)
    elif torch.cxx11_abi != flavour:
        observed = f"torch {torch.version} of flavour {torch.cxx11_abi}"
        why = (
            f"{binary.name} was compiled with the C++11 ABI {needed}, this torch with "
            f"{torch.cxx11_abi}"
        )
        fix = fitting(binary, runtime, fixes.fit_torch(runtime))
    else:
        yield Finding("C++ ABI", OK, f"flavour {torch.cxx11_abi}", needed)
        return
    yield Finding("C++ ABI", status, observed, needed, why, fix, faults.CXX_ABI)


def torch_symbols(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
    torch = _whole_torch(binary, runtime)
    if torch is None:
        return
    count, missing = len(binary.torch_symbols), runtime.missing.get(str(binary.path))
    needed = f"{count} symbols"
    if missing is None:
        why = f"the symbols of {binary.file} were not looked up in torch"
        yield Finding("torch symbols", UNKNOWN, "not looked up", needed, why)
    elif missing:
        observed = f"{len(missing)} of {count} missing: {some(missing)}"
        why = f"torch {torch.version} does not have what {binary.file} was linked against"
        fix = fitting(binary, runtime, fixes.fit_torch(runtime))
        yield Finding("torch symbols", REJECTED, observed, needed, why, fix, faults.TORCH_VERSION)
    else:
        yield Finding("torch symbols", OK, f"all {count} found", needed)


def libraries(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
    missing = runtime.libraries.get(str(binary.path))
    cuda = [name for name in binary.needed if name.startswith(("libcudart", "libcublas"))]
    if missing is None:
        if cuda:
            yield Finding("libraries", UNKNOWN, "not looked for", some(cuda), "not looked for")
        return
    if not missing:
        yield Finding("libraries", OK, "all found", f"{len(binary.needed)} libraries")
        return
    torch, first = runtime.torch, missing[0][:200]
    if any(name.startswith(("libtorch_cuda", "libc10_cuda")) for name in missing):
        fault = faults.CPU_TORCH_SWAPPED_IN
        why = f"{binary.file} needs a CUDA build of torch, and this one is not"
        fix = fixes.cuda_torch(runtime.environment, torch)
    elif any(name.startswith(("libcu", "libnv")) for name in missing):
        fault = faults.CUDA_MAJOR
        have = f"torch is built for CUDA {torch.cuda}" if torch and torch.cuda else "no CUDA torch"
        why = f"{binary.file} needs {first}, which is not here ({have})"
        fix = fitting(binary, runtime, fixes.fit_torch(runtime))
    elif any(name.startswith(("libtorch", "libc10")) for name in missing):
        fault = faults.TORCH_NOT_LOADED
        why = f"{first} of torch is not here"
        fix = fixes.install_torch(runtime.environment, runtime.project)
    else:
        fault, why = faults.SYSTEM_LIBRARIES, f"{first} is nowhere on the library path"
        fix = fitting(binary, runtime, fixes.build(runtime.project))
    observed = f"missing: {some(missing, 8)}"
    yield Finding("libraries", REJECTED, observed, "all found", why, fix, fault)
