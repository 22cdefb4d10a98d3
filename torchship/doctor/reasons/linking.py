"""Reason: the dynamic linker refuses an object, by the judge's rules and by what it told."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ...judge import fixes
from ...judge.machine.mounts import forbidding_mount
from ...judge.project import Record
from ...judge.reading.binary import read_binary
from ...judge.reading.elf import Elf, ElfError, VersionNeed
from ...judge.records import REJECTED, Finding, Fix, Verdict
from ...judge.rules import RULES
from ...judge.text import is_file, printable
from ...judge.words import codes
from ..checks.packages import get_its_binaries
from ..environment.owner import find_owner, is_shared_object_name
from ..fixes.mending import install
from ..looking.linker_log import LinkerError, LinkerLog
from ..looking.seen import DIED, ENDED
from .case import Case

_OF_TORCH_OR_CUDA = re.compile(r"\blib(torch|c10|cu\w|nv\w|nccl)\w*\.so")
_VARIABLE = "LD_LIBRARY_PATH"
_BUILT_OTHERWISE = (codes.OTHER_TORCH, codes.OTHER_CXX_ABI, codes.TORCH_LACKS_SYMBOLS)
_OF_NVIDIA = re.compile(r"lib(cu|nv|nccl)\w*\.so")
_NO_LIBRARY = re.compile(r"(\S{1,300}?): cannot open shared object file: No such file")
_NO_SYMBOL = re.compile(r"(\S{1,1000}?): undefined symbol: ([\w$.@]{1,1000})")
#: A symbol with this version is no part of what glibc promises.
_OF_ONE_GLIBC = re.compile(
    r"(/[^\s:]{1,1000}): (?:undefined symbol: \S{1,1000}, version GLIBC_PRIVATE"
    r"|version [`']GLIBC_PRIVATE' not found)"
)
_NO_VERSION = re.compile(r"(\S{1,1000}?): version [`'](\S{1,200})' not found")
_BLAMED = re.compile(r"(/[^:'\"]{1,1000}\.so[\w.]*)")
_OF_LINKER = re.compile(
    r"cannot open shared object file|undefined symbol|version [`'].{1,200}' not found"
    r"|file too short|invalid ELF header|wrong ELF class|failed to map segment"
    r"|cannot enable executable stack|static TLS|not page-aligned|does not define module export"
    r"|ELF file (OS|ABI|version)|cannot dynamically load"
)
#: Findings that alone can be meant by some words of the linker.
_MEANT_ALONE: tuple[tuple[str, codes.Code], ...] = (
    ("failed to map segment", codes.EXECUTION_FORBIDDEN),
    ("cannot enable executable stack", codes.EXECUTABLE_STACK),
    ("static TLS", codes.STATIC_TLS),
    *((message.pattern, message.code) for rule in RULES for message in rule.messages),
)
#: Findings that the linker would put in other words than that a symbol is undefined.
_NOT_OF_SYMBOLS = (
    codes.LIBRARY_MISSING,
    codes.LIBRARY_OF_TORCH_MISSING,
    codes.NO_DRIVER,
    codes.GLIBC_TOO_OLD,
    codes.LIBSTDCXX_TOO_OLD,
    codes.EXECUTION_FORBIDDEN,
    codes.STATIC_TLS,
)


def linker_refuses(case: Case) -> Finding | None:
    texts = [error.message for error in case.errors if _is_of_linker(error.message)]
    # What ends the process by itself has tried what it can do without, too.
    if not texts and case.seen.log is not None and case.seen.outcome not in ("worked", ENDED):
        texts = [f"{error.file}: {error.text}" for error in _of_libraries(case.seen.log)]
        texts = [text for text in texts if _is_of_linker(text)]
    if case.seen.outcome == DIED:
        # Of a symbol that is not there nobody dies: libraries ask each other for optional ones.
        texts = [text for text in texts if "undefined symbol" not in text]
    if case.seen.words_of_linker:
        texts.append(case.seen.words_of_linker)
    if not texts:
        return None
    text = texts[-1]  # the innermost is what the linker said
    if case.seen.what == "torch":
        wheels = _of_torchs_wheels(case, text)
        if wheels is not None and wheels.fix.kind == fixes.Kind.INSTALL_REQUIREMENT:
            return wheels  # it was seen that this one is not there
        return _by_torch(case, text) or wheels or _by_text(case, text)
    by_torch = _by_torch(case, text) or _of_two_glibcs(case, text)
    by_torch = by_torch or _other_library_first(case, text)
    return by_torch or _by_objects(case, text) or _by_text(case, text)


def _of_torchs_wheels(case: Case, text: str) -> Finding | None:
    """A library that a wheel of NVIDIA's has, which torch requires."""
    missing = _NO_LIBRARY.search(text)
    torch = case.catalog.named("torch")
    if missing is None or not _OF_NVIDIA.match(Path(missing[1]).name):
        return None
    needs = [*case.catalog.requirements(torch)] if torch is not None else []
    unmet = [need for need in needs if need.name.startswith(("nvidia", "cuda")) and not need.is_met]
    fix = fixes.reinstall_torch(case.runtime.environment, case.runtime.torch)
    if unmet:
        wanted = (need.text for need in unmet)
        fix = install(case.runtime, *wanted)
    return case.finding(
        codes.TORCH_REQUIREMENTS,
        f"torch needs {Path(missing[1]).name}, which a wheel of NVIDIA's has that torch requires",
        needed=", ".join(need.text for need in unmet) or Path(missing[1]).name,
        fix=fix,
    )


