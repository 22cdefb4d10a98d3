"""Rules about what the dynamic linker minds besides missing libraries and symbols of the object."""

from __future__ import annotations

from .. import fixes
from ..reading.binary import is_torch_symbol
from ..records import NOTE, REJECTED, UNKNOWN, BinaryRecord, Finding, Runtime
from ..text import printable, quoted, some
from ..words import codes
from .rule import NEEDS_LINKS, NEEDS_SYMBOLS_OF_LIBRARIES, Check, Rule, opening_of

#: From this version on, glibc makes the stack of a running program executable for no library.
_GLIBC_KEEPS_THE_STACK = (2, 41)
#: glibc keeps up to so many bytes of static thread-local storage more than it promises.
_STATIC_TLS_SLACK = 192


def check_first_library(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    """Does LD_LIBRARY_PATH or LD_PRELOAD bring in another library, without which all loads?"""
    brought_in = opening_of(binary, runtime).brought_in
    if brought_in is None:
        return None
    variable = brought_in.variable
    library = brought_in.file
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
    refused = opening_of(binary, runtime).refused
    if not refused:
        return None
    file = refused[0].path
    reason = refused[0].why
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
    missing = opening_of(binary, runtime).versions
    if not missing:
        return None
    first = missing[0]
    version = first.version
    needed_by = printable(first.needed_by.name)
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
    opening = opening_of(binary, runtime)
    needing = next((path for path in opening.symbols if path != opening.files[0]), None)
    if needing is None:
        return None
    library = printable(needing.name)
    names = opening.symbols[needing]
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
    unlinked = opening_of(binary, runtime).not_linked
    if not unlinked or runtime.torch is None:
        return None
    first = unlinked[0]
    libraries = [printable(part.library.name) for part in unlinked]
    name = printable(first.file.name)
    names = [symbol for part in unlinked for symbol in part.names]
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
    opening = opening_of(binary, runtime)
    if opening.executable_stack is not False:
        return None  # the process has one, or it cannot be told
    asking = (path for path, header in opening.new.items() if header.executable_stack is not False)
    file = next(asking, None)
    if file is None or runtime.libc is None or runtime.libc[0] != "glibc":
        return None
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
    opening = opening_of(binary, runtime)
    bytes_needed = sum(header.static_tls for header in opening.new.values())
    bytes_left = opening.static_tls_left
    if not bytes_needed or 2 * bytes_needed < bytes_left:
        return None
    largest = max(opening.new, key=lambda path: opening.new[path].static_tls)
    status = NOTE
    if bytes_needed > bytes_left:
        status = REJECTED if bytes_needed > bytes_left + _STATIC_TLS_SLACK else UNKNOWN
    name = printable(largest.name)
    tunable = f"glibc.rtld.optional_static_tls={2 * bytes_needed + 512}"
    return Finding(
        status=status,
        code=codes.STATIC_TLS,
        observed=f"{bytes_left} bytes are left",
        needed=f"{bytes_needed} bytes",
        why=f"{name} needs static thread-local storage, of which little is left at run time",
        fix=fixes.command_alone(fixes.Kind.ENLARGE_TLS, f"export GLIBC_TUNABLES={tunable}"),
    )


def _rule(rank: int, dimension: str, check: Check, *found: codes.Code) -> Rule:
    return Rule(rank=rank, dimension=dimension, codes=found, check=check, needs=(NEEDS_LINKS,))


def _rule_on_symbols(rank: int, dimension: str, check: Check, *found: codes.Code) -> Rule:
    needs = (NEEDS_LINKS, NEEDS_SYMBOLS_OF_LIBRARIES)
    return _rule(rank, dimension, check, *found)._replace(needs=needs)


FIRST_LIBRARY = _rule_on_symbols(400, "libraries", check_first_library, codes.OTHER_LIBRARY_FIRST)
REFUSED_LIBRARY = _rule(630, "libraries", check_refused_library, codes.LIBRARY_REFUSED)
SYMBOL_VERSIONS = _rule(650, "symbol versions", check_symbol_versions, codes.LIBRARY_VERSION)
SYMBOLS_OF_LIBRARIES = _rule_on_symbols(
    660, "symbols", check_symbols_of_libraries, codes.SYMBOL_MISSING, codes.TORCH_LACKS_SYMBOLS
)
LINKS_TO_TORCH = _rule_on_symbols(670, "torch symbols", check_links_to_torch, codes.NOT_LINKED)
EXECUTABLE_STACK = _rule(680, "executable stack", check_executable_stack, codes.EXECUTABLE_STACK)
STATIC_TLS = _rule(690, "static TLS", check_static_tls, codes.STATIC_TLS)
