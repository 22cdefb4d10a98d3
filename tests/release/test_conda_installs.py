"""Beside each pytorch of the channels in use, `conda install lltm` does what the table says."""

from __future__ import annotations

from fnmatch import fnmatch

import pytest
from conda_channels import defaults, old_channel

from torchship.release.steps.conda.stubs import pytorch, write_channel

pytest.importorskip("rattler")
pytest.importorskip("rattler_build")

from conda_flow import Flow, cases

# pytorchs that somebody built against a CUDA that conda-forge never built them with.
OWN = [("2.6.0", "11.8"), ("2.9.1", "13.0"), ("2.10.0", "11.8")]


@pytest.fixture(scope="module")
def flow(matrix, matrix_channels, tmp_path_factory) -> Flow:
    folder = tmp_path_factory.mktemp("installs")
    ours, forge = matrix_channels
    own = [
        stub
        for release, cuda in OWN
        for stub in pytorch(release, ["3.11"], cuda, f"cuda{cuda.replace('.', '')}_mkl_py{{}}_h0")
    ]
    channels = {"defaults": defaults(matrix), "pytorch": old_channel(matrix), "own build": own}
    urls = {name: write_channel(folder / name, stubs).as_uri() for name, stubs in channels.items()}
    return Flow({"lltm": ours, "conda-forge": forge, **urls}, folder / "repodata")


@pytest.mark.parametrize(
    "case",
    [  # every tenth row is quick
        pytest.param(case, id=case.name, marks=[pytest.mark.slow] if number % 10 else [])
        for number, case in enumerate(cases())
    ],
)
def test_it_does_what_the_table_says(flow, case) -> None:
    lltm, pytorch = flow.install(case)
    assert fnmatch(lltm, case.lltm), pytorch
    assert lltm == "refused" or fnmatch(pytorch, case.pytorch), lltm


@pytest.mark.parametrize("case", [c for c in cases() if c.note.endswith("any package")], ids=str)
def test_what_conda_is_to_blame_for_happens_without_lltm(flow, case) -> None:
    """Without a driver that it can use, conda gives up an installed CUDA pytorch for anything."""
    assert flow.install(case, "ninja")[1] == "cpu"


def test_no_cuda_pytorch_becomes_a_cpu_one_without_a_note() -> None:
    lost = [c for c in cases() if "cuda" in c.installed and c.pytorch in ("cpu", "*")]
    assert [case.name for case in lost if not case.note] == []


def test_a_refusal_names_what_stands_in_the_way(flow) -> None:
    case = next(c for c in cases() if c.installed.startswith("2.4.1 py3.11") and c.driver == "12.4")
    _, why = flow.install(case)
    assert "pytorch-cuda" in why and "lltm" in why


def test_the_table_has_every_channel_and_enough_rows() -> None:
    named = [name for case in cases() for name in case.channels.split(" + ")]
    assert len(cases()) == len({case.name for case in cases()}) >= 60
    assert min(named.count(name) for name in ("conda-forge", "defaults", "pytorch")) >= 5
