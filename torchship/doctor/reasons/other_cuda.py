"""Reason: the package's own Python compares its CUDA with torch's, and refuses."""

from __future__ import annotations

import re

from ...judge import fixes
from ...judge.reading.binary import read_binary
from ...judge.records import Finding
from ...judge.words import codes
from ..environment.owner import distributions, find_owner
from ..fixes.mending import fit_package
from .case import Case

_REFUSAL = re.compile(r"compiled with different CUDA (major )?versions")
_OF_PACKAGE = re.compile(r"(?:torch\w+|TorchAudio|\w+) has CUDA [Vv]ersion ?[=:]? ?([\d.]+\d)")


def package_compares_cuda(case: Case) -> Finding | None:
    error = next((one for one in case.errors if _REFUSAL.search(one.message)), None)
    package = case.raiser
    torch = case.runtime.torch
    if error is None or package is None or torch is None:
        return None
    built = [number for number in _OF_PACKAGE.findall(error.message) if number != torch.cuda]
    for_cuda = f"CUDA {built[-1]}" if built else "another CUDA"
    files = distributions(case.runtime.target, package.site).get(package.place, [])
    fix = fit_package(package, case.runtime)
    if files:
        owner = find_owner(case.runtime.target, files[0])
        binary = read_binary(files[0], light=True)._replace(owner=owner)
        fix = fixes.fix_for(fixes.Wrong.BUILD, binary, case.runtime)
    return case.finding(
        codes.OTHER_CUDA,
        f"{package.name} {package.version} was built for {for_cuda}, compares that with torch's, "
        f"and this torch is built for {torch.device}",
        observed=f"torch for {torch.device}",
        needed=f"torch for {for_cuda}",
        fix=fix,
    )
