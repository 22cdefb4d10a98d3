"""Reason: a limit of the shell or the job, such as `ulimit -v`, is lower than the import needs."""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator

from ...judge import fixes
from ...judge.project import Record
from ...judge.records import Finding, Fix
from ...judge.words import codes
from .case import Case


class _Limit(Record):
    """A limit, and the words of what runs into it."""

    resource: int
    option: str  #: of `ulimit`
    unit: int  #: of `ulimit`, in those of the system
    what: str  #: with its amount
    words: re.Pattern[str]
    signal: str = ""  #: of which a process dies that runs into it


_LIMITS = (
    _Limit(
        resource=resource.RLIMIT_AS,
        option="-v",
        unit=1024,
        what="{} kB of address space",
        words=re.compile(
            r"std::bad_alloc|\bMemoryError\b|failed to map segment|[Cc]annot allocate memory"
            r"|\[Errno 12\]"
        ),
    ),
    _Limit(
        resource=resource.RLIMIT_NOFILE,
        option="-n",
        unit=1,
        what="{} open files",
        words=re.compile(r"Too many open files|\[Errno 24\]"),
    ),
    _Limit(
        resource=resource.RLIMIT_CPU,
        option="-t",
        unit=1,
        what="{} s of processor time for a process",
        words=re.compile(r"CPU time limit exceeded"),
        signal="SIGXCPU",
    ),
    _Limit(
        resource=resource.RLIMIT_FSIZE,
        option="-f",
        unit=1024,
        what="{} kB in a file",
        words=re.compile(r"File size limit exceeded|File too large|\[Errno 27\]"),
        signal="SIGXFSZ",
    ),
    _Limit(
        resource=resource.RLIMIT_NPROC,
        option="-u",
        unit=1,
        what="{} processes and threads of a user",
        words=re.compile(
            r"can't start new thread|Thread creation failed|Resource temporarily unavailable"
            r"|\[Errno 11\]"
        ),
    ),
)


def limit_is_reached(case: Case) -> Finding | None:
    """What runs into a limit says that something is short; that there is a limit is looked up.

    The judged Python ran under the limits of this process.
    """
    lines = [*_lines(case)]
    for limit in _LIMITS:
        soft, hard = resource.getrlimit(limit.resource)
        line = next((line for line in lines if limit.words.search(line)), None)
        if limit.signal and case.seen.signal == limit.signal:
            line = case.seen.last_line
        if line is None or soft == resource.RLIM_INFINITY:
            continue
        here = limit.what.format(soft // limit.unit)
        return case.finding(
            codes.LIMIT_REACHED,
            f"this shell allows {here} (ulimit {limit.option}), and the import needs more",
            observed=line.strip(),
            needed=f"more than {here}",
            fix=_raise(limit, soft, hard),
        )
    return None


def _lines(case: Case) -> Iterator[str]:
    for error in case.errors:
        yield from error.last_line.splitlines()
    yield from case.seen.output.splitlines()[-40:]


def _raise(limit: _Limit, soft: int, hard: int) -> Fix:
    if hard == soft:
        return fixes.in_words(
            f"start it in a shell or a job with a higher limit than `ulimit {limit.option}` says "
            "here, which no command of this shell can raise",
        )
    most = "unlimited" if hard == resource.RLIM_INFINITY else str(hard // limit.unit)
    return fixes.command_alone(fixes.Kind.RAISE_LIMIT, f"ulimit -S {limit.option} {most}")
