"""Dimensions of the file and the host: whole files, platform, Python, system libraries, the op."""

from __future__ import annotations

from collections.abc import Iterator

from . import faults, fixes
from .records import NOTE, OK, REJECTED, BinaryRecord, Finding, Runtime, dotted
from .support import load as load_support

OUR_PLATFORM = "linux-x86_64"


def ours(binary: BinaryRecord) -> bool:
    return binary.kind in ("glue", "kernels")


def whole_file(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
    fix = fixes.reinstall(runtime) if ours(binary) or binary.path.parent.name == "lib" else ""
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


def platform(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
    if binary.platform == runtime.platform:
        yield Finding("platform", OK, runtime.platform, binary.platform or "any")
        return
    yield Finding(
        "platform",
        REJECTED,
        runtime.platform,
        binary.platform or OUR_PLATFORM,
        f"there is no binary for {runtime.platform}; only {OUR_PLATFORM} is built",
        fixes.REFERENCE if ours(binary) else "find a build for this platform",
    )


def python(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
    here = f"{runtime.implementation} {dotted(runtime.python)}"
    if runtime.free_threaded:
        here += " free-threaded"
    if binary.kind == "extension" and binary.modules:
        yield _module_tag(binary, runtime, here)
        return
    floor = load_support().python_min
    if ours(binary) and runtime.python[:2] < floor:
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


def system_libraries(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
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
                if ours(binary)
                else fixes.other_torch_for(binary, runtime),
                faults.SYSTEM_LIBRARIES,
            )


def registration(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
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
