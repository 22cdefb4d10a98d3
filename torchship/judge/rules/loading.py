"""Rules about what the dynamic linker minds besides missing libraries and symbols of the object."""

from __future__ import annotations

from typing import TypeVar

from .. import fixes
from ..reading.binary import is_torch_symbol
from ..records import (
    NOTE,
    REJECTED,
    UNKNOWN,
    BinaryRecord,
    BroughtIn,
    ExecutableStack,
    Finding,
    LinkFault,
    MissingSymbolVersion,
    NotLinked,
    RefusedLibrary,
    Runtime,
    StaticTls,
    UndefinedSymbols,
)
from ..text import printable, quoted, some
from ..words import codes
from .rule import NEEDS_LINKS, Check, Rule

#: From this version on, glibc makes the stack of a running program executable for no library.
_GLIBC_KEEPS_THE_STACK = (2, 41)
#: glibc keeps up to so many bytes of static thread-local storage more than it promises.
_STATIC_TLS_SLACK = 192


_Fault = TypeVar("_Fault", bound=LinkFault)


def _faults(binary: BinaryRecord, runtime: Runtime, kind: type[_Fault]) -> list[_Fault]:
    all_faults = runtime.link_faults.get(str(binary.path), ())
    return [fault for fault in all_faults if isinstance(fault, kind)]


