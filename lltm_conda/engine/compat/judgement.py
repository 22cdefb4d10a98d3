"""`judge(binary, runtime)`, which is pure, and `judge_file`, which looks up what `judge` needs."""

from __future__ import annotations

from pathlib import Path

from . import torch_probe
from .binary import read_binary
from .elf import ElfError
from .judge_cuda import cuda_build, driver, gpu_architecture
from .judge_host import platform, python, registration, system_libraries, whole_file
from .judge_torch import cxx_abi, installed_torch, libraries, torch_symbols, torch_version
from .records import REJECTED, UNKNOWN, BinaryRecord, Finding, Runtime, Verdict
from .text import printable

# A dimension is a function (binary, runtime) -> findings, none where it does not apply. Cheap
# ones first: the first rejection is the cause.
_DIMENSIONS = (
    platform,
    python,
    installed_torch,
    torch_version,
    cxx_abi,
    registration,
    system_libraries,
    cuda_build,
    driver,
    gpu_architecture,
    libraries,
    torch_symbols,
)


def judge(binary: BinaryRecord, runtime: Runtime) -> Verdict:
    """Compare a binary with a runtime in every dimension.

    Nothing is opened. What has to be looked up in files (missing symbols, missing libraries) is
    part of the runtime.

    Args:
        binary: what `compat.read_binary` read.
        runtime: what `compat.probe_runtime` found, or any other facts (a torch elsewhere, a driver
            that is not here).

    Returns:
        The verdict. `accepted` is True only if nothing was rejected and nothing that could crash
        the process or falsify a result stayed unknown.
    """
    findings: list[Finding] = list(whole_file(binary, runtime))
    if not any(finding.status == REJECTED for finding in findings):  # else the rest says nothing
        for dimension in _DIMENSIONS:
            findings += dimension(binary, runtime)
    return Verdict(binary, tuple(findings))


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
