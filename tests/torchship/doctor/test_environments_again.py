"""The reported environments that need nothing but torch for the CPU, made again: they do what the
stored outcomes say, the doctor says the same of them, and fixes that download nothing fix them.

`measurements/environments/make_environments.py` makes the others, by hand.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from measurements.environments import outcomes
from measurements.environments.cases import Case, read
from measurements.environments.environment import Environment
from measurements.environments.linked_base import link_base
from torchship.judge.machine.torch_probe import find_torch

STORED = {outcome.name: outcome for outcome in outcomes.load().outcomes}
#: Cases that compile operators are left out: torch's headers take half a minute each.
CASES = [
    case
    for case in read()
    if case.torch == "cpu213"
    and not (case.needs_network or case.needs_root)
    and not case.make.startswith(("operator", "compile"))
    and case.name in STORED
]

# One of each outcome; the others, of some ten seconds each, by hand before a release.
FIRST = {(STORED[case.name].state, STORED[case.name].code): case.name for case in reversed(CASES)}
PARAMETERS = [
    pytest.param(
        case,
        id=case.name,
        marks=pytest.mark.slow if case.name in FIRST.values() else pytest.mark.rehearsal,
    )
    for case in CASES
]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch = find_torch()
    if not (torch.version.startswith("2.13.") and torch.device == "the CPU"):
        pytest.skip(f"the cases are about torch 2.13 for the CPU, and here is {torch.version}")
    base = link_base(tmp_path_factory.mktemp("bases") / "cpu213")
    # Compiles torch's Python once: the copy of each case would do it again, for two seconds.
    subprocess.run([base / "bin" / "python", "-c", "import torch"], check=True)
    return base


@pytest.fixture
def environment(base: Path, tmp_path: Path, case: Case) -> Iterator[Environment]:
    environment = Environment(base, tmp_path / "case", case)
    environment.make()
    yield environment
    environment.remove()


@pytest.mark.parametrize("case", PARAMETERS)
def test_an_environment_is_as_stored(environment: Environment, case: Case) -> None:
    stored = STORED[case.name]
    assert environment.load().succeeds == stored.works
    verdict = environment.judge()
    assert (verdict.state, verdict.code) == (stored.state, stored.code), verdict
    command = next(iter(verdict.commands), "")
    if command and "pip install" not in command:
        assert environment.carry_out(command).succeeds, command
        assert environment.judge().state == stored.state_after


def test_a_third_of_the_cases_beside_this_torch_is_made_again() -> None:
    beside = [case for case in read() if case.torch == "cpu213"]
    assert 3 * len(CASES) >= len(beside)
