"""A rule is one record, from which the verdict, the pages and the cache take what they need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from made_facts import make_aten, make_cuda, make_glue, make_runtime, make_torch, opened

from docs._ext import code_pages
from torchship.doctor.reasons.meaning import meaning_of
from torchship.judge import judge
from torchship.judge.reading.elf import Header
from torchship.judge.records import (
    NOT_LOOKED_AT,
    NOTE,
    OK,
    REJECTED,
    BinaryRecord,
    Device,
    Driver,
    Finding,
    Runtime,
)
from torchship.judge.rules import CODES, RULES, miscompiled
from torchship.judge.rules.rule import NEEDS_LINKS, Need, Rule
from torchship.judge.words import codes
from torchship.judge.words.codes import Code

FORBIDDEN = Code(
    "TD399", "The object forbids to be loaded", why="It says so.", fix="Link it again."
)


def _forbids(binary: BinaryRecord, _runtime: Runtime) -> Finding | None:
    if binary.name != "forbidden.so":
        return None
    return Finding(status=REJECTED, code=FORBIDDEN, observed="a flag", needed="no such flag")


RULE = Rule(rank=645, dimension="flag", codes=(FORBIDDEN,), check=_forbids)


def kinds_of_runtimes() -> Iterator[Runtime]:
    for version in ("2.4.0", "2.9.1", "2.13.0+cpu", "2.13.0", "2.99.0"):
        for cuda in (None, "12.8", "13.0"):
            torch = make_torch(version, cuda=cuda)
            for driver in (None, Driver("525.1", None), Driver("580.1", (13, 0))):
                gpu = Device(0, "a GPU", (10, 3))
                yield make_runtime(torch, driver=driver, devices=(gpu,), gpu_probed=True)
    yield make_runtime(libc=("glibc", (2, 17)), libstdcxx=None, python=(3, 9, 0))
    yield make_runtime(page_size=65536, machine="aarch64")


def test_a_finding_has_a_code_of_its_rule() -> None:
    binaries = [make_glue(), make_aten(), make_cuda(), make_cuda("12.8", ("sm_103",))]
    binaries += [binary._replace(record=None) for binary in binaries]
    binaries += [make_glue(problems=("cut",)), make_glue(too_large="4097 headers")]
    found = set()
    for runtime in kinds_of_runtimes():
        for binary in binaries:
            for rule in RULES:
                is_known = rule.missing(binary, runtime) is None
                finding = rule.ask(binary, runtime) if is_known else None
                if finding is not None and finding.status != OK:
                    assert finding.code in rule.codes, (rule.dimension, finding)
                    assert finding.dimension == rule.dimension
                    found.add(finding.code)
                    is_ground = finding.status == NOTE and finding.code in codes.GROUNDS
                    assert not (is_ground and finding.fix), finding  # nobody would see the fix
    assert len(found) > 12


def test_a_rule_whose_facts_were_not_looked_up_is_not_passed_over_in_silence() -> None:
    glue = make_glue()
    looked_at = judge(glue, make_runtime(openings=opened(glue.path), gpu_probed=True))
    verdict = judge(glue, make_runtime(gpu_probed=True))
    (finding,) = (f for f in verdict.findings if f.status == NOT_LOOKED_AT)
    assert verdict.accepted
    assert finding.needed.split(", ") == list(
        dict.fromkeys(rule.dimension for rule in RULES if NEEDS_LINKS in rule.needs)
    )
    assert NOT_LOOKED_AT not in {f.status for f in looked_at.findings}


def test_what_a_rule_cannot_find_in_an_object_is_not_said_to_be_missing() -> None:
    """No GPU need be looked at for an object without code for one."""
    verdict = judge(make_glue(), make_runtime(openings=opened(make_glue().path)))
    assert NOT_LOOKED_AT not in {finding.status for finding in verdict.findings}
    of_kernels = judge(make_cuda(), make_runtime())
    assert any("GPU architecture" in f.needed for f in of_kernels.findings)


def test_a_rule_that_ends_the_verdict_is_the_last_one_asked() -> None:
    verdict = judge(make_glue(problems=("cut",)), make_runtime(torch=None, python=(3, 9, 0)))
    assert [finding.code for finding in verdict.findings] == [codes.DAMAGED_FILE]


def test_a_new_rule_needs_its_record_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchship.judge.verdict.judgement.RULES", (*RULES, RULE))
    monkeypatch.setitem(CODES, FORBIDDEN, FORBIDDEN)
    forbidden = make_glue(name="forbidden.so", path=Path("/nowhere/forbidden.so"))
    cause = judge(forbidden, make_runtime(missing_symbols={str(forbidden.path): ()})).cause
    assert cause is not None
    assert (cause.code, cause.dimension) == (FORBIDDEN, "flag")
    meaning = meaning_of("TD399")
    assert (meaning.code.heading, meaning.why) == (FORBIDDEN.heading, "It says so.")


def test_the_list_of_rules_is_that_of_their_folder() -> None:
    right = code_pages.list_of_rules()
    assert code_pages.RULES_FILE.read_text() == right, "run python -m docs._ext.code_pages"
    assert [*code_pages.rules_found().values()] == [*RULES]


def test_two_rules_of_one_rank_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(miscompiled, "RULE", RULE, raising=False)
    monkeypatch.setattr(miscompiled, "OTHER", RULE._replace(dimension="x"), raising=False)
    with pytest.raises(SystemExit, match=r"miscompiled\.OTHER and miscompiled\.RULE have one rank"):
        code_pages.rules_found()


def test_a_rule_that_asks_the_object_is_asked_without_the_linker() -> None:
    """As with `--torch` for a release that is not installed: the rest is not looked at."""
    forbidden = make_glue(header=Header(forbids_dlopen=True))
    missing = {str(forbidden.path): ()}
    verdict = judge(forbidden, make_runtime(missing_symbols=missing, gpu_probed=True))
    assert [f.code for f in verdict.findings if f.status == REJECTED] == ["TD509"]
    assert NOT_LOOKED_AT in {finding.status for finding in verdict.findings}


def test_every_code_of_a_rule_is_known() -> None:
    assert {code for rule in RULES for code in rule.codes} <= CODES.keys()


def test_what_must_be_looked_up_has_a_name() -> None:
    needs = {need for rule in RULES for need in rule.needs}
    assert all(isinstance(need, Need) and need.facts for need in needs)
