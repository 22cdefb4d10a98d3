"""Was an extension without a record built for a torch like this one?

For ATen, complete symbols prove nothing: classes change their layout under the same names. So
something must vouch for the extension. The rule, in three questions:

1. Does the extension need a voucher? Not if it is part of this torch, nor if it uses the
   stable ABI alone: then its symbols decide.
2. For which minors of torch was it built? Its path, its package's metadata, the list of
   releases and files beside it may name minors; one that lacks symbols of the file is wrong.
   If nothing names a minor, the symbols of the file, or of one of the same build, may
   narrow them down.
3. Do all of these minors have the class layout of this torch? If they do, the extension is
   accepted. If a class that registers operators differs from all of them, and the extension
   registers operators, it is rejected. Else nothing can be told.
"""

from __future__ import annotations

from collections.abc import Mapping

from .. import fixes
from ..reading.layouts import FATAL_TO_REGISTER, LAYOUTS, difference, layout_of, minors_with
from ..reading.named_torch import Minor, built_for
from ..records import (
    NOTE,
    OK,
    REJECTED,
    UNKNOWN,
    BinaryRecord,
    Finding,
    Runtime,
    TorchInstall,
    dotted,
)
from ..words import codes

#: Parts of the names of torch's classes with which an extension registers operators.
_REGISTERING = ("5torch7Library", "5torch11CppFunction")


def check(binary: BinaryRecord, torch: TorchInstall, runtime: Runtime) -> Finding:
    """The finding on an extension without a record, by the rule above."""
    needs_no_voucher = _needs_no_voucher(binary, torch)
    if needs_no_voucher:
        return Finding(status=OK, observed=torch.version, needed=needs_no_voucher)
    targets = _targets(binary)
    if not targets:
        return _nothing_vouches(binary, torch, runtime)
    alike = [minor for minor in targets if _is_alike(minor, torch)]
    if torch.is_release and len(alike) == len(targets):
        return _vouched(torch, targets, alike[0])
    return _other_minors(binary, torch, runtime, targets)


def _needs_no_voucher(binary: BinaryRecord, torch: TorchInstall) -> str:
    """Question 1: the torch that serves the extension in any case, in words; "" if none."""
    if torch.root in binary.path.parents:
        return "the torch that it is part of"
    if binary.lane != "stable":
        return ""
    if binary.torch_symbols:
        return "any torch that has its symbols (the stable ABI)"
    return "any torch"


def _targets(binary: BinaryRecord) -> Mapping[Minor, str]:
    """Question 2: the minors that the extension may be built for, each with who says so."""
    fitting = minors_with(binary.torch_symbols)
    of_siblings = dict(binary.of_siblings)
    if of_siblings:
        fitting &= of_siblings.keys()
    named = dict(reversed(built_for(binary)))  # if two places name a minor, the first counts
    # A requirement may be wrong: a file needs no symbol that its own torch lacks.
    possible = {
        minor: source
        for minor, source in named.items()
        if not fitting or minor in fitting or minor not in LAYOUTS
    }
    if possible:
        return possible
    if of_siblings:
        return of_siblings
    if min(LAYOUTS) in fitting:  # then it may be older than all measured minors
        return {}
    return dict.fromkeys(sorted(fitting), "its set of symbols")


def _is_alike(minor: Minor, torch: TorchInstall) -> bool:
    """Question 3: does this minor have the class layout of the installed torch?"""
    if minor == torch.version_tuple:
        return True
    built = layout_of(minor)
    layout = layout_of(torch.version_tuple)
    return built is not None and layout is not None and not difference(built, layout)


def _vouched(torch: TorchInstall, targets: Mapping[Minor, str], alike: Minor) -> Finding:
    installed = torch.version_tuple
    target = installed if installed in targets else alike
    why = f"{targets[target]} vouches for torch {dotted(target)}"
    if target != installed:
        why += f"; torch {dotted(installed)} has the same class layout"
    return Finding(
        status=NOTE,
        code=codes.VOUCHED,
        observed=torch.version,
        needed=f"torch {dotted(target)} ({targets[target]})",
        why=why,
    )


def _nothing_vouches(binary: BinaryRecord, torch: TorchInstall, runtime: Runtime) -> Finding:
    return Finding(
        status=UNKNOWN,
        code=codes.TARGET_UNKNOWN,
        observed=torch.version,
        needed="a torch that the file or its package names",
        why=(
            f"nothing says for which torch {binary.file} was built, "
            "and another class layout could crash the process"
        ),
        fix=fixes.fix_for(fixes.Wrong.TORCH, binary, runtime),
    )


def _other_minors(
    binary: BinaryRecord, torch: TorchInstall, runtime: Runtime, targets: Mapping[Minor, str]
) -> Finding:
    oldest = min(targets)
    newest = max(targets)
    label = f"torch {dotted(oldest)}"
    if oldest != newest:
        label = f"one of torch {dotted(oldest)} to {dotted(newest)}"
    aborts = _aborts_at_registration(binary, torch, targets)
    conclusion = f"whether it works in torch {torch.version} cannot be told from its files"
    if aborts:
        conclusion = f"torch {torch.version} has changed the classes that register operators"
    return Finding(
        status=REJECTED if aborts else UNKNOWN,
        code=codes.OTHER_TORCH if aborts else codes.MAYBE_OTHER_TORCH,
        observed=torch.version,
        needed=f"{label}, or one of the same layout",
        why=f"{binary.file} was built for {label} ({targets[oldest]}); {conclusion}",
        fix=fixes.fix_for(fixes.Wrong.TORCH, binary, runtime),
    )


def _aborts_at_registration(
    binary: BinaryRecord, torch: TorchInstall, targets: Mapping[Minor, str]
) -> bool:
    """Does it register operators with classes that differ in this torch, whichever its minor?"""
    if not any(part in name for name in binary.torch_symbols for part in _REGISTERING):
        return False
    layout = layout_of(torch.version_tuple)
    for minor in targets:
        built = layout_of(minor)
        if built is None or layout is None:
            return False  # nobody knows
        changed = {name for name, *_ in difference(built, layout)}
        if not FATAL_TO_REGISTER & changed:
            return False
    return True
