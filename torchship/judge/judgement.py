"""The verdict on one object: `judge` asks the rules once, over facts that were gathered before.

`judge_file` gathers the facts of a file (gathering.py), and calls `judge`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from . import codes
from .binary import read_binary
from .gathering import gather
from .records import OK, UNKNOWN, BinaryRecord, Finding, Runtime, Verdict
from .rules import RULES
from .rules.rule import Need, Rule, not_looked_at

if TYPE_CHECKING:
    from .budget import Budget


def judge(binary: BinaryRecord, runtime: Runtime) -> Verdict:
    """Ask every rule about a binary and a runtime.

    The function opens only `symbols.json` and `support.json`. Facts from other files
    (missing symbols, missing libraries) are part of the runtime, which need not describe
    this process. The verdict is `accepted` if no finding is rejected or unknown, since an
    unknown fact could crash the process or falsify a result.
    """
    findings: list[Finding] = []
    unasked: dict[Need, list[Rule]] = {}
    for rule in RULES:
        missing = rule.missing(binary, runtime)
        if missing is not None:
            if rule.concerns is None or rule.concerns(binary):
                unasked.setdefault(missing, []).append(rule)
            continue
        finding = rule.ask(binary, runtime)
        if finding is None:
            continue
        findings.append(finding)
        if rule.ends and finding.status != OK:
            return Verdict(binary, tuple(findings))
    findings += [not_looked_at(need, rules) for need, rules in unasked.items()]
    return Verdict(binary, tuple(findings))


def judge_file(
    binary: BinaryRecord | Path | str,
    runtime: Runtime,
    *,
    light: bool = False,
    budget: Budget | None = None,
) -> Verdict:
    """Judge a shared object of any package by itself: a file, or the `BinaryRecord` of it.

    With `light`, as an import of the package judges its own files, the record's GPU code is not
    compared with the file's, and symbols and libraries are looked up as far as no other rule
    tells of them. `budget` is that of a whole run, and the file has one of its own; if either
    is spent, the verdict is that nothing can be told.
    """
    if not isinstance(binary, BinaryRecord):
        binary = read_binary(binary, light=light)
    if light:
        return judge(binary, gather(binary, runtime, None).runtime)
    from .budget import Budget, BudgetSpentError  # an import of the package has no budget
    from .mounts import forbidding_mount

    binary = binary._replace(noexec=forbidding_mount(runtime.target, binary.path))
    budget = Budget.for_file(binary.size, outer=budget)
    try:
        budget.check_time()
        return judge(binary, gather(binary, runtime, budget).runtime)
    except BudgetSpentError as error:
        return cannot_be_told(binary, str(error))


def cannot_be_told(binary: BinaryRecord, cost: str) -> Verdict:
    """The verdict on a binary whose judgement costs more than its budget, or than any."""
    unknown = Finding(
        dimension="budget",
        status=UNKNOWN,
        code=codes.BUDGET_SPENT,
        observed=cost,
        needed="a check within the time limit",
        why=f"to check {binary.file} takes {cost}, so it was given up",
    )
    return Verdict(binary, (unknown,))