def torch_is_for_another_python(case: Case) -> Finding | None:
    """Its module for this Python is not there: what its own Python says then varies."""
    rejection = case.of_torch.rejection if case.of_torch is not None else None
    is_of_python = rejection is not None and rejection.code == codes.TORCH_OF_ANOTHER_PYTHON
    return rejection if case.seen.what == "torch" and is_of_python else None


def _by_torch(case: Case, text: str) -> Finding | None:
    """What is wrong with torch's own libraries, if it is torch that fails."""
    is_torch = case.seen.what == "torch" or "/torch/lib/" in text.partition(".so")[0]
    verdict = case.of_torch
    return verdict.rejection if is_torch and verdict is not None else None


def named_objects(case: Case) -> Iterator[Path]:
    """The objects that the errors or the linker can mean."""
    for error in case.errors:
        yield from _blamed(case, error.message)


def _by_objects(case: Case, text: str) -> Finding | None:
    """The judge's finding on the objects that can be meant."""
    fitting: list[Finding] = []
    others: list[Finding] = []
    for path in dict.fromkeys(_blamed(case, text)):
        findings = rejections_of_loading(case.judge(path))
        fitting += [finding for finding in findings if _goes_with(finding, text)]
        others += findings
    # A library that a variable brings in may itself be what the linker minds.
    brought_in = (one for one in fitting if one.code == codes.OTHER_LIBRARY_FIRST)
    if fitting:
        return next(brought_in, fitting[0])
    # An object that was built for another torch lacks that torch's CUDA as well.
    is_of_torch = _OF_TORCH_OR_CUDA.search(text) is not None
    return next((one for one in others if one.code in _BUILT_OTHERWISE and is_of_torch), None)


class _Lack(Record):
    """What an object asks of a library, and the linker did not find in it."""

    library: str  #: by the name under which it is asked for
    what: str
    is_version: bool = False

    def is_in(self, path: Path) -> bool:
        """Whether a library has it."""
        if not is_file(path):
            return False
        with suppress(ElfError, OSError), Elf(path) as elf:
            return (
                self.what in elf.version_definitions()
                if self.is_version
                else elf.defines(self.what)
            )
        return False


def _other_library_first(case: Case, text: str) -> Finding | None:
    """A library that LD_LIBRARY_PATH names lacks a symbol or a version of symbols, and one of its
    name further on has it, as where a cluster's modules bring several releases of a library."""
    log = case.seen.log
    if log is None:
        return None
    folders = [Path(folder) for folder in os.environ.get(_VARIABLE, "").split(":") if folder]
    for lack in _lacks(case, log, text):
        taken = Path(log.found.get(lack.library, ""))
        if taken.parent not in folders or lack.is_in(taken):
            continue
        later = folders[folders.index(taken.parent) + 1 :]
        right = next((f / lack.library for f in later if lack.is_in(f / lack.library)), None)
        if right is not None:
            what = f"the version {lack.what}" if lack.is_version else lack.what
            return case.finding(
                codes.OTHER_LIBRARY_FIRST,
                f"{_VARIABLE} brings in {taken}, which lacks {what}, before {right}, which has it",
                observed=str(taken),
                needed=str(right),
                fix=fixes.set_variable(_VARIABLE, f'"{right.parent}:${_VARIABLE}"'),
            )
    return None


