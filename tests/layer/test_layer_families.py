"""Every family of kernels, forced, against the loop over steps, which serves every problem.

A forced family that cannot run a problem says so, which is a skip only where it need not.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from layer_cases import RESULTS, TOLERANCE, Case, leaves, names, run
from op_cases import SMALLEST_SCALE, assert_agree, every_dtype, gradients, like

HERE = Path(__file__).parent
CUDA_FAMILIES = ("registers", "grid", "cluster")
families = pytest.mark.parametrize(
    ("place", "family"),
    [
        ("cpu", "fused"),
        *(pytest.param("cuda:0", family, marks=pytest.mark.cuda) for family in CUDA_FAMILIES),
    ],
)
SIZES = [
    (1, 1, 1, 1),
    (2, 3, 5, 7),
    (9, 2, 3, 16),
    (6, 17, 33, 31),
    (4, 8, 16, 64),
    (5, 16, 32, 128),
    (3, 33, 8, 200),
    (3, 5, 40, 513),
    (5, 21, 16, 264),
    (3, 100, 8, 264),
    (4, 3, 8, 500),
    pytest.param((3, 150, 8, 1024), marks=pytest.mark.slow),
]


def results(case, layer):
    inputs = case.inputs(layer)
    outputs = run(layer, *inputs)
    return (*outputs, *gradients(outputs, leaves(layer, inputs), like(outputs)))


def serves(family: str, case: Case, dtype: torch.dtype) -> bool:
    """Whether a refusal is a fault: sizes well inside what docs/use/layer.md says of a family."""
    if family == "fused":
        return True
    capability = torch.cuda.get_device_capability()
    return (
        dtype != torch.float64
        and {
            "registers": case.state <= 128,
            "grid": case.state <= 264 and capability >= (8, 0),
            "cluster": case.state <= 264 and capability >= (9, 0),
        }[family]
    )


def agrees_with_gemm(monkeypatch, case, place, family, dtype) -> None:
    if place != "cpu" and not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    layer = case.layer(device=place, dtype=dtype)
    monkeypatch.setenv("LLTM_LAYER_KERNELS", "gemm")
    want = results(case, layer)
    monkeypatch.setenv("LLTM_LAYER_KERNELS", family)
    try:
        actual = results(case, layer)
    except RuntimeError as refusal:
        if "LLTM_LAYER_KERNELS" not in str(refusal) or serves(family, case, dtype):
            raise
        pytest.skip(str(refusal))
    leaf_names = names(layer, case.inputs(layer))
    assert_agree(actual, want, TOLERANCE[dtype], (*RESULTS, *leaf_names), SMALLEST_SCALE)


@families
@every_dtype
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_family_equals_gemm(monkeypatch, place, family, dtype, sizes) -> None:
    case = Case(*sizes, bidirectional=True)
    agrees_with_gemm(monkeypatch, case, place, family, dtype)


@families
@pytest.mark.parametrize("given_state", [False, True], ids=["zeros", "state"])
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
def test_family_with_every_option(monkeypatch, place, family, given_state, bias) -> None:
    case = Case(5, 9, 16, 64, bidirectional=True, bias=bias, given_state=given_state)
    agrees_with_gemm(monkeypatch, case, place, family, torch.float32)


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("family", "state"), [("registers", 129), ("grid", 4000), ("cluster", 513)]
)
def test_a_family_says_what_it_needs(monkeypatch, family, state) -> None:
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    monkeypatch.setenv("LLTM_LAYER_KERNELS", family)
    layer = Case(state=state).layer(device="cuda")
    with pytest.raises(RuntimeError, match=f"LLTM_LAYER_KERNELS={family} .* needs"):
        layer(torch.zeros(5, 3, 4, device="cuda"))


def test_an_unknown_family_is_refused_by_name(monkeypatch, device) -> None:
    monkeypatch.setenv("LLTM_LAYER_KERNELS", "steam")
    layer = Case().layer(device=device)
    with pytest.raises(RuntimeError, match="LLTM_LAYER_KERNELS"):
        layer(torch.zeros(5, 3, 4, device=device))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value"), [("LLTM_CPU_CAPABILITY", "default"), ("LLTM_CPU_PRODUCTS", "gemm")]
)
def test_family_with_other_kernels_below(name, value, tmp_path) -> None:
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            # The largest size takes most of the time; the usual kernels have it.
            *("-k", "(equals_gemm or every_option or count_beside) and not 1024"),
            str(HERE / "test_layer_families.py"),
            str(HERE / "test_layer_long_sums.py"),
        ],
        cwd=tmp_path,
        env=os.environ | {name: value},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr
    assert " passed" in run.stdout


@families
def test_nan_in_the_output_gate_stays_out_of_gradients_of_the_last_cell(
    monkeypatch, place, family
) -> None:
    if place != "cpu" and not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    monkeypatch.setenv("LLTM_LAYER_KERNELS", family)
    case = Case(1, 5, 8, 64, given_state=False)
    layer = case.layer(device=place, dtype=torch.float32)
    with torch.no_grad():
        layer.bias_l0[64 + 3] = float("nan")
    _output, (_h_n, c_n) = layer(*case.inputs(layer))
    found = torch.autograd.grad(c_n.sum(), list(layer.parameters()))
    assert all(gradient.isfinite().all() for gradient in found)
