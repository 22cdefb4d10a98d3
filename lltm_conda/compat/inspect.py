"""From a file to a verdict: read, judge, and look up only what the cheap dimensions leave open."""

from __future__ import annotations

from pathlib import Path

from . import torch_probe
from .binary import read_binary
from .elf import ElfError
from .judgement import judge
from .records import REJECTED, UNKNOWN, BinaryRecord, Runtime, Verdict
from .text import printable


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
            problem = printable(f"its libraries cannot be read ({error})")
            broken = runtime.torch._replace(problems=(problem,))
            return judge(binary, runtime._replace(torch=broken))
        runtime = runtime._replace(missing={**runtime.missing, key: missing})
    unsure = any(f.status == UNKNOWN and f.dimension == "libraries" for f in verdict.findings)
    if key not in runtime.libraries and (unsure or not light):
        from . import library_probe  # not needed by an ordinary import of the package

        libraries = library_probe.missing_libraries(binary, runtime.torch)
        runtime = runtime._replace(libraries={**runtime.libraries, key: libraries})
    return judge(binary, runtime)
