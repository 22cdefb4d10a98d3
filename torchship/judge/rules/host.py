"""Rules about the machine and the Python that would load a file."""

from __future__ import annotations

from functools import partial

from .. import fixes, support
from ..records import (
    NOTE,
    OK,
    REJECTED,
    UNKNOWN,
    BinaryRecord,
    Finding,
    Runtime,
    dotted,
)
from ..text import printable, some
from ..words import codes
from .rule import Rule

#: PEP 803: this Python is the first that imports `x.abi3t.so`, free-threaded or not. It is also the
#: first that imports names with a platform, such as `x.abi3-x86_64-linux-gnu.so`.
FIRST_WITH_ABI3T = (3, 15)
#: How the tags of modules for other implementations than CPython start.
_OTHER_IMPLEMENTATIONS = ("pypy", "graalpy", "graalpython", "cp3")
STARTS_OF_PYTHON_SYMBOLS = ("Py", "_Py")


def check_platform(binary: BinaryRecord, runtime: Runtime) -> Finding:
    platform = runtime.platform
    built_for = binary.platform or support.FIRST
    on_glibc = runtime.libc is not None and runtime.libc[0] == "glibc"
    for_musl = any(name.startswith("libc.musl") for name in binary.needed)
    if platform == built_for and not (for_musl and on_glibc):
        return Finding(status=OK, observed=platform, needed=built_for)
    why = f"{binary.file} was built for {built_for}, but this is {platform}"
    fix = fixes.fix_for(fixes.Wrong.FILES, binary, runtime)
    code = codes.OTHER_PLATFORM
    if platform == built_for:
        code = codes.MUSL
        platform = f"{platform}, glibc"
        built_for = f"{built_for}, musl"
        why = f"{binary.file} was built for musl (Alpine), but this system has glibc"
    elif runtime.is_ours(binary):
        platforms = support.load(runtime.project.folder).platforms
        fix = fixes.install_for_platform(runtime)
        if platform not in platforms:
            served = " and ".join(platforms)
            why = f"there is no binary for {platform}; binaries are built for {served}"
            fix = fixes.without_binaries(runtime.project)
    return Finding(
        status=REJECTED,
        code=code,
        observed=platform,
        needed=built_for,
        why=why,
        fix=fix,
    )


