"""Reason: the package's own Python compares its torch with the one that is here, and refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...judge import fixes
from ...judge.records import REJECTED, Finding, TorchInstall, parse_version
from ...judge.text import printable
from ...judge.words import codes
from ..environment.installed import Distribution
from ..environment.owner import distributions
from ..environment.standards import normal
from .case import Case

_VERSION = r"\d+\.\d+(?:\.\d+)*(?:\.\*)?"
#: `PyTorch 2.9.1`, `torch version 2.9`, `torch==2.9.1+cu128`, `torch v2.1, v2.2 and v2.3`.
_ASKED = re.compile(
    r"(?:\b|_)(?:py)?torch\*?(?: *\(?version\)?| releases?)?[ :]*(?P<sign>==|~=|>=|<=|!=|<|>)? *"
    rf"(?P<versions>v?{_VERSION}(?:(?:, *| and | or |, and |, or |/)v?{_VERSION})*)"
    r"(?:\+(?P<local>\w+))?",
    re.IGNORECASE,
)
_REFUSES = re.compile(
    r"\b(built|builds|compiled|requires?|required|needs?|expects?|expected|compatible|incompatible"
    r"|supports?|supported|must|match\w*|mismatch)\b",
    re.IGNORECASE,
)
_CUDA = re.compile(r"CUDA (\d+)")
_CALLED_AN_ERROR = re.compile(r"\berror\b", re.IGNORECASE)
#: What no torch mends.
_OTHERWISE_UNFIT = (codes.OTHER_PYTHON, codes.OTHER_PLATFORM, codes.GLIBC_TOO_OLD, codes.MUSL)


#: What a release for another torch can be the cause of.
_OF_RELEASES = (
    codes.OTHER_TORCH,
    codes.MAYBE_OTHER_TORCH,
    codes.OTHER_CXX_ABI,
    codes.TORCH_LACKS_SYMBOLS,
    codes.TORCH_TOO_OLD,
    codes.OPERATOR_MISSING,
    codes.CUDA_TORCH_NEEDED,
    codes.OTHER_CUDA,
    codes.SYMBOL_MISSING,
)


def with_pin(finding: Finding, case: Case) -> Finding:
    """The finding, with the torch for which the release of the package was made, if that is not
    the one that is here."""
    torch = case.runtime.torch
    package = case.subject or case.raiser
    requirement = case.catalog.requirement_on(package, "torch")
    if torch is None or package is None or requirement is None or requirement.is_met:
        return finding
    if finding.code not in _OF_RELEASES or requirement.text in finding.why:
        return finding
    name = f"{package.name} {package.version}"
    why = f"{finding.why}; {name} requires {requirement.text}, and {torch.version} is here"
    return finding._replace(why=printable(why))


def package_compares_torch(case: Case) -> Finding | None:
    torch = case.runtime.torch
    package = case.raiser
    if torch is None or package is None or normal(package.name) == "torch":
        return None
    for text in _texts(case):
        if not _REFUSES.search(text):
            continue
        wanted = [*_wanted(text, torch)]
        if wanted:
            return _refusal(case, package, text, wanted)
    return None


def _texts(case: Case) -> Iterator[str]:
    """What the errors say, and what a package prints before it ends the process or raises an error
    of another kind. Then only a line that calls itself an error counts."""
    for error in case.errors:
        yield error.message
    printed = case.seen.output.splitlines()[-20:]
    if case.seen.outcome == "ended" or any(one.type == "SystemExit" for one in case.errors):
        yield from printed
    elif case.errors:
        yield from filter(_CALLED_AN_ERROR.search, printed)


def _wanted(text: str, torch: TorchInstall) -> Iterator[str]:
    """The torches that a text names with or without a sign, such as `>=2.14`, but this one."""
    here = parse_version(torch.version) or ()
    for match in _ASKED.finditer(text):
        for version in re.findall(_VERSION, match["versions"]):
            numbers = parse_version(version) or ()
            if here[: len(numbers)] != numbers:
                yield f"{match['sign'] or ''}{version}"


def _refusal(case: Case, package: Distribution, text: str, wanted: list[str]) -> Finding:
    newest = max(wanted, key=lambda one: parse_version(one.lstrip("=~<>!")) or ())
    name = f"{package.name} {package.version}"
    torch = case.runtime.torch
    assert torch is not None
    return case.finding(
        codes.WRITTEN_FOR_ANOTHER_TORCH,
        f"{name} compares the torch that it was built for with torch {torch.version}, and refuses: "
        f"it is for {', '.join(wanted[:4])}{' and more' if wanted[4:] else ''}",
        observed=f"torch {torch.version}",
        needed=f"torch {newest}",
        fix=fixes.torch_of_package(
            case.runtime,
            package.name,
            "" if _is_otherwise_unfit(case, package) else newest,
            cuda=_cuda_of(text),
        ),
    )


def _cuda_of(text: str) -> str:
    """The CUDA major that a text asks of torch; "" for any."""
    locals_ = (match["local"] or "" for match in _ASKED.finditer(text))
    of_local = next((one[2:-1] for one in locals_ if re.fullmatch(r"cu\d{3}", one)), "")
    named = _CUDA.search(text)
    return of_local or (named[1] if named else "")


def _is_otherwise_unfit(case: Case, package: Distribution) -> bool:
    """Whether an object of the package would not load beside any torch."""
    objects = distributions(case.runtime.target, package.site).get(package.place, [])
    verdicts = (case.judge(path) for path in objects)
    findings = (finding for verdict in verdicts for finding in verdict.findings)
    return any(f.status == REJECTED and f.code in _OTHERWISE_UNFIT for f in findings)
