"""The verdict on one object: `judge` asks the rules once, over facts that were gathered before.

`judge_file` gathers the facts of a file (gathering.py), and calls `judge`. To look up nothing in
vain, gathering.py first asks the few rules that end a verdict, and uses no more of their answer.
"""

from __future__ import annotations

from pathlib import Path

from ..budget import Budget, BudgetSpentError
from ..reading.binary import read_binary, unread
from ..records import OK, UNKNOWN, BinaryRecord, Finding, Runtime, Verdict
from ..rules import RULES
from ..rules.rule import Need, Rule, not_looked_at
from ..words import codes
from .gathering import gather


def judge(binary: BinaryRecord, runtime: Runtime) -> Verdict:
    """Ask every rule about a binary and a runtime.

    To decide, the function opens only `symbols.json` and `support.json`; for the words of a fix,
    also files of this machine. Facts from other files (missing symbols, missing libraries) are
    part of the runtime, which need not describe this process. The verdict is `accepted` if no
    finding is rejected or unknown, since an unknown fact could crash the process or falsify a
    result.
    """
    findings: list[Finding] = []
    unasked: dict[Need, list[Rule]] = {}
    for rule in RULES:
        missing = rule.missing(binary, runtime)
        if missing is not None:
            if rule.concerns is None or rule.concerns(binary):
                unasked.setdefault(missing, []).append(rule)
            if not rule.asks_object:
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
    binary: BinaryRecord | Path | str, runtime: Runtime, *, light: bool = False
) -> Verdict:
    """Judge a shared object of any package by itself: a file, or the `BinaryRecord` of it.

    With `light`, as an import of the package judges its own files, the record's GPU code is not
    compared with the file's, and symbols and libraries are looked up as far as no other rule
    tells of them. This is a run of its own.
    """
    runtime.target.budget = Budget()
    return judge_in_run(binary, runtime, light=light)


def judge_in_run(
    binary: BinaryRecord | Path | str, runtime: Runtime, *, light: bool = False
) -> Verdict:
    """As `judge_file`, within the budget of a run: where it is spent, the verdict is that nothing
    can be told."""
    if not isinstance(binary, BinaryRecord):
        path = Path(binary)
        try:
            binary = read_binary(path, light=light, budget=None if light else runtime.target.budget)
        except BudgetSpentError as error:
            return cannot_be_told(unread(path), str(error))
    if not light:
        from ..machine.mounts import forbidding_mount

        binary = binary._replace(noexec=forbidding_mount(runtime.target, binary.path))
    try:
        return judge(binary, gather(binary, runtime, light=light).runtime)
    except BudgetSpentError as error:
        return cannot_be_told(binary, str(error))


def cannot_be_told(binary: BinaryRecord, cost: str) -> Verdict:
    """The verdict on a binary whose judgement costs more than the budget has."""
    return Verdict(binary, (budget_is_spent(binary.file, cost),))


def budget_is_spent(what: str, cost: str) -> Finding:
    """The finding on something that costs more to check than the budget has."""
    return Finding(
        dimension="budget",
        status=UNKNOWN,
        code=codes.BUDGET_SPENT,
        observed=cost,
        needed="a check within the budget of a run",
        why=f"to check {what} takes {cost}, so it was given up",
    )
