"""Rules about the file itself: it is whole, and from this version of the project."""

from __future__ import annotations

from collections.abc import Callable

from .. import fixes
from ..records import OK, REJECTED, UNKNOWN, BinaryRecord, BuildRecord, Finding, Runtime
from ..words import codes
from .rule import Check, Rule

_WHOLE = "a whole shared object"
#: What a record says, and what it must say here; None where the two are not compared.
_Compared = tuple[object, object] | None


def check_whole_file(binary: BinaryRecord, runtime: Runtime) -> Finding:
    """Is the file whole? Of one that costs too much to read, nothing can be told."""
    if binary.too_large:
        return Finding(
            status=UNKNOWN,
            code=codes.TOO_LARGE,
            observed=binary.too_large,
            needed=_WHOLE,
            why=f"{binary.file} was not read: {binary.too_large}",
        )
    if binary.kind != "unreadable" and not binary.problems:
        return Finding(status=OK, observed=f"{binary.size} bytes", needed=_WHOLE)
    observed = "; ".join(binary.problems)
    if observed == "Permission denied":
        return Finding(
            status=REJECTED,
            code=codes.FILE_NOT_READABLE,
            observed=observed,
            needed=_WHOLE,
            why=f"{binary.file} is not readable by this user",
            fix=fixes.open_path(binary.path),
        )
    fix = fixes.fix_for(fixes.Wrong.FILES, binary, runtime)
    if binary.header.is_program:  # another copy of it would be one, too
        fix = fixes.in_words("link it with -shared and without -pie, or install another release")
    elif "git-lfs" in observed:  # to install it again from there would bring the same
        fix = fixes.in_words("fetch the file itself, by `git lfs pull` in its repository")
    return Finding(
        status=REJECTED,
        code=codes.DAMAGED_FILE,
        observed=observed,
        needed=_WHOLE,
        why=f"{binary.file} is damaged or not what its name says: {binary.problems[0]}",
        fix=fix,
    )


def _comparison(
    dimension: str,
    compared: Callable[[BuildRecord, Runtime], _Compared],
    why: Callable[[BinaryRecord, BuildRecord], str],
) -> Check:
    """A check that compares one field of the record of a file with what it must be here."""

    def check(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
        record = binary.record
        values = compared(record, runtime) if record and runtime.package_version else None
        if record is None or values is None:
            return None
        recorded, expected = values
        observed = f"{dimension} {recorded}"
        needed = f"{dimension} {expected}"
        if recorded == expected:
            return Finding(status=OK, observed=observed, needed=needed)
        return Finding(
            status=REJECTED,
            code=codes.FILE_OF_ANOTHER_BUILD,
            observed=observed,
            needed=needed,
            why=why(binary, record),
            fix=fixes.reinstall(runtime),
        )

    return check


def _kernel_tables(record: BuildRecord, runtime: Runtime) -> _Compared:
    if record.kind != "kernels" or runtime.kernel_abi is None:
        return None
    return record.kernel_abi, runtime.kernel_abi


def _rule(rank: int, dimension: str, check: Check) -> Rule:
    of_build = (codes.FILE_OF_ANOTHER_BUILD,)
    return Rule(rank=rank, dimension=dimension, codes=of_build, check=check, ends=True)


WHOLE_FILE = Rule(
    rank=100,
    dimension="file",
    codes=(codes.DAMAGED_FILE, codes.FILE_NOT_READABLE, codes.TOO_LARGE),
    check=check_whole_file,
    ends=True,
)
PACKAGE = _rule(
    110,
    "package",
    _comparison(
        "package",
        lambda record, runtime: (record.package, runtime.project.distribution),
        lambda binary, record: f"{binary.file} belongs to {record.package}",
    ),
)
PACKAGE_VERSION = _rule(
    120,
    "package version",
    _comparison(
        "package version",
        lambda record, runtime: (record.version, runtime.package_version),
        lambda binary, record: f"{binary.file} is left over from version {record.version}",
    ),
)
KERNEL_TABLE = _rule(
    130,
    "kernel table",
    _comparison(
        "kernel table",
        _kernel_tables,
        lambda binary, _record: f"{binary.file} does not come from the build of the glue",
    ),
)