def _of_two_glibcs(case: Case, text: str) -> Finding | None:
    """What only libraries of one and the same glibc ask of each other."""
    match = _OF_ONE_GLIBC.search(text)
    if match is None:
        return None
    library = Path(match[1])
    log = case.seen.log
    libc = log.found.get("libc.so.6", "") if log is not None else ""
    needing = log.needed_by.get(library.name, "") if log is not None else ""
    by = f", which {Path(needing).name} brings in," if needing else ""
    return case.finding(
        codes.LIBRARY_VERSION,
        f"{library}{by} is of another glibc than the one of this process"
        + (f" ({libc})" if libc else ""),
        observed=text,
        needed="libraries of one glibc",
        fix=fixes.in_words(
            f"keep {printable(str(library.parent))} out of the RPATH of what needs it and out of "
            "LD_LIBRARY_PATH, or use the Python that belongs to it"
        ),
    )


def _lacks(case: Case, log: LinkerLog, text: str) -> Iterator[_Lack]:
    """What the linker's words can mean. Where it finds a fault with itself, a library without
    versions was taken for one that has some; its words do not say which."""
    symbol = _NO_SYMBOL.search(text)
    if symbol and is_file(symbol[1]):
        for name in read_binary(Path(symbol[1]), light=True).needed:
            yield _Lack(name, symbol[2])
    version = _NO_VERSION.search(text)
    if version:
        yield _Lack(Path(version[1]).name, version[2], is_version=True)
    if case.seen.words_of_linker and not symbol:
        for name, needing in log.needed_by.items():
            for asked in _versions_asked(needing):
                if asked.library == name:
                    yield _Lack(name, asked.version, is_version=True)


def _versions_asked(path: str) -> tuple[VersionNeed, ...]:
    """The versions of symbols that an object asks of its libraries; none if it cannot be read."""
    if is_file(path):
        with suppress(ElfError, OSError), Elf(path) as elf:
            return elf.versions_of_libraries
    return ()


def rejections_of_loading(verdict: Verdict) -> list[Finding]:
    """The findings that keep an object from being loaded."""
    rejected = (finding for finding in verdict.findings if finding.status == REJECTED)
    return [finding for finding in rejected if finding.code not in codes.RUN_LATER]


def _blamed(case: Case, text: str) -> Iterator[Path]:
    """The objects that the linker can mean: the ones that it names, that ask for what is missing,
    and the one that was to be loaded."""
    for match in _BLAMED.finditer(text):
        if is_file(match[1]):
            yield Path(match[1])
    missing = _NO_LIBRARY.search(text)
    log = case.seen.log
    if missing and is_file(needing := _needing(case, missing[1])):
        yield Path(needing)
    if log is not None:
        yield from (Path(e.file) for e in _of_libraries(log) if is_file(e.file))
        if case.seen.words_of_linker and is_file(log.last_opened):
            yield Path(log.last_opened)
    for error in case.errors:
        if error.path and is_file(error.path):
            yield Path(error.path)
    if case.seen.what.startswith("/") and is_file(case.seen.what):
        yield Path(case.seen.what)


def _needing(case: Case, library: str) -> str:
    """The object that asks for a library, "" if unknown: of several, the one that was to be
    loaded. The linker's log names the first, which an import may have tried before."""
    own = case.seen.what
    if (
        own.startswith("/")
        and is_file(own)
        and library in read_binary(Path(own), light=True).needed
    ):
        return own
    return case.seen.log.needed_by.get(library, "") if case.seen.log is not None else ""


def _of_libraries(log: LinkerLog) -> Iterator[LinkerError]:
    """The objections that are not about the program, which may ask for what is not there."""
    yield from (e for e in log.errors if is_shared_object_name(Path(e.file).name))


