"""Dimensions of torch: is it there, its version and class layout, C++ ABI, symbols, libraries."""

from __future__ import annotations

from collections.abc import Iterator

from . import faults, fixes
from .judge_host import ours
from .layouts import HARMLESS, difference, layout_of
from .records import NOTE, OK, REJECTED, UNKNOWN, BinaryRecord, Finding, Runtime, dotted
from .support import load as load_support


def _needs_torch(binary: BinaryRecord) -> bool:
    return binary.kind in ("glue", "extension")


def installed_torch(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
    if not _needs_torch(binary):
        return
    torch = runtime.torch
    if torch is None:
        yield Finding(
            "torch",
            REJECTED,
            runtime.torch_problem or "not installed",
            "an installed torch",
            "torch is not installed"
            if runtime.torch_problem is None
            else f"torch cannot be used: {runtime.torch_problem}",
            fixes.install_torch(runtime.environment),
            faults.TORCH_NOT_LOADED,
        )
        return
    if torch.problems:
        yield Finding(
            "torch",
            REJECTED,
            "; ".join(torch.problems),
            "a whole torch installation",
            f"the torch installation is damaged: {torch.problems[0]}",
            fixes.reinstall_torch(runtime.environment, torch),
            faults.TORCH_NOT_LOADED,
        )
        return
    tag = f"cpython-{runtime.python[0]}{runtime.python[1]}{'t' if runtime.free_threaded else ''}-"
    if torch.python_tags and not any(tag in f"{have}-" for have in torch.python_tags):
        yield Finding(
            "torch",
            REJECTED,
            f"torch for {', '.join(torch.python_tags)}",
            tag.rstrip("-"),
            "this torch was built for another Python",
            fixes.reinstall_torch(runtime.environment, torch),
            faults.TORCH_NOT_LOADED,
        )
        return
    if torch.hip or torch.xpu:
        name = "ROCm" if torch.hip else "XPU"
        yield Finding(
            "torch",
            NOTE,
            f"{torch.version} ({name} {torch.hip or torch.xpu})",
            "a CPU or CUDA build of torch",
            f"{name} tensors are not served, CPU tensors are; for the others use "
            "lltm_conda.reference",
        )
        return
    yield Finding("torch", OK, torch.version, "an installed torch")


def torch_version(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
    torch, record = runtime.torch, binary.record
    if not _needs_torch(binary) or torch is None or torch.problems:
        return
    newest = load_support().torch_max
    if record is None:
        yield Finding(
            "torch version",
            NOTE,
            torch.version,
            "not recorded in the file",
            "judged from its symbols alone: a missing one proves a mismatch, none missing does not "
            "prove a fit",
        )
    elif record.lane == "stable":
        target = record.torch_target or (2, 10)
        if torch.version_tuple < target:
            yield Finding(
                "torch version",
                REJECTED,
                torch.version,
                f"torch >= {dotted(target)}",
                f"{binary.name} speaks the stable ABI of torch {dotted(target)}, "
                f"torch {torch.version} is older",
                fixes.fit_torch(runtime),
                faults.TORCH_VERSION,
            )
        elif torch.version_tuple > newest:
            yield Finding(
                "torch version",
                NOTE,
                torch.version,
                f"torch >= {dotted(target)}",
                f"newer than {dotted(newest)}, the newest that was tested: the stable ABI promises "
                "that it works",
            )
        else:
            yield Finding("torch version", OK, torch.version, f"torch >= {dotted(target)}")
    else:
        yield _aten_version(binary, runtime)


def _aten_version(binary: BinaryRecord, runtime: Runtime) -> Finding:
    torch, record = runtime.torch, binary.record
    assert torch is not None
    assert record is not None
    target = record.torch_target
    needed = f"torch {dotted(target)}, or one of the same layout"
    if record.torch_built == torch.version:
        return Finding("torch version", OK, torch.version, f"torch {torch.version}, as built")
    fault, fix = faults.TORCH_VERSION, fixes.fit_torch(runtime)
    here = layout_of(torch.version_tuple)
    if here is None or not torch.is_release:
        return Finding(
            "torch version",
            REJECTED,
            torch.version,
            needed,
            f"{binary.name} was built for torch {dotted(target)}; the class layout of torch "
            f"{torch.version} was never measured, and is not guessed",
            fix,
            fault,
        )
    if not binary.layout:
        return Finding(
            "torch version",
            REJECTED,
            "no layout fingerprint in the file",
            needed,
            f"{binary.name} does not say which class layout it was compiled with",
            fixes.reinstall(runtime),
            faults.PACKAGE_FILES,
        )
    differs = difference(dict(binary.layout), here)
    changed = [item for item in differs if item[0] not in HARMLESS]
    if changed:
        text = ", ".join(f"{name} {there} here {now}" for name, there, now in changed)
        return Finding(
            "torch version",
            REJECTED,
            f"torch {torch.version} ({text})",
            needed,
            f"{binary.name} was built for torch {dotted(target)}, torch {torch.version} lays its "
            "classes out differently: loading it would abort or compute wrongly",
            fix,
            fault,
        )
    if target == torch.version_tuple:
        return Finding("torch version", OK, torch.version, f"torch {dotted(target)}")
    same = "the same class layout" + (" and other scalar types at the end" if differs else "")
    return Finding(
        "torch version",
        NOTE,
        torch.version,
        needed,
        f"built for torch {dotted(target)}; torch {dotted(torch.version_tuple)} has {same}",
    )


def cxx_abi(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
    torch = runtime.torch
    if not _needs_torch(binary) or torch is None or torch.problems or binary.lane == "stable":
        return
    claimed = binary.record.cxx11_abi if binary.record else None
    needed = binary.cxx11_abi if binary.cxx11_abi is not None else claimed
    if needed is None:
        return
    if claimed is not None and claimed != needed:
        yield Finding(
            "C++ ABI",
            REJECTED,
            f"symbols of flavour {needed}",
            f"flavour {claimed}, as its record says",
            f"{binary.path.name} was compiled with the wrong C++ ABI flag",
            fixes.BUILD,
            faults.CXX_ABI,
        )
    elif torch.cxx11_abi is None:
        yield Finding(
            "C++ ABI",
            UNKNOWN,
            "not known",
            f"flavour {needed}",
            f"the C++ ABI flavour of {torch.lib_dir / 'libc10.so'} could not be told",
            fixes.reinstall_torch(runtime.environment, torch),
            faults.CXX_ABI,
        )
    elif torch.cxx11_abi != needed:
        yield Finding(
            "C++ ABI",
            REJECTED,
            f"torch {torch.version} of flavour {torch.cxx11_abi}",
            f"flavour {needed}",
            f"{binary.name} was compiled with the C++11 ABI flavour {needed}, this torch with "
            f"{torch.cxx11_abi}",
            fixes.fit_torch(runtime) if ours(binary) else fixes.other_torch_for(binary, runtime),
            faults.CXX_ABI,
        )
    else:
        yield Finding("C++ ABI", OK, f"flavour {torch.cxx11_abi}", f"flavour {needed}")


def torch_symbols(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
    torch = runtime.torch
    if not _needs_torch(binary) or torch is None or torch.problems:
        return
    count = len(binary.torch_symbols)
    missing = runtime.missing.get(str(binary.path))
    if missing is None:
        yield Finding(
            "torch symbols",
            UNKNOWN,
            "not looked up",
            f"{count} symbols",
            f"the symbols of {binary.path.name} were not looked up in torch",
        )
    elif missing:
        shown = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if missing[3:] else "")
        fix = fixes.fit_torch(runtime) if ours(binary) else fixes.other_torch_for(binary, runtime)
        yield Finding(
            "torch symbols",
            REJECTED,
            f"{len(missing)} of {count} missing: {shown}",
            f"{count} symbols",
            f"torch {torch.version} does not have what {binary.path.name} was linked against",
            fix,
            faults.TORCH_VERSION,
        )
    else:
        yield Finding("torch symbols", OK, f"all {count} found", f"{count} symbols")


def libraries(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
    missing = runtime.libraries.get(str(binary.path))
    cuda = [name for name in binary.needed if name.startswith(("libcudart", "libcublas"))]
    if missing is None:
        if cuda:
            yield Finding("libraries", UNKNOWN, "not looked for", ", ".join(cuda), "not looked for")
        return
    if not missing:
        yield Finding("libraries", OK, "all found", f"{len(binary.needed)} libraries")
        return
    torch = runtime.torch
    fault, why = faults.SYSTEM_LIBRARIES, f"{missing[0]} is nowhere on the library path"
    fix = fixes.BUILD if ours(binary) else fixes.other_torch_for(binary, runtime)
    if any(name.startswith(("libtorch_cuda", "libc10_cuda")) for name in missing):
        fault = faults.CPU_TORCH_SWAPPED_IN
        why = f"{binary.path.name} needs a CUDA build of torch, and this one is not"
        fix = fixes.cuda_torch(runtime.environment, torch)
    elif any(name.startswith(("libcu", "libnv")) for name in missing):
        fault = faults.CUDA_MAJOR
        have = f"torch is built for CUDA {torch.cuda}" if torch and torch.cuda else "no CUDA torch"
        why = f"{binary.path.name} needs {missing[0]}, which is not here ({have})"
        fix = fixes.fit_torch(runtime) if ours(binary) else fix
    elif any(name.startswith(("libtorch", "libc10")) for name in missing):
        fault = faults.TORCH_NOT_LOADED
        why = f"{missing[0]} of torch is not here"
        fix = fixes.install_torch(runtime.environment)
    yield Finding(
        "libraries", REJECTED, "missing: " + ", ".join(missing), "all found", why, fix, fault
    )
