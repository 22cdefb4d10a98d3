"""`judge(binary, runtime)`: a finding for every dimension, cheap ones first. Pure.

Rejections name the cause; an unknown is no yes. Nothing is opened here: what has to be looked up in
files (missing symbols, missing libraries) is part of the runtime.
"""

from __future__ import annotations

from .judge_cuda import cuda_build, driver, gpu_architecture
from .judge_host import platform, python, registration, system_libraries, whole_file
from .judge_torch import cxx_abi, installed_torch, libraries, torch_symbols, torch_version
from .records import REJECTED, BinaryRecord, Finding, Runtime, Verdict

# A dimension is a function (binary, runtime) -> findings, none where it does not apply.
_DIMENSIONS = (
    whole_file,
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
    """Hold a binary and a runtime together.

    Args:
        binary: what `compat.read_binary` read.
        runtime: what `compat.probe_runtime` found, or any other facts (a torch elsewhere, a driver
            that is not here).

    Returns:
        The verdict. `accepted` is True only if nothing was rejected and nothing that could crash
        the process or falsify a result stayed unknown.
    """
    findings: list[Finding] = []
    for step in _DIMENSIONS:
        findings.extend(step(binary, runtime))
        if step is whole_file and any(finding.status == REJECTED for finding in findings):
            break  # what was read from a broken file says nothing
    return Verdict(binary, tuple(findings))
