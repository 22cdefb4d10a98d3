"""Reports as plain text or JSON to paste into an issue: no colours, private folders shortened."""

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from ..project import Record
from ..records import (
    NOT_LOOKED_AT,
    NOTE,
    OK,
    REJECTED,
    UNKNOWN,
    Finding,
    Fix,
    Runtime,
    TorchInstall,
    Verdict,
    dotted,
)
from ..rules.cuda import driver_cuda
from ..text import printable
from ..verdict.selection import Selection
from . import codes

MARKS = {OK: "ok", NOTE: "note", REJECTED: "NO", UNKNOWN: "?", NOT_LOOKED_AT: "-"}
_LEAST_WIDTH, _MOST_WIDTH = 60, 100
#: Of the last column of a table, below which its cells get lines of their own.
_LEAST_COLUMN = 30


def shorten(message: str, prefix: str = sys.prefix) -> str:
    """Printable text: `~` replaces the home folder, `$PREFIX` the folder of the environment that
    is spoken of, by default that of the Python that runs.
    """
    home = os.path.expanduser("~")  # noqa: PTH111
    return _shortened(message, [(prefix, "$PREFIX"), (home, "~")])


def shorten_fix(fix: Fix, prefix: str = sys.prefix) -> str:
    """As `shorten`; a command keeps its paths, so that it can be typed as it is."""
    return printable(fix.text) if fix.command else shorten(fix.text, prefix)


def shorten_home(message: str) -> str:
    """Printable text in which `~` replaces the home folder."""
    return _shortened(message, [(os.path.expanduser("~"), "~")])  # noqa: PTH111


def _shortened(message: str, names: Sequence[tuple[str, str]]) -> str:
    line = printable(message)
    # Neither "/" nor "~", which `expanduser` returns without a home folder, is replaced.
    for folder, name in names:
        if len(folder) > 1:
            line = line.replace(printable(folder) + os.sep, name + os.sep)
    return line


def print_to_the_end(command: Callable[[], int]) -> int:
    """The exit code of a command; 1 if the reader of its output, such as `head`, leaves."""
    try:
        code = command()
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


def print_json(prefix: str = sys.prefix, /, **fields: object) -> None:
    """Print a report as JSON (docs/fails/compat.md), its texts as `shorten` does. While `schema`
    is 1, no field is removed."""
    print(json.dumps(_plain({"schema": 1, **fields}, prefix), indent=2))


def _plain(value: object, prefix: str) -> object:
    """A dict for a record, a list for a tuple, a shortened string for a path or a string."""
    if isinstance(value, Finding):
        fields = {name: _plain(field, prefix) for name, field in value._asdict().items()}
        of_fix = {"command": printable(value.fix.command), "is_advice": value.fix.is_advice}
        return {**fields, **of_fix}
    if isinstance(value, Fix):
        return shorten_fix(value, prefix)
    if isinstance(value, Record):
        return _plain(value._asdict(), prefix)
    if isinstance(value, Mapping):
        return {str(key): _plain(item, prefix) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item, prefix) for item in value]
    if isinstance(value, str):
        return shorten(value, prefix)
    return shorten(str(value), prefix) if isinstance(value, Path) else value


def width() -> int:
    """The columns of the terminal, or those that COLUMNS names, within bounds; else the most."""
    if not (sys.stdout.isatty() or os.environ.get("COLUMNS")):
        return _MOST_WIDTH
    return max(_LEAST_WIDTH, min(_MOST_WIDTH, shutil.get_terminal_size().columns))


def table(header: Sequence[str], rows: Iterable[Sequence[str]], prefix: str = sys.prefix) -> str:
    """A table as text: every column but the last is as wide as its widest cell; the last wraps,
    and stands below the others where they leave it no room. Its cells are shortened."""
    lines = [tuple(header), *(tuple(shorten(cell, prefix) for cell in row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header) - 1)]
    indent = sum(widths) + 2 * len(widths)
    columns = width()
    is_below = columns - indent < _LEAST_COLUMN
    last_indent = 4 if is_below else indent
    out: list[str] = []
    for number, line in enumerate(lines):
        start = "".join(f"{cell:<{wide}}  " for cell, wide in zip(line, widths, strict=False))
        last = textwrap.wrap(line[-1], columns - last_indent, break_on_hyphens=False)
        if is_below and number == 0:
            last = []  # what stands below the others needs no heading
        elif not is_below:
            start += "".join(last[:1])
            last = last[1:]
        out += [start.rstrip(), *(" " * last_indent + rest for rest in last)]
        if number == 0:
            out.append("-" * min(columns, max(len(out[0]), indent + 20)))
    return "\n".join(out)


