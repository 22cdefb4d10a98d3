"""Dimensions of the file and the host: whole files, platform, Python, system libraries, the op."""

from __future__ import annotations

from collections.abc import Iterator

from . import faults, fixes
from .records import NOTE, OK, REJECTED, BinaryRecord, Finding, Runtime, dotted
from .support import load as load_support
from .text import printable

OUR_PLATFORM = "linux-x86_64"


def ours(binary: BinaryRecord) -> bool:
    return binary.kind in ("glue", "kernels")


def whole_file(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
    wanted = "a whole shared object"
    if binary.kind == "unreadable" or binary.problems:
        packaged = ours(binary) or binary.path.parent.name == "lib"
        yield Finding(
            "file",
            REJECTED,
            "; ".join(binary.problems),
            wanted,
            why=f"{binary.file} is damaged or not what its name says: {binary.problems[0]}",
            fix=fixes.reinstall(runtime)
            if packaged
            else f"reinstall the package that owns {binary.file}",
            fault=faults.PACKAGE_FILES,
        )
        return
    yield Finding("file", OK, f"{binary.size} bytes", wanted)
    record = binary.record
    if record is None or not runtime.package_version:
        return
    yield _same(
        "package version",
        record.version == runtime.package_version,
        (f"binary {record.version}", f"{runtime.package_version}, as the Python files"),
        f"{binary.file} is left over from version {record.version}",
        runtime,
    )
    if record.kind == "kernels" and runtime.kernel_abi is not None:
        yield _same(
            "kernel table",
            record.kernel_abi == runtime.kernel_abi,
            (f"version {record.kernel_abi}", f"version {runtime.kernel_abi}, as the glue"),
            f"{binary.file} comes from another build than the glue",
            runtime,
        )


def _same(
    dimension: str, same: bool, sides: tuple[str, str], why: str, runtime: Runtime
) -> Finding:
    """A finding on two files of the package that must come from one build."""
    if same:
        return Finding(dimension, OK, *sides)
    fix = fixes.reinstall(runtime)
    return Finding(dimension, REJECTED, *sides, why=why, fix=fix, fault=faults.PACKAGE_FILES)


def platform(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
    if binary.platform == runtime.platform:
        yield Finding("platform", OK, runtime.platform, binary.platform)
    else:
        yield Finding(
            "platform",
            REJECTED,
            runtime.platform,
            binary.platform or OUR_PLATFORM,
            why=f"there is no binary for {runtime.platform}; only {OUR_PLATFORM} is built",
            fix=fixes.REFERENCE if ours(binary) else "find a build for this platform",
        )


def python(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
    here = f"{runtime.implementation} {dotted(runtime.python)}"
    if runtime.free_threaded:
        here += " free-threaded"
    if binary.kind == "extension" and binary.modules:
        yield _module_tag(binary, runtime, here)
        return
    floor = load_support().python_min
    anything = "any Python (no Python symbol is used)"
    if ours(binary) and runtime.python[:2] < floor:
        yield Finding(
            "python",
            REJECTED,
            here,
            f"Python >= {dotted(floor)}",
            why=f"Python {dotted(runtime.python[:2])} is older than the oldest that is supported",
            fix=f"create an environment with Python {dotted(floor)} or newer",
        )
    elif runtime.free_threaded:
        why = (
            "free-threaded Python is untested: the binary holds no Python code, but the Python "
            "files have never been run without the lock"
        )
        yield Finding("python", NOTE, here, anything, why, fault=faults.REGISTERED_TWICE)
    else:
        yield Finding("python", OK, here, anything)


def _module_tag(binary: BinaryRecord, runtime: Runtime, here: str) -> Finding:
    own = f"cpython-{runtime.python[0]}{runtime.python[1]}{'t' if runtime.free_threaded else ''}"
    _, _, tag = binary.file.removesuffix(".so").partition(".")
    fix = fixes.other_torch_for(binary, runtime)
    if tag == "abi3" and runtime.free_threaded:
        return Finding(
            "python",
            REJECTED,
            here,
            "a Python with the global interpreter lock (abi3)",
            why="a limited-API module does not load in a free-threaded Python",
            fix=fix,
            fault=faults.REGISTERED_TWICE,
        )
    if tag == "abi3":
        return Finding("python", OK, here, "any CPython 3 (abi3)")
    if tag.startswith("cpython-") and not (tag + "-").startswith(own + "-"):
        return Finding(
            "python",
            REJECTED,
            here,
            tag,
            why=f"{binary.file} was built for another Python: this one does not even see it "
            "(ModuleNotFoundError)",
            fix=fix,
            fault=faults.PACKAGE_FILES,
        )
    return Finding("python", OK if tag else NOTE, here, tag or "not said by the file's name")


def system_libraries(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
    for family, version in sorted(binary.floors.items()):
        needed = f"{family}_{dotted(version)}"
        if family == "GLIBC":
            if runtime.libc is None:
                continue  # another platform, which has its own finding
            dimension, name = "glibc", runtime.libc[0]
            have = runtime.libc[1] if name == "glibc" else None
            observed = f"{name} {dotted(have) if have else ''}".strip()
        else:
            dimension, have = "libstdc++", (runtime.libstdcxx or {}).get(family)
            observed = f"{family}_{dotted(have)}" if have else "not known"
        if have is not None and have >= version:
            yield Finding(dimension, OK, observed, needed)
        elif have is None and family != "GLIBC":
            why = "no libstdc++ could be read; the dynamic linker reports one that is too old"
            yield Finding(dimension, NOTE, observed, needed, why)
        else:
            yield Finding(
                dimension,
                REJECTED,
                observed,
                needed,
                why=f"the {dimension} of this system is older than {binary.file} needs",
                fix=fixes.system_libraries(runtime, family)
                if ours(binary)
                else fixes.other_torch_for(binary, runtime),
                fault=faults.SYSTEM_LIBRARIES,
            )


def registration(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
    if binary.kind == "glue" and runtime.registered_by is not None:
        other = printable(runtime.registered_by)
        yield Finding(
            "op registration",
            REJECTED,
            f"already registered by {other}",
            "torch.ops.lltm registered once",
            why="another copy of lltm is loaded in this process",
            fix=fixes.remove_duplicate(runtime, other),
            fault=faults.REGISTERED_TWICE,
        )
