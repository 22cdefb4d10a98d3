"""From a file to a verdict: read, judge, and look up only what the cheap dimensions leave open."""

from __future__ import annotations

from pathlib import Path

from . import torch_probe
from .binary import read_binary
from .elf import ElfError
from .judgement import judge
from .records import REJECTED, UNKNOWN, BinaryRecord, Finding, Runtime, Verdict


def judge_file(
    binary: BinaryRecord | Path | str, runtime: Runtime, *, light: bool = False
) -> Verdict:
    """Judge a shared object of ours or of anybody's.

    Args:
        binary: the file, or what was already read from it.
        runtime: what it would be loaded into.
        light: as in `read_binary`: for the package's own files at import.

    Returns:
        The verdict. Symbols and libraries are looked up only when nothing cheaper rejected.
    """
    if not isinstance(binary, BinaryRecord):
        binary = read_binary(binary, light=light)
    verdict = judge(binary, runtime)
    if any(finding.status == REJECTED for finding in verdict.findings):
        return verdict
    key = str(binary.path)
    if binary.kind in ("glue", "extension") and runtime.torch and key not in runtime.missing:
        try:
            missing = torch_probe.missing_symbols(binary, runtime.torch)
        except (ElfError, OSError) as error:
            broken = runtime.torch._replace(problems=(f"its libraries cannot be read ({error})",))
            return judge(binary, runtime._replace(torch=broken))
        runtime = runtime._replace(missing={**runtime.missing, key: missing})
    if key not in runtime.libraries and (not light or _open(verdict, "libraries")):
        from . import library_probe  # not needed by an ordinary import of the package

        libraries = library_probe.missing_libraries(binary, runtime.torch)
        runtime = runtime._replace(libraries={**runtime.libraries, key: libraries})
    return judge(binary, runtime)


def _open(verdict: Verdict, dimension: str) -> Finding | None:
    for finding in verdict.findings:
        if finding.dimension == dimension and finding.status == UNKNOWN:
            return finding
    return None
