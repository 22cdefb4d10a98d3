"""Reason: a sanitizer of the compiler, whose runtime must come into a process before all else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ...judge import fixes
from ...judge.reading.binary import read_binary
from ...judge.records import Finding
from ...judge.text import is_file, quoted
from ...judge.words import codes
from .case import Case

_NOT_FIRST = re.compile(
    r"(?P<name>\w{1,20}San) runtime does not come first in initial library list"
)
_RUNTIME = re.compile(r"lib(clang_rt\.)?(a|t|l|ub|hwa|m)san\b.*")


def sanitizer_is_not_first(case: Case) -> Finding | None:
    match = _NOT_FIRST.search(case.seen.output)
    if match is None:
        return None
    needing, runtime = next(_using(case), (None, ""))
    what = needing.name if needing else case.seen.what
    library = case.seen.log.found.get(runtime, "") if case.seen.log else ""
    return case.finding(
        codes.LOAD_FAILED,
        f"{what} was built with the sanitizer {match['name']}, whose runtime "
        f"{runtime or 'library'} ends the process unless it is loaded before all other libraries",
        observed=match[0],
        needed=f"{runtime or 'the runtime'} in LD_PRELOAD, or a build without the sanitizer",
        fix=fixes.set_variable("LD_PRELOAD", f"{quoted(library)} ASAN_OPTIONS=detect_leaks=0")
        if library  # Python itself frees not all when it ends, which the sanitizer minds
        else fixes.in_words("name its runtime in LD_PRELOAD, or build without -fsanitize"),
    )


def _using(case: Case) -> Iterator[tuple[Path, str]]:
    """The objects of the package that need the runtime of a sanitizer, and its name."""
    package = case.subject
    files = case.catalog.files(package) if package is not None else []
    for path in dict.fromkeys([*case.extensions, *(file.path for file in files)]):
        if ".so" in path.name and is_file(path):
            for library in read_binary(path, light=True).needed:
                if _RUNTIME.fullmatch(library):
                    yield path, library
