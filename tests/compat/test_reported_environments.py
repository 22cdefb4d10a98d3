"""The environments of public reports: what is stored keeps what is promised, and those that need
no network are made again here."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from measurements.environments import outcomes
from measurements.environments.cases import Case, read
from measurements.environments.environment import Environment
from measurements.environments.outcomes import Counts

CASES = read()
#: What torch's environment consists of beside it.
COMPANIONS = (
    "filelock",
    "fsspec",
    "jinja2",
    "markupsafe",
    "mpmath",
    "networkx",
    "numpy",
    "packaging",
    "pip",
    "setuptools",
    "sympy",
    "torch",
    "typing_extensions",
)
HERE = [case for case in CASES if case.torch == "cpu213" and not case.needs_network]


@pytest.fixture(scope="module")
def counts() -> Counts:
    return outcomes.count(outcomes.load().outcomes, CASES)


def test_every_case_names_its_report_and_its_cause() -> None:
    assert len(CASES) >= 60
    assert sum(case.is_of_new_kind for case in CASES) >= 30
    for case in CASES:
        assert re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+", case.thread)
        assert bool(case.causes) != case.works


def test_every_case_has_an_outcome() -> None:
    stored = [outcome.name for outcome in outcomes.load().outcomes]
    assert stored == [case.name for case in CASES]


def test_no_environment_is_accepted_that_fails(counts: Counts) -> None:
    assert counts.accepted_that_fail == 0


def test_few_environments_are_refused_that_work(counts: Counts) -> None:
    assert counts.refused_that_work <= 0.02 * counts.working
    assert counts.unknown_that_work <= 0.1 * counts.working


def test_of_few_failing_environments_nothing_can_be_told(counts: Counts) -> None:
    assert counts.unknown_that_fail <= 0.1 * counts.failing


def test_causes_are_those_of_the_reports(counts: Counts) -> None:
    assert counts.right_causes >= 0.95 * counts.refused


def test_commands_that_were_carried_out_mend(counts: Counts) -> None:
    assert counts.mended >= 0.9 * counts.carried_out
    assert counts.refused_after == 0


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, torch_root: Path) -> Path:
    """An environment with a copy of this torch and its companions alone."""
    version = (torch_root / "version.py").read_text()
    if "2.13." not in version or "cuda: Optional[str] = None" not in version:
        pytest.skip("the cases name a CPU build of torch 2.13")
    prefix = tmp_path_factory.mktemp("base") / "cpu213"
    venv.create(prefix, with_pip=False, symlinks=True)
    (site,) = prefix.glob("lib/python*/site-packages")
    for name in COMPANIONS:
        entries = [*torch_root.parent.glob(f"{name}*")]
        for entry in entries:
            if re.fullmatch(rf"{name}(\.py|\.libs|-\d.*\.dist-info)?", entry.name):
                subprocess.run(["cp", "-a", entry, site / entry.name], check=True)
    (prefix / "bin" / "uv").symlink_to(Path(sys.executable).parent / "uv")
    return prefix


@pytest.mark.slow
@pytest.mark.parametrize("case", HERE, ids=lambda case: case.name)
def test_a_reported_environment_is_judged_as_it_is(
    base: Path, tmp_path_factory: pytest.TempPathFactory, case: Case
) -> None:
    folder = tmp_path_factory.getbasetemp() / "reported"
    environment = Environment(base, folder, case)
    try:
        try:
            environment.make()
        except RuntimeError:
            if case.needs_root:
                pytest.skip("only root may mount a file system")
            raise
        run = environment.load()
        verdict = environment.judge()
    finally:
        environment.remove()
        shutil.rmtree(folder, ignore_errors=True)
    assert run.succeeds == case.works, run.output[-2000:]
    assert verdict.state == ("works" if case.works else "fails"), verdict
    assert case.works or verdict.code in case.causes
