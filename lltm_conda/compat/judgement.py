"""`judge(binary, runtime)`: a finding for every dimension, cheap ones first. Pure.

Rejections name the cause; an unknown is no yes. Nothing is opened here: what has to be looked up in
files (missing symbols, missing libraries) is part of the runtime.
"""

from __future__ import annotations

from collections.abc import Iterator

from . import faults, fixes
from .layouts import HARMLESS, difference, layout_of
from .records import (
    NOTE,
    OK,
    REJECTED,
    UNKNOWN,
    BinaryRecord,
    Device,
    Driver,
    Finding,
    Runtime,
    Verdict,
    dotted,
    parse_version,
)
from .support import load as load_support

OUR_PLATFORM = "linux-x86_64"

#: The first driver branch of each CUDA release, for drivers whose CUDA could not be asked.
_DRIVER_CUDA = (
    (580, (13, 0)),
    (575, (12, 9)),
    (570, (12, 8)),
    (565, (12, 7)),
    (560, (12, 6)),
    (555, (12, 5)),
    (550, (12, 4)),
    (545, (12, 3)),
    (535, (12, 2)),
    (530, (12, 1)),
    (525, (12, 0)),
    (450, (11, 0)),
)


def judge(binary: BinaryRecord, runtime: Runtime) -> Verdict:
    """Hold a binary and a runtime together.

    Args:
        binary: what `compat.read_binary` read.
        runtime: what `compat.probe_runtime` found, or any other facts (a torch elsewhere, a driver
            that is not here).

    Returns:
        The verdict. `accepted` is True only if nothing was rejected and nothing that could crash
        the process or falsify a result stayed unknown.
    """
    findings: list[Finding] = []
    for step in _STEPS:
        findings.extend(step(binary, runtime))
        if step is _file and any(finding.status == REJECTED for finding in findings):
            break  # what was read from a broken file says nothing
    return Verdict(binary, tuple(findings))


def _ours(binary: BinaryRecord) -> bool:
    return binary.kind in ("glue", "kernels")


