"""Dimensions of the file and the host: whole files, platform, Python, system libraries, the op."""

from __future__ import annotations

from collections.abc import Iterator

from . import faults, fixes, support
from .binary import is_torch_symbol
from .fixes import ours
from .records import REJECTED, BinaryRecord, Finding, Runtime, dotted
from .text import printable, some

_OF_PYTHON = ("Py", "_Py", "import ")


def whole_file(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
    wanted = "a whole shared object"
    if binary.kind == "unreadable" or binary.problems:
        why = f"{binary.file} is damaged or not what its name says: {binary.problems[0]}"
        fix, observed = fixes.put_back(binary, runtime), "; ".join(binary.problems)
        if observed == "Permission denied":
            why, fix = f"{binary.file} is not readable by this user", f"chmod a+r {binary.path}"
        yield Finding.rejected("file", observed, wanted, why, fix, faults.PACKAGE_FILES)
        return
    yield Finding.ok("file", f"{binary.size} bytes", wanted)
    record, version, table = binary.record, runtime.package_version, runtime.kernel_abi
    if record is None or not version:
        return
    if record.package != runtime.project.distribution:
        sides = f"a binary of {record.package}", f"one of {runtime.project.distribution}"
        why = f"{binary.file} belongs to {record.package}"
        yield _same("package", False, sides, why, runtime)
        return
    sides = f"binary {record.version}", f"{version}, as the Python files"
    why = f"{binary.file} is left over from version {record.version}"
    yield _same("package version", record.version == version, sides, why, runtime)
    if record.kind == "kernels" and table is not None:
        sides = f"version {record.kernel_abi}", f"version {table}, as the glue"
        why = f"{binary.file} comes from another build than the glue"
        yield _same("kernel table", record.kernel_abi == table, sides, why, runtime)


def _same(
    dimension: str, same: bool, sides: tuple[str, str], why: str, runtime: Runtime
) -> Finding:
    """Compares two files of the package, which must come from the same build."""
    if same:
        return Finding.ok(dimension, *sides)
    return Finding.rejected(dimension, *sides, why, fixes.reinstall(runtime), faults.PACKAGE_FILES)


def platform(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    here, built = runtime.platform, binary.platform or support.FIRST
    musl = any(name.startswith("libc.musl") for name in binary.needed)
    if here == built and not (musl and runtime.libc is not None and runtime.libc[0] == "glibc"):
        return Finding.ok("platform", here, built)
    why, fix = f"{binary.file} was built for {built}, this is {here}", ""
    if here == built:
        here, built = f"{here}, glibc", f"{built}, musl"
        why = f"{binary.file} was built for musl (Alpine), this system has glibc"
    elif ours(binary, runtime):
        project, known = runtime.project, support.load(runtime.project.folder).platforms
        wheel = f"{project.distribution}-{project.version}-py3-none-manylinux_*_{runtime.machine}"
        fix = fixes.reinstall(runtime, f"install {wheel}.whl, or: {fixes.build(project)}")
        if here not in known:
            why = f"there is no binary for {here}; binaries are built for {' and '.join(known)}"
            fix = fixes.without_binaries(project)
    return Finding.rejected("platform", here, built, why, fix or fixes.put_back(binary, runtime))


def pages(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    """Linux kernels for aarch64 have pages of 4, 16 or 64 kB; segments must be aligned to pages."""
    have, page = binary.alignment, runtime.page_size
    if not have or not page or binary.platform != runtime.platform:
        return None
    observed, needed = f"pages of {page} bytes", f"pages of at most {have} bytes"
    if have % page == 0:
        return Finding.ok("page size", observed, needed)
    why = f"{binary.file} was linked for pages of {have} bytes, this kernel's have {page}"
    fix = fixes.rebuild(binary, runtime)
    if ours(binary, runtime):
        fix = f"LDFLAGS=-Wl,-z,max-page-size={page} {fix}"
    return Finding.rejected("page size", observed, needed, why, fix, faults.SYSTEM_LIBRARIES)


def python(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    here = f"{runtime.implementation} {dotted(runtime.python)}"
    if runtime.free_threaded:
        here += " free-threaded"
    floor = support.load(runtime.project.folder).python_min
    anything = "any Python (no Python symbol is used)"
    absent = [name for name in _missing(binary, runtime) if name.startswith(_OF_PYTHON)]
    if binary.modules and not ours(binary, runtime):
        tag = _module_tag(binary, runtime, here)
        if tag.status == REJECTED or not absent:
            return tag
    if absent and absent[0].startswith("import "):
        package = absent[0].partition(" ")[2]
        why = f"{binary.file} imports {package}, which was not found"
        fix = fixes.install(runtime.environment, package, package)
        return Finding.unknown("python", f"no {package} was found", package, why, fix)
    if absent and not ours(binary, runtime):
        why = f"{binary.file} was built for another Python: this one has no {absent[0]}"
        fix = fixes.put_back(binary, runtime)
        return Finding.rejected("python", here, some(absent), why, fix, faults.PACKAGE_FILES)
    if ours(binary, runtime) and runtime.python[:2] < floor:
        needed = f"Python >= {dotted(floor)}"
        why = f"Python {dotted(runtime.python[:2])} is older than the oldest that is supported"
        fix = f"create an environment with Python {dotted(floor)} or newer"
        return Finding.rejected("python", here, needed, why, fix)
    return Finding.ok("python", here, anything)


def _module_tag(binary: BinaryRecord, runtime: Runtime, here: str) -> Finding:
    """Whether this Python imports a module of this name, `x.cpython-311-*.so` or `x.abi3.so`."""
    _, _, tag = binary.file.removesuffix(".so").partition(".")
    if tag == "abi3" and runtime.free_threaded:
        needed, fault = "a Python with the global interpreter lock (abi3)", faults.REGISTERED_TWICE
        why = "a limited-API module does not load in a free-threaded Python"
    elif tag.startswith("cpython-") and not f"{tag}-".startswith(runtime.python_tag):
        needed, fault = tag, faults.PACKAGE_FILES
        why = (
            f"{binary.file} was built for another Python: this one does not find a file of this "
            "name (ModuleNotFoundError)"
        )
    else:
        said = {"abi3": "any CPython 3 (abi3)", "": "not said by the file's name"}.get(tag, tag)
        return Finding.ok("python", here, said) if tag else Finding.note("python", here, said, "")
    return Finding.rejected("python", here, needed, why, fixes.put_back(binary, runtime), fault)


def _missing(binary: BinaryRecord, runtime: Runtime) -> tuple[str, ...]:
    return runtime.missing.get(str(binary.path), ())


def symbols(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    """Missing symbols that neither torch nor Python should define."""
    absent = [
        name
        for name in _missing(binary, runtime)
        if not is_torch_symbol(name.encode()) and not name.startswith(_OF_PYTHON)
    ]
    if not absent:
        return None
    observed = f"{len(absent)} missing: {some(absent)}"
    why = f"no library that {binary.file} needs defines {absent[0][:200]}"
    fix, fault = fixes.rebuild(binary, runtime), faults.SYSTEM_LIBRARIES
    return Finding.rejected("symbols", observed, "all found", why, fix, fault)


def system_library(family: str, binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    """One of the families of symbol versions: `GLIBC`, `GLIBCXX` or `CXXABI`."""
    version = binary.floors.get(family)
    if version is None or (family == "GLIBC" and runtime.libc is None):
        return None  # on another platform, `platform` has rejected it
    needed, dimension = f"{family}_{dotted(version)}", "libstdc++"
    have = (runtime.libstdcxx or {}).get(family)
    observed = f"{family}_{dotted(have)}" if have else "not known"
    if family == "GLIBC" and runtime.libc is not None:
        dimension, name = "glibc", runtime.libc[0]
        have = runtime.libc[1] if name == "glibc" else None
        observed = f"{name} {dotted(have) if have else ''}".strip()
    if have is not None and have >= version:
        return Finding.ok(dimension, observed, needed)
    if have is None and family != "GLIBC":
        why = "no libstdc++ could be read; the dynamic linker reports one that is too old"
        return Finding.note(dimension, observed, needed, why)
    why = f"the {dimension} of this system is older than {binary.file} needs"
    fix, fault = fixes.system_libraries(binary, runtime, family), faults.SYSTEM_LIBRARIES
    return Finding.rejected(dimension, observed, needed, why, fix, fault)


def registration(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    if binary.kind != "glue" or runtime.registered_by is None:
        return None
    other, operators = printable(runtime.registered_by), runtime.project.operators
    observed, needed = f"already registered by {other}", f"{operators} registered once"
    why = f"another copy of {runtime.project.distribution} is loaded in this process"
    fix, fault = fixes.remove_duplicate(runtime, other), faults.REGISTERED_TWICE
    return Finding.rejected("op registration", observed, needed, why, fix, fault)