def check_page_size(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    """Are the segments aligned to pages? Pages of Linux on aarch64 have 4, 16 or 64 kB."""
    alignment = binary.alignment
    page_size = runtime.page_size
    if not alignment or not page_size or binary.platform != runtime.platform:
        return None
    observed = f"pages of {page_size} bytes"
    requirement = f"pages of at most {alignment} bytes"
    if alignment % page_size == 0:
        return Finding(status=OK, observed=observed, needed=requirement)
    fix = fixes.fix_for(fixes.Wrong.BUILD, binary, runtime)
    if runtime.is_ours(binary):
        fix = fixes.in_words(f"build it here, with -Wl,-z,max-page-size={page_size} in LDFLAGS")
    return Finding(
        status=REJECTED,
        code=codes.PAGE_SIZE,
        observed=observed,
        needed=requirement,
        why=(
            f"{binary.file} was linked for pages of {alignment} bytes, "
            f"but this kernel has {page_size}"
        ),
        fix=fix,
    )


def check_file_system(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    """May the files of this file system be executed?"""
    if binary.noexec is None:
        return None
    mount = printable(binary.noexec)
    return Finding(
        status=REJECTED,
        code=codes.EXECUTION_FORBIDDEN,
        observed=f"{mount} is mounted with noexec",
        needed="a file system whose files may be executed",
        why=f"{binary.file} lies in {mount}, a file system from which nothing may be executed",
        fix=fixes.allow_execution(binary.noexec),
    )


def check_python(binary: BinaryRecord, runtime: Runtime) -> Finding:
    flavour = " free-threaded" if runtime.free_threaded else ""
    interpreter = f"{runtime.implementation} {dotted(runtime.python)}{flavour}"
    if runtime.is_ours(binary):
        return _check_supported_python(binary, runtime, interpreter)
    absent = _absent_of_python(binary, runtime)
    if binary.modules:
        by_name = _check_module_name(binary, runtime, interpreter)
        if by_name.status == REJECTED or not absent:
            return by_name
    if not absent:
        return _any_python(interpreter)
    return Finding(
        status=REJECTED,
        code=codes.OTHER_PYTHON,
        observed=interpreter,
        needed=some(absent),
        why=f"{binary.file} was built for another Python: this one has no {absent[0]}",
        fix=fixes.fix_for(fixes.Wrong.FILES, binary, runtime),
    )


def _absent_of_python(binary: BinaryRecord, runtime: Runtime) -> list[str]:
    """The symbols of Python that were not found."""
    missing = runtime.missing_symbols.get(str(binary.path), ())
    return [name for name in missing if name.startswith(STARTS_OF_PYTHON_SYMBOLS)]


def _any_python(interpreter: str) -> Finding:
    return Finding(
        status=OK,
        observed=interpreter,
        needed="any Python (no Python symbol is used)",
    )


def _check_supported_python(binary: BinaryRecord, runtime: Runtime, interpreter: str) -> Finding:
    """Is this Python new enough for the project? Its binaries use no symbol of Python."""
    oldest = support.load(runtime.project.folder).python_min
    if runtime.python[:2] >= oldest:
        return _any_python(interpreter)
    return Finding(
        status=REJECTED,
        code=codes.PYTHON_TOO_OLD,
        observed=interpreter,
        needed=f"Python >= {dotted(oldest)}",
        why=f"Python {dotted(runtime.python[:2])} is older than the oldest that is supported",
        fix=fixes.in_words(f"create an environment with Python {dotted(oldest)} or newer"),
    )


def _check_module_name(binary: BinaryRecord, runtime: Runtime, interpreter: str) -> Finding:
    """Does this Python import a file with such a name as `x.cpython-311-*.so` or `x.abi3.so`?"""
    stem, _, tag = binary.file.removesuffix(".so").partition(".")
    if not tag:
        if _is_of_a_wheel_for_another_python(binary):
            return _wheel_of_another_python(binary, runtime, interpreter)
        return Finding(
            status=NOTE,
            code=codes.PYTHON_NOT_NAMED,
            observed=interpreter,
            needed="not said by the file's name",
        )
    if _limited_api(tag) == "abi3" and runtime.free_threaded:
        requirement = "a Python with the global interpreter lock (abi3)"
        why = "a limited-API module does not load in a free-threaded Python"
        code = codes.FREE_THREADED
    elif _limited_api(tag) and tag != "abi3" and runtime.python[:2] < FIRST_WITH_ABI3T:
        first = dotted(FIRST_WITH_ABI3T)
        requirement = f"Python >= {first} ({tag})"
        why = f"this Python does not find {binary.file}: Python {first} is the first that does"
        code = codes.OTHER_PYTHON
    elif _is_of_another_python(tag, runtime):
        requirement = tag
        why = f"this Python does not find {binary.file}, built for another (ModuleNotFoundError)"
        code = codes.OTHER_PYTHON
    elif stem not in binary.modules and not _registers_operators(binary):
        requirement = f"the module {stem}, as the file is named"
        why = (
            f"{binary.file} defines the module {some(binary.modules, 1)}, and not {stem}, after "
            "which it is named: Python finds no function to call in it"
        )
        code = codes.MODULE_RENAMED
    elif _limited_api(tag) or tag.startswith(runtime.python_tag):
        interpreters = "any CPython 3 (abi3)" if tag == "abi3" else tag
        return Finding(status=OK, observed=interpreter, needed=interpreters)
    else:
        return _unknown_tag(binary, interpreter, tag)
    return Finding(
        status=REJECTED,
        code=code,
        observed=interpreter,
        needed=requirement,
        why=why,
        fix=fixes.fix_for(fixes.Wrong.FILES, binary, runtime),
    )


def _is_of_a_wheel_for_another_python(binary: BinaryRecord) -> bool:
    return binary.owner is not None and binary.owner.is_for_another_python


def _wheel_of_another_python(binary: BinaryRecord, runtime: Runtime, interpreter: str) -> Finding:
    tags = some(binary.owner.wheel_tags, 1) if binary.owner is not None else ""
    return Finding(
        status=REJECTED,
        code=codes.OTHER_PYTHON,
        observed=interpreter,
        needed=tags,
        why=f"{binary.file} came with a wheel for another Python ({tags})",
        fix=fixes.fix_for(fixes.Wrong.FILES, binary, runtime),
    )


def _registers_operators(binary: BinaryRecord) -> bool:
    """Whether it may be a file for torch.ops.load_library, which calls no function of a module."""
    return any("5torch7Library" in name for name in binary.torch_symbols)


def _limited_api(tag: str) -> str:
    """`abi3` or `abi3t`, which a tag names alone or before a platform; "" for other tags."""
    name = tag.partition("-")[0]
    return name if name in ("abi3", "abi3t") else ""


def _is_of_another_python(tag: str, runtime: Runtime) -> bool:
    """Whether a tag is that of a Python, and not of this one: of another version, another C
    library or another implementation."""
    if tag.startswith(_OTHER_IMPLEMENTATIONS):
        return True
    limited_api = _limited_api(tag)
    if not limited_api and not tag.startswith("cpython-"):
        return False
    is_on_glibc = runtime.libc is not None and runtime.libc[0] == "glibc"
    is_for_musl = is_on_glibc and tag.endswith("-musl")
    return is_for_musl or not (limited_api or tag.startswith(runtime.python_tag))


def _unknown_tag(binary: BinaryRecord, interpreter: str, tag: str) -> Finding:
    return Finding(
        status=UNKNOWN,
        code=codes.PYTHON_NOT_NAMED,
        observed=interpreter,
        needed=f"a Python whose modules end in .{tag[:80]}.so",
        why=(
            f"no Python that is known imports a file named {binary.file}; "
            "its package may open it by its path"
        ),
    )


def check_glibc(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    floor = binary.floors.get("GLIBC")
    if floor is None or runtime.libc is None:
        return None  # `check_platform` rejects a binary of another platform
    name, version = runtime.libc
    is_glibc = name == "glibc"
    observed = f"{name} {dotted(version)}" if is_glibc and version else name
    requirement = f"GLIBC_{dotted(floor)}"
    if is_glibc and version >= floor:
        return Finding(status=OK, observed=observed, needed=requirement)
    return Finding(
        status=REJECTED,
        code=codes.GLIBC_TOO_OLD,
        observed=observed,
        needed=requirement,
        why=f"{binary.file} needs a newer glibc than this system has",
        fix=fixes.fix_for(fixes.Wrong.MACHINE, binary, runtime),
    )


def check_libstdcxx(family: str, binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    """Is libstdc++ new enough? `family` is `GLIBCXX` or `CXXABI`."""
    floor = binary.floors.get(family)
    if floor is None:
        return None
    requirement = f"{family}_{dotted(floor)}"
    newest = (runtime.libstdcxx or {}).get(family)
    if newest is None:
        return Finding(
            status=NOTE,
            code=codes.LIBSTDCXX_UNKNOWN,
            observed="not known",
            needed=requirement,
            why="no libstdc++ could be read; if it is too old, the dynamic linker says so",
        )
    observed = f"{family}_{dotted(newest)}"
    if newest >= floor:
        return Finding(status=OK, observed=observed, needed=requirement)
    return Finding(
        status=REJECTED,
        code=codes.LIBSTDCXX_TOO_OLD,
        observed=observed,
        needed=requirement,
        why=f"{binary.file} needs a newer libstdc++ than this system has",
        fix=fixes.newer_libstdcxx(binary, runtime),
    )


PLATFORM = Rule(
    rank=200,
    dimension="platform",
    codes=(codes.OTHER_PLATFORM, codes.MUSL),
    check=check_platform,
    ends=True,
)
PAGE_SIZE = Rule(rank=210, dimension="page size", codes=(codes.PAGE_SIZE,), check=check_page_size)
FILE_SYSTEM = Rule(
    rank=220, dimension="file system", codes=(codes.EXECUTION_FORBIDDEN,), check=check_file_system
)
PYTHON = Rule(
    rank=230,
    dimension="python",
    codes=(
        codes.OTHER_PYTHON,
        codes.FREE_THREADED,
        codes.PYTHON_TOO_OLD,
        codes.PYTHON_NOT_NAMED,
        codes.MODULE_RENAMED,
    ),
    check=check_python,
)
GLIBC = Rule(rank=420, dimension="glibc", codes=(codes.GLIBC_TOO_OLD,), check=check_glibc)
CXXABI = Rule(
    rank=410,
    dimension="libstdc++",
    codes=(codes.LIBSTDCXX_TOO_OLD, codes.LIBSTDCXX_UNKNOWN),
    check=partial(check_libstdcxx, "CXXABI"),
)
GLIBCXX = CXXABI._replace(rank=430, check=partial(check_libstdcxx, "GLIBCXX"))