def _file(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
    fix = fixes.reinstall(runtime) if _ours(binary) or binary.path.parent.name == "lib" else ""
    if binary.kind == "unreadable" or binary.problems:
        yield Finding(
            "file",
            REJECTED,
            "; ".join(binary.problems),
            "a whole shared object",
            f"{binary.path.name} is damaged or not what its name says: {binary.problems[0]}",
            fix or f"reinstall the package that owns {binary.path.name}",
            faults.PACKAGE_FILES,
        )
        return
    yield Finding("file", OK, f"{binary.size} bytes", "a whole shared object")
    record = binary.record
    if record is None or not runtime.package_version:
        return
    if record.version != runtime.package_version:
        yield Finding(
            "package version",
            REJECTED,
            f"binary {record.version}",
            f"{runtime.package_version}, as the Python files",
            f"{binary.path.name} is left over from version {record.version}",
            fix,
            faults.PACKAGE_FILES,
        )
    else:
        yield Finding("package version", OK, record.version, runtime.package_version)
    if record.kind == "kernels" and runtime.kernel_abi is not None:
        same = record.kernel_abi == runtime.kernel_abi
        yield Finding(
            "kernel table",
            OK if same else REJECTED,
            f"version {record.kernel_abi}",
            f"version {runtime.kernel_abi}, as the glue",
            "" if same else f"{binary.path.name} comes from another build than the glue",
            "" if same else fix,
            None if same else faults.PACKAGE_FILES,
        )


def _platform(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
    if binary.platform == runtime.platform:
        yield Finding("platform", OK, runtime.platform, binary.platform or "any")
        return
    yield Finding(
        "platform",
        REJECTED,
        runtime.platform,
        binary.platform or OUR_PLATFORM,
        f"there is no binary for {runtime.platform}; only {OUR_PLATFORM} is built",
        fixes.REFERENCE if _ours(binary) else "find a build for this platform",
    )


def _python(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
    here = f"{runtime.implementation} {dotted(runtime.python)}"
    if runtime.free_threaded:
        here += " free-threaded"
    if binary.kind == "extension" and binary.modules:
        yield _module_tag(binary, runtime, here)
        return
    floor = load_support().python_min
    if _ours(binary) and runtime.python[:2] < floor:
        yield Finding(
            "python",
            REJECTED,
            here,
            f"Python >= {dotted(floor)}",
            f"Python {dotted(runtime.python[:2])} is older than the oldest that is supported",
            f"create an environment with Python {dotted(floor)} or newer",
        )
    elif runtime.free_threaded:
        yield Finding(
            "python",
            NOTE,
            here,
            "any Python (no Python symbol is used)",
            "free-threaded Python is untested: the binary holds no Python code, the Python files "
            "have never been run without the lock",
            fault=faults.REGISTERED_TWICE,
        )
    else:
        yield Finding("python", OK, here, "any Python (no Python symbol is used)")


def _module_tag(binary: BinaryRecord, runtime: Runtime, here: str) -> Finding:
    name = binary.path.name
    own = f"cpython-{runtime.python[0]}{runtime.python[1]}{'t' if runtime.free_threaded else ''}"
    _, _, tag = name.removesuffix(".so").partition(".")
    if tag == "abi3":
        if runtime.free_threaded:
            return Finding(
                "python",
                REJECTED,
                here,
                "a Python with the global interpreter lock (abi3)",
                "a limited-API module does not load in a free-threaded Python",
                fixes.other_torch_for(binary, runtime),
                faults.REGISTERED_TWICE,
            )
        return Finding("python", OK, here, "any CPython 3 (abi3)")
    if tag.startswith("cpython-") and not (tag + "-").startswith(own + "-"):
        return Finding(
            "python",
            REJECTED,
            here,
            tag,
            f"{name} was built for another Python: this one does not even see it "
            "(ModuleNotFoundError)",
            fixes.other_torch_for(binary, runtime),
            faults.PACKAGE_FILES,
        )
    return Finding("python", OK if tag else NOTE, here, tag or "not said by the file's name")


def _system_libraries(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
    for family, needed in sorted(binary.floors.items()):
        dimension = "glibc" if family == "GLIBC" else "libstdc++"
        if family == "GLIBC":
            if runtime.libc is None:
                continue  # another platform: said there
            have = runtime.libc[1] if runtime.libc[0] == "glibc" else None
            observed = f"{runtime.libc[0]} {dotted(have) if have else ''}".strip()
        else:
            have = (runtime.libstdcxx or {}).get(family)
            observed = f"{family}_{dotted(have)}" if have else "not known"
        if have is not None and have >= needed:
            yield Finding(dimension, OK, observed, f"{family}_{dotted(needed)}")
        elif have is None and dimension == "libstdc++":
            yield Finding(
                dimension,
                NOTE,
                observed,
                f"{family}_{dotted(needed)}",
                "no libstdc++ could be read; the dynamic linker will say it if it is too old",
            )
        else:
            yield Finding(
                dimension,
                REJECTED,
                observed,
                f"{family}_{dotted(needed)}",
                f"the {dimension} of this system is older than {binary.path.name} needs",
                fixes.system_libraries(runtime, family)
                if _ours(binary)
                else fixes.other_torch_for(binary, runtime),
                faults.SYSTEM_LIBRARIES,
            )


def _needs_torch(binary: BinaryRecord) -> bool:
    return binary.kind in ("glue", "extension")


def _torch(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
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


def _torch_version(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
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


def _cxx_abi(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
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
            fixes.fit_torch(runtime) if _ours(binary) else fixes.other_torch_for(binary, runtime),
            faults.CXX_ABI,
        )
    else:
        yield Finding("C++ ABI", OK, f"flavour {torch.cxx11_abi}", f"flavour {needed}")


def _symbols(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
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
        fix = fixes.fit_torch(runtime) if _ours(binary) else fixes.other_torch_for(binary, runtime)
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


def _cuda_build(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
    if binary.kind != "kernels" or binary.record is None or binary.record.device != "cuda":
        return
    torch = runtime.torch
    needed_cuda = parse_version(binary.record.cuda)
    if torch is None or needed_cuda is None:
        return
    major = needed_cuda[0]
    if torch.cuda is None:
        kind = "ROCm" if torch.hip else "XPU" if torch.xpu else "CPU-only"
        yield Finding(
            "CUDA build of torch",
            REJECTED,
            f"torch {torch.version} ({kind})",
            "a CUDA build of torch",
            f"torch is a {kind} build, so there are no CUDA tensors; if there were before, a "
            f"{kind} torch was swapped in",
            fixes.cuda_torch(runtime.environment, torch),
            faults.CPU_TORCH_SWAPPED_IN,
        )
    elif torch.cuda_major is not None and torch.cuda_major >= major:
        yield Finding("CUDA build of torch", OK, f"CUDA {torch.cuda}", f"CUDA {major} or newer")
    else:
        speaks = driver_cuda(runtime.driver)
        if not runtime.gpu_probed:
            status, why = UNKNOWN, "the driver was not looked at"
        elif speaks is not None and speaks[0] >= major:
            status, why = NOTE, "torch is older, the driver is new enough"
        else:
            status, why = (
                REJECTED,
                f"kernels for CUDA {major} beside a torch for CUDA {torch.cuda}, and no driver "
                f"that speaks CUDA {major}",
            )
        yield Finding(
            "CUDA build of torch",
            status,
            f"CUDA {torch.cuda}, driver for CUDA {dotted(speaks)}",
            f"a driver for CUDA {major}",
            why,
            fixes.fit_torch(runtime) if status == REJECTED else "",
            faults.CUDA_MAJOR if status != NOTE else None,
        )


def _libraries(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
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
    fix = fixes.BUILD if _ours(binary) else fixes.other_torch_for(binary, runtime)
    if any(name.startswith(("libtorch_cuda", "libc10_cuda")) for name in missing):
        fault = faults.CPU_TORCH_SWAPPED_IN
        why = f"{binary.path.name} needs a CUDA build of torch, and this one is not"
        fix = fixes.cuda_torch(runtime.environment, torch)
    elif any(name.startswith(("libcu", "libnv")) for name in missing):
        fault = faults.CUDA_MAJOR
        have = f"torch is built for CUDA {torch.cuda}" if torch and torch.cuda else "no CUDA torch"
        why = f"{binary.path.name} needs {missing[0]}, which is not here ({have})"
        fix = fixes.fit_torch(runtime) if _ours(binary) else fix
    elif any(name.startswith(("libtorch", "libc10")) for name in missing):
        fault = faults.TORCH_NOT_LOADED
        why = f"{missing[0]} of torch is not here"
        fix = fixes.install_torch(runtime.environment)
    yield Finding(
        "libraries", REJECTED, "missing: " + ", ".join(missing), "all found", why, fix, fault
    )


def driver_cuda(driver: Driver | None) -> tuple[int, int] | None:
    """The newest CUDA a driver speaks: as it said, else from its version; None if unknown."""
    if driver is None:
        return None
    if driver.cuda is not None:
        return driver.cuda
    version = parse_version(driver.version)
    if version:
        for branch, cuda in _DRIVER_CUDA:
            if version[0] >= branch:
                return cuda
    return None


def _binary_cuda(binary: BinaryRecord) -> tuple[int, ...] | None:
    if binary.record is not None:
        return parse_version(binary.record.cuda)
    for name in binary.needed:
        if name.startswith("libcudart.so."):
            return parse_version(name.removeprefix("libcudart.so."))
    return None


def _driver(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
    cuda = _binary_cuda(binary)
    if cuda is None or not runtime.gpu_probed:
        return
    needed = f"a driver for CUDA {cuda[0]} ({fixes.DRIVER_FLOORS.get(cuda[0], 'any')} or newer)"
    if runtime.driver is None:
        yield Finding(
            "driver", NOTE, "no NVIDIA driver", needed, "no GPU can be used here; the CPU can"
        )
        return
    speaks = driver_cuda(runtime.driver)
    observed = f"{runtime.driver.version or 'unknown version'} (CUDA {dotted(speaks)})"
    if speaks is None:
        yield Finding("driver", UNKNOWN, observed, needed, "what CUDA it speaks could not be told")
    elif speaks[0] < cuda[0]:
        yield Finding(
            "driver",
            REJECTED,
            observed,
            needed,
            f"the NVIDIA driver speaks CUDA {dotted(speaks)}, the kernels are CUDA {cuda[0]}",
            fixes.newer_driver(cuda),
            faults.DRIVER,
        )
    else:
        yield Finding("driver", OK, observed, needed)


def runs_on(archs: tuple[str, ...], capability: tuple[int, int]) -> str | None:
    """ "code" when an architecture's machine code runs on the GPU, "ptx" when only PTX does.

    Machine code runs within its major from its minor on; `sm_90a` on exactly 9.0; `sm_100f` within
    its family (same major, from its minor on). PTX of `compute_N` runs on N and everything later,
    with the same suffixes' limits.
    """
    best = None
    for arch in archs:
        kind, _, number = arch.partition("_")
        letter = number[-1:] if number[-1:] in ("a", "f") else ""
        number = number.removesuffix(letter)
        if not (number.isascii() and number.isdigit()) or len(number) < 2:
            continue
        major, minor = int(number[:-1]), int(number[-1])
        if letter == "a":
            fits = (major, minor) == capability
        elif kind == "compute" and not letter:
            fits = (major, minor) <= capability
        else:
            fits = major == capability[0] and minor <= capability[1]
        if fits and kind == "sm":
            return "code"
        if fits:
            best = "ptx"
    return best


def _architecture(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
    if not binary.cuda_archs or not runtime.devices:
        return
    archs = ", ".join(binary.cuda_archs)
    refused: list[tuple[Device, str]] = []
    cuda, speaks = _binary_cuda(binary), driver_cuda(runtime.driver)
    for device in runtime.devices:
        how = runs_on(binary.cuda_archs, device.capability)
        if how is None:
            refused.append((device, "arch"))
        elif how == "ptx" and cuda and speaks and speaks < cuda[:2]:
            refused.append((device, "ptx"))
    named = "; ".join(f"{d.name} ({dotted(d.capability)})" for d in runtime.devices[:8])
    if not refused:
        yield Finding("GPU architecture", OK, named, archs)
        return
    device, reason = refused[0]
    label = f"{device.name} (compute capability {dotted(device.capability)})"
    if reason == "ptx":
        fault, fix = faults.DRIVER, fixes.newer_driver(cuda)
        why = (
            f"on the {label} only the PTX of {binary.name} could run, and the driver "
            f"(CUDA {dotted(speaks)}) is older than the PTX (CUDA {dotted(cuda)})"
        )
    else:
        fault = faults.GPU_ARCHITECTURE
        fix = fixes.build_cuda(tuple(d.capability for d, _ in refused))
        why = f"{binary.name} holds no code for the {label}"
    status = REJECTED if len(refused) == len(runtime.devices) else NOTE
    yield Finding("GPU architecture", status, named, archs, why, fix, fault)


def _registration(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
    if binary.kind != "glue" or runtime.registered_by is None:
        return
    yield Finding(
        "op registration",
        REJECTED,
        f"already registered by {runtime.registered_by}",
        "torch.ops.lltm registered once",
        "another copy of lltm is loaded in this process",
        fixes.remove_duplicate(runtime, runtime.registered_by),
        faults.REGISTERED_TWICE,
    )


_STEPS = (
    _file,
    _platform,
    _python,
    _torch,
    _torch_version,
    _cxx_abi,
    _registration,
    _system_libraries,
    _cuda_build,
    _driver,
    _architecture,
    _libraries,
    _symbols,
)
