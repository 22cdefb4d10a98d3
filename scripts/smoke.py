"""Compares the installed lltm with its definition in float64; needs only torch and lltm.

    python smoke.py [--outside DIR] [--glue NAME] [--json FILE]

Unlike the package's own smoke test (`python -m lltm_conda`), it compares 16-bit types and layers,
checks gradients, counts OpenMP runtimes and can require one glue. Run it in the environment under
test, outside the source tree. The exit code is 0 if everything holds, else 1. With EMULATED in the
environment it leaves out the largest size, which takes an emulator minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import lltm_conda
from lltm_conda import LLTMLayer, lltm, loader, reference

# Relative norm of the difference, by dtype.
TOLERANCES = {
    torch.float64: 1e-12,
    torch.float32: 1e-5,
    torch.float16: 5e-3,
    torch.bfloat16: 3e-2,
}
OPENMP = re.compile(r"lib(gomp|omp|iomp5|omp5)\b")
SHAPES = [(1, 1, 1), (16, 32, 128), (5, 7, 3), (0, 4, 4)]
# (T, B, I, S): each family of the layer's kernels, and sizes that no other family takes
SEQUENCES = [(4, 5, 7, 3), (5, 4, 8, 64), (6, 16, 32, 128), (3, 40, 16, 512)]
NAMES = ("new_h", "new_cell", "d_input", "d_weights", "d_bias", "d_old_h", "d_old_cell")


def arguments(batch: int, features: int, state: int) -> list[Tensor]:
    """Random arguments of a cell, in float64 on the CPU."""
    shapes = [(batch, features), (3 * state, state + features), (3 * state,)]
    shapes += [(batch, state), (batch, state)]
    scale = [1.0, (state + features) ** -0.5, 0.1, 1.0, 1.0]
    return [torch.randn(s, dtype=torch.float64) * k for s, k in zip(shapes, scale, strict=True)]


def run(cell: Any, values: list[Tensor], grads: list[Tensor]) -> list[Tensor]:
    """Both outputs and all five gradients."""
    leaves = [value.detach().clone().requires_grad_() for value in values]
    outputs = cell(*leaves)
    return [*outputs, *torch.autograd.grad(outputs, leaves, grads)]


def steps_of_reference(
    x: Tensor, weights: Tensor, bias: Tensor, h: Tensor, cell: Tensor
) -> tuple[Tensor, Tensor]:
    """The last states after all steps of `x` (T, B, I), by the definition."""
    for step in x.unbind(0):
        h, cell = reference(step, weights, bias, h, cell)
    return h, cell


def layer(
    x: Tensor, weights: Tensor, bias: Tensor, h: Tensor, cell: Tensor
) -> tuple[Tensor, Tensor]:
    """The last states, by a layer."""
    module = LLTMLayer(x.shape[2], h.shape[1], device="meta")
    parameters = {"weights_l0": weights, "bias_l0": bias}
    states = (h.unsqueeze(0), cell.unsqueeze(0))
    _, (last_h, last_cell) = torch.func.functional_call(module, parameters, (x, states))
    return last_h[0], last_cell[0]


def compare(device: str, dtype: torch.dtype, shape: tuple[int, ...]) -> dict[str, float]:
    """Relative errors of outputs and gradients against the float64 definition.

    `shape` is (B, I, S) for a step, (T, B, I, S) for a sequence.
    """
    *steps, batch, features, state = shape
    values = arguments(batch, features, state)
    if steps:
        values[0] = torch.randn(*steps, batch, features, dtype=torch.float64)
    # Both sides start from the same numbers, rounded to the dtype.
    rounded = [value.to(dtype) for value in values]
    grads = [torch.randn(batch, state, dtype=torch.float64).to(dtype) for _ in range(2)]
    definition, ours = (steps_of_reference, layer) if steps else (reference, lltm)
    wanted = run(definition, [v.double() for v in rounded], [g.double() for g in grads])
    got = run(ours, [v.to(device) for v in rounded], [g.to(device) for g in grads])
    errors = {}
    for name, a, b in zip(NAMES, got, wanted, strict=True):
        assert a.shape == b.shape and a.dtype == dtype, (name, a.shape, b.shape, a.dtype)
        errors[name] = (a.cpu().double() - b).norm().item() / (b.norm().item() or 1.0)
    return errors


def openmp_runtimes(maps: str) -> list[str]:
    """The OpenMP runtimes among a process's mapped files, from the text of /proc/self/maps.

    Two of them would be two thread pools that compete for the processors, or worse.
    """
    paths = {line.split(None, 5)[5] for line in maps.splitlines() if line.count("/")}
    return sorted(path for path in paths if OPENMP.match(Path(path).name))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--outside", type=Path, help="fail if lltm_conda lies in this folder")
    parser.add_argument("--glue", help="fail if another glue was chosen")
    parser.add_argument("--json", type=Path, help="where to store what was found")
    args = parser.parse_args()
    package = Path(lltm_conda.__file__).resolve()
    if args.outside and args.outside.resolve() in package.parents:
        print(f"FAILED: lltm_conda is that of the source tree ({package}), not the installed one")
        return 1
    torch.manual_seed(0)
    devices = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
    comparisons, failed = [], 0

    def check(good: bool, text: str) -> None:
        nonlocal failed
        failed += not good
        print(f"{'ok    ' if good else 'FAILED'} {text}")

    sequences = SEQUENCES[:-1] if os.environ.get("EMULATED") else SEQUENCES
    for device, (dtype, tolerance), shape in product(
        devices, TOLERANCES.items(), [*SHAPES, *sequences]
    ):
        errors = compare(device, dtype, shape)
        comparisons.append({"device": device, "dtype": str(dtype), "shape": shape, **errors})
        worst = max(errors, key=lambda name: errors[name])
        kind = str(dtype).removeprefix("torch.")
        sizes = " ".join(f"{n}{size}" for n, size in zip("TBIS"[-len(shape) :], shape, strict=True))
        text = f"worst {worst} {errors[worst]:.1e}, allowed {tolerance:.0e}"
        check(errors[worst] <= tolerance, f"{device} {kind:8} {sizes}: {text}")  # False for NaN
    leaves = [value.requires_grad_() for value in arguments(2, 3, 2)]
    gradcheck = torch.autograd.gradcheck(lltm, leaves, raise_exception=False)
    check(gradcheck, "gradcheck in float64")
    runtimes = openmp_runtimes(Path("/proc/self/maps").read_text(encoding="utf-8"))
    check(len(runtimes) < 2, f"OpenMP runtimes, at most one: {', '.join(runtimes) or 'none'}")
    binaries = loader.loaded()
    variant = binaries.variant if binaries else None
    good = args.glue is None or str(variant).startswith(f"{args.glue}-")
    check(good, f"chosen {variant}, needed {args.glue or 'any'}")
    facts = {
        "variant": variant,
        "binaries": [path.name for path in binaries.paths if path] if binaries else [],
        "openmp": [Path(path).name for path in runtimes],
        "lltm": lltm_conda.__version__,
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "devices": devices,
        "package": str(package.parent),
        "gradcheck": gradcheck,
        "failed": failed,
        "comparisons": comparisons,
    }
    if args.json:
        args.json.write_text(json.dumps(facts, indent=1), encoding="utf-8")
    print(f"lltm {lltm_conda.__version__}, torch {torch.__version__}: {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