def _goes_with(finding: Finding, text: str) -> bool:
    """Whether a finding can be what the linker's words are about."""
    libc = re.search(r"version [`'](GLIBC|GLIBCXX|CXXABI)_", text)
    if libc:
        of_libc = codes.GLIBC_TOO_OLD if libc[1] == "GLIBC" else codes.LIBSTDCXX_TOO_OLD
        return finding.code in (of_libc, codes.OTHER_LIBRARY_FIRST)
    alone = _meant_alone(text)
    if alone is not None:
        return finding.code == alone
    if _NO_SYMBOL.search(text):
        return finding.code not in _NOT_OF_SYMBOLS
    missing = _NO_LIBRARY.search(text)
    if missing:
        return Path(missing[1]).name in f"{finding.why} {finding.observed} {finding.needed}" or (
            finding.code
            in (
                codes.LIBRARY_MISSING,
                codes.OTHER_CUDA,
                codes.CUDA_TORCH_NEEDED,
                codes.NO_DRIVER,
                codes.LIBRARY_OF_TORCH_MISSING,
                codes.LOADED_BEFORE_TORCH,
                codes.OTHER_PYTHON,
                codes.TORCH_MISSING,
            )
        )
    return True


def _meant_alone(text: str) -> codes.Code | None:
    return next((code for words, code in _MEANT_ALONE if re.search(words, text)), None)


def _is_of_linker(text: str) -> bool:
    return _OF_LINKER.search(text) is not None or _meant_alone(text) is not None


def _by_text(case: Case, text: str) -> Finding | None:
    """What the linker's own words and log say, where no rule of the judge applies."""
    if "failed to map segment" in text:
        return _not_mapped(case, text)
    missing = _NO_LIBRARY.search(text)
    if missing:
        return _library_is_missing(case, missing[1])
    symbol = _NO_SYMBOL.search(text)
    if symbol:
        file = Path(symbol[1]).name
        return case.finding(
            codes.SYMBOL_MISSING,
            f"{file} needs {symbol[2]}, and no library that it loads defines it",
            observed=text,
            fix=_other_build(case, Path(symbol[1])),
        )
    return None


def _not_mapped(case: Case, text: str) -> Finding | None:
    for path in _blamed(case, text):
        mount = forbidding_mount(case.runtime.target, path)
        if mount is not None:
            return case.finding(
                codes.EXECUTION_FORBIDDEN,
                f"{path} lies on {mount}, which is mounted so that nothing on it may be executed",
                observed=text,
                needed="a file system without noexec",
                fix=fixes.allow_execution(mount),
            )
    return None


def _file_is_missing(case: Case, path: str) -> Finding:
    """A library that Python code opens by its path."""
    owner = case.catalog.of_file(path) or case.raiser
    name = case.name_of(owner)
    return case.finding(
        codes.WITHOUT_ITS_OPS,
        f"{name} opens {path}, which is not there: it was installed without this library, or it "
        "was not built",
        observed="no such file",
        needed=path,
        fix=get_its_binaries(owner, case.runtime)
        if owner
        else fixes.in_words(f"build {printable(Path(path).name)}"),
    )


def _library_is_missing(case: Case, library: str) -> Finding:
    if library.startswith("/") and not is_file(library):
        return _file_is_missing(case, library)
    name = Path(library).name
    log = case.seen.log
    needing = _needing(case, library)
    tried = log.tried.get(library, ()) if log is not None else ()
    folders = {Path(file).parent for file in tried}
    who = Path(needing).name if needing else "an object that is loaded"
    why = f"{who} needs {name}, which the dynamic linker does not find"
    if folders:
        why = f"{why} in any of the {len(folders)} folders in which it looks"
    binary = read_binary(Path(needing), light=True) if is_file(needing) else None
    fix = fixes.in_words(f"install what has {printable(name)}")
    if binary is not None:
        binary = binary._replace(owner=find_owner(case.runtime.target, binary.path))
        fix = fixes.machine_library(name, binary, case.runtime)
    return case.finding(codes.LIBRARY_MISSING, why, observed=name, needed=name, fix=fix)


def _other_build(case: Case, path: Path) -> Fix:
    if is_file(path):
        owner = find_owner(case.runtime.target, path)
        binary = read_binary(path, light=True)._replace(owner=owner)
        return fixes.fix_for(fixes.Wrong.BUILD, binary, case.runtime)
    return fixes.in_words(f"build the package of {printable(path.name)} again")
