"""Verdicts as plain text, ready to be pasted into an issue: no colours, no private paths."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from . import cache
from .judge_cuda import driver_cuda
from .records import NOTE, OK, REJECTED, UNKNOWN, Finding, Runtime, Verdict, dotted
from .selection import Selection

MARKS = {OK: "ok", NOTE: "note", REJECTED: "NO", UNKNOWN: "?"}
_WIDTH = 100


def shorten(text: str) -> str:
    """Paths without what is private: the home folder as `~`, the environment as `$PREFIX`."""
    for folder, name in ((sys.prefix, "$PREFIX"), (str(cache.home() or ""), "~")):
        if len(folder) > 1:
            text = text.replace(folder + os.sep, name + os.sep)
    return text


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns padded to their widest cell; the last one is wrapped."""
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


def runtime_rows(runtime: Runtime) -> list[tuple[str, str]]:
    """What was found, one fact a line."""
    torch = runtime.torch
    rows = [
        ("platform", runtime.platform),
        (
            "Python",
            f"{runtime.implementation} {dotted(runtime.python)}"
            + (" free-threaded" if runtime.free_threaded else ""),
        ),
        (
            "C library",
            f"{runtime.libc[0]} {dotted(runtime.libc[1])}" if runtime.libc else "unknown",
        ),
        (
            "libstdc++",
            f"GLIBCXX_{dotted(runtime.libstdcxx.get('GLIBCXX'))}"
            if runtime.libstdcxx
            else "unknown",
        ),
    ]
    if torch is None:
        rows.append(("torch", runtime.torch_problem or "not installed"))
    else:
        build = f"CUDA {torch.cuda}" if torch.cuda else "CPU"
        build = f"ROCm {torch.hip}" if torch.hip else f"XPU {torch.xpu}" if torch.xpu else build
        by = f", installed by {torch.installer}" if torch.installer else ""
        abi = "unknown" if torch.cxx11_abi is None else str(torch.cxx11_abi)
        rows.append(("torch", f"{torch.version} ({build} build, C++11 ABI {abi}{by})"))
        rows.append(("torch folder", str(torch.root)))
        rows += [("torch problem", problem) for problem in torch.problems]
    if runtime.gpu_probed:
        driver = runtime.driver
        rows.append(
            (
                "NVIDIA driver",
                f"{driver.version or 'unknown'} (CUDA {dotted(driver_cuda(driver))})"
                if driver
                else "none",
            )
        )
        for device in runtime.devices:
            rows.append((f"GPU {device.index}", f"{device.name} ({dotted(device.capability)})"))
        if not runtime.devices:
            rows.append(("GPU", "none"))
    rows.append(("environment", runtime.environment.kind))
    return rows


def runtime_table(runtime: Runtime) -> str:
    """The runtime as a table."""
    return table(("this machine", ""), runtime_rows(runtime))


def selection_table(selection: Selection) -> str:
    """Every binary, its verdict, and the cause where it was refused."""
    chosen = {
        str(verdict.binary.path)
        for verdict in (selection.glue, selection.cpu, selection.cuda)
        if verdict is not None
    }
    rows = []
    for verdict in selection.considered:
        cause = verdict.cause
        if str(verdict.binary.path) in chosen:
            state, why = "chosen", summary(verdict)
        elif verdict.accepted:
            state, why = "fits", "another one is preferred"
        else:
            state, why = "refused", (cause.why or cause.dimension) if cause else ""
        rows.append((verdict.binary.path.name, state, why))
    return table(("binary", "verdict", "why"), rows)


def summary(verdict: Verdict) -> str:
    """The remarks of an accepted verdict, or what it is."""
    notes = [finding.why for finding in verdict.findings if finding.status == NOTE and finding.why]
    if notes:
        return "; ".join(notes)
    record = verdict.binary.record
    if record is None:
        return "nothing speaks against it"
    if record.kind == "kernels":
        return (
            f"CUDA {record.cuda}: {' '.join(record.cuda_archs)}" if record.cuda else "CPU kernels"
        )
    lane = "stable ABI" if record.lane == "stable" else "ATen"
    return f"{lane} of torch {dotted(record.torch_target)}, built with {record.torch_built}"


def findings_table(verdict: Verdict) -> str:
    """Every dimension of one verdict."""
    rows = [
        (
            finding.dimension,
            MARKS[finding.status],
            finding.observed + (f" | needed: {finding.needed}" if finding.needed else ""),
        )
        for finding in verdict.findings
    ]
    return table(("dimension", "", "observed"), rows)


def cause_text(finding: Finding | None) -> str:
    """The cause and the command, as the import error gives them."""
    if finding is None:
        return ""
    lines = [f"cause:    {finding.why or finding.dimension}"]
    lines.append(f"observed: {finding.observed}")
    lines.append(f"needed:   {finding.needed}")
    if finding.fix:
        lines.append(f"to mend:  {finding.fix}")
    return shorten("\n".join(lines))


def verdict_text(verdict: Verdict) -> str:
    """One binary: its dimensions, then the verdict and the cause."""
    name = shorten(str(verdict.binary.path))
    state = "accepted" if verdict.accepted else "refused"
    lines = [name, findings_table(verdict), "", f"{Path(name).name} is {state}"]
    if not verdict.accepted:
        lines.append(cause_text(verdict.cause))
    else:
        lines += [f"note: {f.why}" for f in verdict.findings if f.status == NOTE and f.why]
    return "\n".join(lines)
