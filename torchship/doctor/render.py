"""Reports as plain text or JSON to paste into an issue: no colours, private folders shortened."""

import json
import os
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .checks.cuda import driver_cuda
from .project import Record
from .records import NOTE, OK, REJECTED, UNKNOWN, Finding, Runtime, Verdict, dotted
from .selection import Selection
from .text import printable

MARKS = {OK: "ok", NOTE: "note", REJECTED: "NO", UNKNOWN: "?"}
_WIDTH = 100


def shorten(text: str) -> str:
    """Printable text: `~` replaces the home folder, `$PREFIX` the environment's folder."""
    text = printable(text)
    # Neither "/" nor "~", which `expanduser` returns without a home folder, is replaced.
    for folder, name in ((sys.prefix, "$PREFIX"), (os.path.expanduser("~"), "~")):  # noqa: PTH111
        if len(folder) > 1:
            text = text.replace(printable(folder) + os.sep, name + os.sep)
    return text


def print_json(**fields: Any) -> None:
    """Print a report as JSON (docs/fails/compat.md). While `schema` is 1, no field is removed."""
    print(json.dumps({"schema": 1, **_plain(fields)}, indent=2))


def _plain(value: Any) -> Any:
    """A dict for a record, a list for a tuple, a shortened string for a path or a string."""
    if isinstance(value, Record):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return shorten(str(value)) if isinstance(value, (str, Path)) else value


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table as text: every column but the last is as wide as its widest cell; the last wraps."""
    lines = [tuple(header), *(tuple(map(shorten, row)) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header) - 1)]
    indent = sum(widths) + 2 * len(widths)
    room = max(30, _WIDTH - indent)
    out = []
    for number, line in enumerate(lines):
        start = "".join(f"{cell:<{width}}  " for cell, width in zip(line, widths, strict=False))
        wrapped = textwrap.wrap(line[-1], room, break_on_hyphens=False) or [""]
        out.append((start + wrapped[0]).rstrip())
        out += [" " * indent + rest for rest in wrapped[1:]]
        if number == 0:
            out.append("-" * min(_WIDTH, max(len(out[0]), indent + 20)))
    return "\n".join(out)


def runtime_table(runtime: Runtime) -> str:
    python = f"{runtime.implementation} {dotted(runtime.python)}"
    libc, libstdcxx, torch = runtime.libc, runtime.libstdcxx, runtime.torch
    rows = [
        ("platform", runtime.platform),
        ("Python", python + (" free-threaded" if runtime.free_threaded else "")),
        ("C library", f"{libc[0]} {dotted(libc[1])}" if libc else "unknown"),
        ("libstdc++", f"GLIBCXX_{dotted(libstdcxx.get('GLIBCXX'))}" if libstdcxx else "unknown"),
    ]
    if torch is None:
        rows.append(("torch", runtime.torch_problem or "not installed"))
    else:
        build = torch.device.removeprefix("the ")
        by = f", installed by {torch.installer}" if torch.installer else ""
        abi = "unknown" if torch.cxx11_abi is None else str(torch.cxx11_abi)
        rows.append(("torch", f"{torch.version} ({build} build, C++11 ABI {abi}{by})"))
        rows.append(("torch folder", str(torch.root)))
        rows += [("torch problem", problem) for problem in torch.problems]
    if runtime.gpu_probed:
        driver, text = runtime.driver, "none"
        if driver:
            text = f"{driver.version or 'unknown'} (CUDA {dotted(driver_cuda(driver))})"
        text += f", L4T {runtime.l4t} of a Jetson" if runtime.l4t else ""
        rows.append(("NVIDIA driver", text))
        gpus = [(f"GPU {d.index}", f"{d.name} ({dotted(d.capability)})") for d in runtime.devices]
        rows += gpus or [("GPU", "none")]
    rows.append(("environment", runtime.environment.kind))
    return table(("this machine", ""), rows)


def selection_table(selection: Selection) -> str:
    """Every judged binary, with its verdict and the reason for it."""
    chosen = (selection.glue, selection.cpu, selection.cuda)
    rows = []
    for verdict in selection.considered:
        cause = verdict.cause
        state, why = "fits", "another binary is preferred"
        if any(verdict is one for one in chosen):
            state, why = "chosen", summary(verdict)
        elif cause is not None:
            state, why = "refused", cause.why or cause.dimension
        rows.append((verdict.binary.file, state, why))
    return table(("binary", "verdict", "why"), rows)


def summary(verdict: Verdict) -> str:
    """The remarks of an accepted verdict; without remarks, a description of the binary."""
    notes = [finding.why for finding in verdict.findings if finding.status == NOTE and finding.why]
    if notes:
        return "; ".join(notes)
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
    lines = (f"cause:    {finding.why or finding.dimension}", *finding.lines)
    return "\n".join(map(shorten, lines))


def verdict_text(verdict: Verdict) -> str:
    """The report on one binary: the dimensions, then the verdict, then the cause or the remarks."""
    state, rows = "accepted" if verdict.accepted else "refused", []
    for found in verdict.findings:
        needed = f" | needed: {found.needed}" if found.needed else ""
        rows.append((found.dimension, MARKS[found.status], found.observed + needed))
    lines = [shorten(str(verdict.binary.path)), table(("dimension", "", "observed"), rows)]
    lines += ["", f"{verdict.binary.file} is {state}"]
    if not verdict.accepted:
        lines.append(cause_text(verdict.cause))
    else:
        lines += [f"note: {shorten(f.why)}" for f in verdict.findings if f.status == NOTE and f.why]
    return "\n".join(lines)
