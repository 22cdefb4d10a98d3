"""Runs a built CUDA kernel object on a GPU, whichever CUDA the torch there was built with.

    python3 scripts/try_kernels.py --site FOLDER --cudart libcudart.so.12 --out FILE

FOLDER holds an installed lltm with one CUDA kernel object, for example
`pip install --no-deps --target FOLDER dist/simple/lltm/lltm-*+stable.cu12-*.whl`; `--cudart` is the
runtime that the object needs (PyPI: nvidia-cuda-runtime-cu12), for a process that has none of that
major. Two processes compare with the definition in float64:

alone   without torch: the kernels through their C table, as the only CUDA in the process
torch   the whole op in a process with torch, whose own CUDA may be of another major

The exit code is 0 only if both agree. Needs numpy and torch.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from gpu_suite import ROOT, commit, machine
from kernel_structures import read_header

SMOKE = ROOT / "scripts" / "smoke.py"
TENSORS = ("gates", "bias", "old_cell", "new_h", "new_cell")
SHAPES = [(1, 1), (16, 128), (257, 384)]
DTYPES = {0: (np.float32, 1e-5), 1: (np.float64, 1e-12), 2: (np.float16, 5e-3)}
TO_DEVICE, TO_HOST = 1, 2


def definition(gates: Any, bias: Any, old_cell: Any) -> tuple[Any, Any]:
    """The cell after its product, in float64: new_h and new_cell."""
    z = gates.astype(np.float64) + bias.astype(np.float64).reshape(3, -1)
    i, o, c = z[:, 0], z[:, 1], z[:, 2]
    sigma_i, sigma_o = 1 / (1 + np.exp(-i)), 1 / (1 + np.exp(-o))
    elu = np.where(c > 0, c, np.expm1(np.minimum(c, 0)))
    new_cell = old_cell.astype(np.float64) + elu * sigma_i
    return np.tanh(new_cell) * sigma_o, new_cell


def difference(got: Any, wanted: Any) -> float:
    """The norm of the difference, relative to what is wanted."""
    return float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted))


class Gpu:
    """Memory of device 0 through a CUDA runtime."""

    def __init__(self, cudart: str) -> None:
        self.runtime = ctypes.CDLL(cudart, mode=ctypes.RTLD_GLOBAL)

    def call(self, name: str, *arguments: Any) -> None:
        code = getattr(self.runtime, name)(*arguments)
        if code:
            raise SystemExit(f"{name}: CUDA error {code}")

    def put(self, array: Any) -> ctypes.c_void_p:
        pointer = ctypes.c_void_p()
        size = ctypes.c_size_t(array.nbytes)
        self.call("cudaMalloc", ctypes.byref(pointer), size)
        self.call("cudaMemcpy", pointer, array.ctypes.data_as(ctypes.c_void_p), size, TO_DEVICE)
        return pointer

    def get(self, pointer: ctypes.c_void_p, array: Any) -> Any:
        size = ctypes.c_size_t(array.nbytes)
        self.call("cudaMemcpy", array.ctypes.data_as(ctypes.c_void_p), pointer, size, TO_HOST)
        return array

    def version(self) -> int:
        found = ctypes.c_int()
        self.call("cudaRuntimeGetVersion", ctypes.byref(found))
        return found.value


def alone(kernels: Path, cudart: str) -> dict[str, Any]:
    """The forward kernel through the C table; returns what was compared."""
    gpu = Gpu(cudart)
    library = ctypes.CDLL(str(kernels))
    interface = read_header()
    table, abi = interface.table(library), interface.constants["LLTM_KERNEL_ABI"]
    head = table.head
    if head.abi != abi or head.device != b"cuda":
        raise SystemExit(
            f"{kernels}: kernels of ABI {head.abi} for {head.device!r}, needs ABI {abi} for "
            "b'cuda'; build them from this checkout"
        )
    execution = interface.types["lltm_execution"](device_index=0)
    random, compared, failed = np.random.default_rng(0), [], 0
    for number, (dtype, tolerance) in DTYPES.items():
        for batch, state in SHAPES:
            shapes = [(batch, 3, state), (3 * state,), (batch, state)]
            given = [random.standard_normal(shape).astype(dtype) for shape in shapes]
            new_h, new_cell = (np.zeros((batch, state), dtype) for _ in range(2))
            places = [gpu.put(array) for array in (*given, new_h, new_cell)]
            arguments = interface.types["lltm_cell_forward_arguments"](
                batch_size=batch,
                state_size=state,
                **dict(zip(TENSORS, places, strict=True)),
            )
            text = table.cell_forward(number, arguments, execution)
            if text:
                raise SystemExit(text.decode())
            wanted = definition(*given)
            got = gpu.get(places[3], new_h), gpu.get(places[4], new_cell)
            error = max(map(difference, got, wanted))
            failed += not error <= tolerance
            name = np.dtype(dtype).name
            compared.append({"dtype": name, "shape": [batch, state], "error": error})
            print(f"{'ok' if error <= tolerance else 'FAILED'} {compared[-1]}")
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    loaded = {line.split("/")[-1] for line in maps if "libcudart" in line}
    library.lltm_build_record.restype = ctypes.c_char_p
    record = json.loads(library.lltm_build_record())
    facts = {"kernels": record, "runtime": gpu.version(), "loaded": sorted(loaded)}
    return {**facts, "comparisons": compared, "failed": failed}


def with_torch(site: Path, cudart: Path, kernels: Path, report: Path) -> dict[str, Any]:
    """The release tool's smoke test: all dtypes on CPU and GPU, with these kernels alone."""
    env = {**os.environ, "PYTHONPATH": f"{site}:{os.environ.get('PYTHONPATH', '')}"}
    env["LD_LIBRARY_PATH"] = f"{cudart.parent}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    command = [sys.executable, str(SMOKE), "--json", str(report)]
    code = subprocess.run(command, env=env, cwd=site).returncode
    facts: dict[str, Any] = json.loads(report.read_text(encoding="utf-8")) if not code else {}
    used = kernels.name in facts.get("binaries", []) and "cuda" in facts.get("devices", [])
    print(f"{'ok' if used else 'FAILED'} torch's process used {kernels.name}")
    facts.pop("package", None)  # where it lay is nobody's business
    return {**facts, "failed": 0 if used and not code else 1, "exit_code": code}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--site", type=Path, required=True, help="folder with an installed lltm")
    parser.add_argument("--cudart", type=Path, required=True, help="the CUDA runtime it needs")
    parser.add_argument("--out", type=Path, required=True, help="where to write the result")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    site, cudart = args.site.resolve(), args.cudart.resolve()
    (kernels,) = site.glob("lltm_conda/lib/kernels-cuda*.so")
    if args.alone:
        args.out.write_text(json.dumps(alone(kernels, str(cudart))), encoding="utf-8")
        return 0
    part = args.out.with_suffix(".part")
    words = ["--site", site, "--cudart", cudart, "--out", part]
    subprocess.run([sys.executable, __file__, "--alone", *map(str, words)], check=True)
    first = json.loads(part.read_text(encoding="utf-8"))
    second = with_torch(site, cudart, kernels, part)
    part.unlink(missing_ok=True)
    result = {
        "command": f"python3 scripts/try_kernels.py --site SITE --cudart {cudart.name} --out FILE",
        "commit": commit(),
        "machine": machine(),
        "kernels": first.pop("kernels"),
        "alone": first,
        "torch": second,
    }
    args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 1 if first["failed"] or second["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