def check_first_library(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    """Does LD_LIBRARY_PATH or LD_PRELOAD bring in another library, without which all loads?"""
    overrides = _faults(binary, runtime, BroughtIn)
    if not overrides:
        return None
    variable = overrides[0].variable
    library = overrides[0].file
    return Finding(
        status=REJECTED,
        code=codes.OTHER_LIBRARY_FIRST,
        observed=f"{printable(library)}, by {variable}",
        needed=f"{library.name} of another folder",
        why=f"{variable} brings in {printable(library)}, without which {binary.file} would load",
        fix=fixes.unset(variable),
    )


def check_refused_library(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    """Is a file that the dynamic linker finds as a library none?"""
    refused = _faults(binary, runtime, RefusedLibrary)
    if not refused:
        return None
    file = refused[0].file
    reason = refused[0].reason
    return Finding(
        status=REJECTED,
        code=codes.LIBRARY_REFUSED,
        observed=f"{printable(file)}: {reason}",
        needed="a shared library",
        why=f"{binary.file} needs {file.name}, and {printable(file)} is not a library ({reason})",
        fix=fixes.fix_for(fixes.Wrong.FILES, binary, runtime),
    )


def check_symbol_versions(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    """Do the libraries define the symbol versions that are needed of them?"""
    missing = _faults(binary, runtime, MissingSymbolVersion)
    if not missing:
        return None
    first = missing[0]
    version = first.version
    needed_by = printable(first.file.name)
    library = printable(first.library)
    return Finding(
        status=REJECTED,
        code=codes.LIBRARY_VERSION,
        observed=f"{len(missing)} missing: {version} in {library}",
        needed=version,
        why=f"{needed_by} needs the version {version}, which {library} does not have",
        fix=fixes.fix_for(fixes.Wrong.BUILD, binary, runtime),
    )


def check_symbols_of_libraries(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    """Do the libraries that the binary needs find the symbols that they need themselves?"""
    missing = _faults(binary, runtime, UndefinedSymbols)
    if not missing:
        return None
    library = printable(missing[0].file.name)
    names = missing[0].names
    of_torch = [name for name in names if is_torch_symbol(name.encode())]
    why = f"{library}, which {binary.file} needs, needs {names[0][:200]}: nothing defines it"
    if of_torch and runtime.torch is not None:
        why = (
            f"torch {runtime.torch.version} lacks symbols that {library} needs, "
            f"which {binary.file} needs"
        )
    return Finding(
        status=REJECTED,
        code=codes.TORCH_LACKS_SYMBOLS if of_torch else codes.SYMBOL_MISSING,
        observed=f"{len(names)} missing in {library}: {some(of_torch or names)}",
        needed="all found",
        why=why,
        fix=fixes.fix_for(fixes.Wrong.BUILD, binary, runtime),
    )


def check_links_to_torch(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    """Does a file use symbols of a library of torch that it does not name?"""
    unlinked = _faults(binary, runtime, NotLinked)
    if not unlinked or runtime.torch is None:
        return None
    first = unlinked[0]
    libraries = [printable(fault.library.name) for fault in unlinked]
    name = printable(first.file.name)
    names = [symbol for fault in unlinked for symbol in fault.names]
    return Finding(
        status=REJECTED,
        code=codes.NOT_LINKED,
        observed=f"{len(names)} of torch's symbols are not found: {some(names)}",
        needed=f"linked with {some(libraries)}",
        why=f"{name} is not linked with {libraries[0]} of torch {runtime.torch.version}, which "
        f"has {first.names[0][:200]}",
        fix=fixes.share_torch(libraries),
    )


def check_executable_stack(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    """Does a file ask for an executable stack, which new versions of glibc refuse?"""
    asking = _faults(binary, runtime, ExecutableStack)
    if not asking or runtime.libc is None or runtime.libc[0] != "glibc":
        return None
    file = asking[0].file
    is_refused = runtime.libc[1] >= _GLIBC_KEEPS_THE_STACK
    name = printable(file.name)
    why = f"{name} asks for an executable stack"
    why += ", which this glibc refuses" if is_refused else "; glibc 2.41 and later refuse that"
    return Finding(
        status=REJECTED if is_refused else NOTE,
        code=codes.EXECUTABLE_STACK,
        observed="an executable stack is asked for",
        needed="a file that asks for none",
        why=why,
        fix=fixes.command_in_words(
            fixes.Kind.CLEAR_STACK,
            "with patchelf 0.18 or newer: {command}",
            f"patchelf --clear-execstack {quoted(file)}",
        ),
    )


def check_static_tls(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    """Is there room for thread-local storage that must lie in the static block?"""
    found = _faults(binary, runtime, StaticTls)
    if not found:
        return None
    bytes_needed = found[0].needed
    bytes_left = found[0].left
    if 2 * bytes_needed < bytes_left:
        return None
    status = NOTE
    if bytes_needed > bytes_left:
        status = REJECTED if bytes_needed > bytes_left + _STATIC_TLS_SLACK else UNKNOWN
    name = printable(found[0].file.name)
    tunable = f"glibc.rtld.optional_static_tls={2 * bytes_needed + 512}"
    return Finding(
        status=status,
        code=codes.STATIC_TLS,
        observed=f"{bytes_left} bytes are left",
        needed=f"{bytes_needed} bytes",
        why=f"{name} needs static thread-local storage, of which little is left at run time",
        fix=fixes.command_alone(fixes.Kind.ENLARGE_TLS, f"export GLIBC_TUNABLES={tunable}"),
    )


def _rule(dimension: str, code: codes.Code, check: Check, *others: codes.Code) -> Rule:
    return Rule(dimension=dimension, codes=(code, *others), check=check, needs=(NEEDS_LINKS,))


FIRST_LIBRARY = _rule("libraries", codes.OTHER_LIBRARY_FIRST, check_first_library)
REFUSED_LIBRARY = _rule("libraries", codes.LIBRARY_REFUSED, check_refused_library)
SYMBOL_VERSIONS = _rule("symbol versions", codes.LIBRARY_VERSION, check_symbol_versions)
SYMBOLS_OF_LIBRARIES = _rule(
    "symbols", codes.SYMBOL_MISSING, check_symbols_of_libraries, codes.TORCH_LACKS_SYMBOLS
)
LINKS_TO_TORCH = _rule("torch symbols", codes.NOT_LINKED, check_links_to_torch)
EXECUTABLE_STACK = _rule("executable stack", codes.EXECUTABLE_STACK, check_executable_stack)
STATIC_TLS = _rule("static TLS", codes.STATIC_TLS, check_static_tls)