def runtime_table(runtime: Runtime) -> str:
    python = f"{runtime.implementation} {dotted(runtime.python)}"
    libc = runtime.libc
    libstdcxx = runtime.libstdcxx
    rows = [
        ("platform", runtime.platform),
        ("Python", python + (" free-threaded" if runtime.free_threaded else "")),
        ("C library", f"{libc[0]} {dotted(libc[1])}" if libc else "unknown"),
        (
            "libstdc++",
            f"GLIBCXX_{dotted(libstdcxx.get('GLIBCXX'))}" if libstdcxx else "unknown",
        ),
    ]
    if runtime.torch is None:
        rows.append(("torch", runtime.torch_problem or "not installed"))
    else:
        rows += _rows_of_torch(runtime.torch)
    if runtime.gpu_probed:
        rows += _rows_of_gpus(runtime)
    rows.append(("environment", runtime.environment.kind))
    return table(("this machine", ""), rows)


def _rows_of_torch(torch: TorchInstall) -> list[tuple[str, str]]:
    build = torch.device.removeprefix("the ")
    by = f", installed by {torch.installer}" if torch.installer else ""
    abi = "unknown" if torch.cxx11_abi is None else str(torch.cxx11_abi)
    return [
        ("torch", f"{torch.version} ({build} build, C++11 ABI {abi}{by})"),
        ("torch folder", str(torch.root)),
        *(("torch problem", problem) for problem in torch.problems),
    ]


def _rows_of_gpus(runtime: Runtime) -> list[tuple[str, str]]:
    driver = runtime.driver
    description = "none"
    if driver:
        description = f"{driver.version or 'unknown'} (CUDA {dotted(driver_cuda(driver))})"
    if runtime.l4t:
        description += f", L4T {runtime.l4t} of a Jetson"
    gpus = [(f"GPU {d.index}", f"{d.name} ({dotted(d.capability)})") for d in runtime.devices]
    return [("NVIDIA driver", description), *(gpus or [("GPU", "none")])]


def selection_table(selection: Selection) -> str:
    """Every judged binary, with its verdict and the reason for it."""
    chosen = (selection.glue, selection.cpu, selection.cuda)
    rows = []
    for verdict in selection.considered:
        cause = verdict.cause
        if any(verdict is one for one in chosen):
            row = ("chosen", summary(verdict))
        elif cause is not None:
            row = ("refused", cause.why or cause.dimension)
        else:
            row = ("fits", "another binary is preferred")
        rows.append((verdict.binary.file, *row))
    return table(("binary", "result", "why"), rows)


def notes_of(verdict: Verdict) -> tuple[Finding, ...]:
    """What people should know of an object though it works."""
    notes = (f for f in verdict.findings if f.status == NOTE and f.why)
    return tuple(finding for finding in notes if finding.code not in codes.GROUNDS)


def summary(verdict: Verdict) -> str:
    """The remarks of an accepted verdict; without remarks, a description of the binary."""
    remarks = [f"{f.why} ({f.code})" for f in verdict.findings if f.status == NOTE and f.why]
    if remarks:
        return "; ".join(remarks)
    record = verdict.binary.record
    if record is None:
        return "nothing speaks against it"
    if record.kind == "kernels":
        archs = " ".join(record.cuda_archs)
        return f"CUDA {record.cuda}: {archs}" if record.cuda else "CPU kernels"
    interface = "stable ABI" if record.lane == "stable" else "ATen"
    return f"{interface} of torch {dotted(record.torch_target)}, built with {record.torch_built}"


def cause_text(finding: Finding | None) -> str:
    """The cause, the observed and needed values, and the fix; "" without a finding."""
    if finding is None:
        return ""
    cause = f"cause:    {finding.why or finding.dimension}"
    return "\n".join(map(_hanging, map(shorten, (cause, *finding.lines))))


def _hanging(line: str) -> str:
    """A line of a label and a sentence within the width; a command stays whole, to be copied."""
    if line.startswith("to fix:"):
        return line
    label = line.partition(":")[0]
    indent = " " * (len(line) - len(line[len(label) + 1 :].lstrip()))
    return textwrap.fill(
        line,
        width(),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def verdict_text(verdict: Verdict) -> str:
    """The report on one binary: the dimensions, then the verdict, then the cause or the remarks."""
    state = "accepted" if verdict.accepted else "refused"
    rows = []
    for finding in verdict.findings:
        comparison = finding.observed
        if finding.needed:
            comparison += f" | needed: {finding.needed}"
        rows.append((finding.dimension, MARKS[finding.status], comparison))
    lines = [shorten(str(verdict.binary.path)), table(("dimension", "", "observed"), rows)]
    lines += ["", f"{verdict.binary.file} is {state}"]
    if not verdict.accepted:
        lines.append(cause_text(verdict.cause))
    else:
        for finding in verdict.findings:
            if finding.status == NOTE and finding.why:
                lines.append(f"note: {shorten(finding.why)} ({finding.code})")
                fix = f"      {finding.fix.label} {shorten(str(finding.fix))}"
                lines += [fix] * bool(finding.fix)
    return "\n".join(lines)
