"""The modelled floor: the fewest operations and bytes of a step, over the rates of the machine.

Two ceilings are measured in the same run: the rate of a large matrix product, and the bandwidth of
a copy (bytes read plus bytes written). On the CPU the copy is as large as the step's own data, so
that it runs in the same cache. A GPU has a third term: the fewest launches, at the rate of the
smallest kernel.

The floor is the largest term. A step that takes much longer has room for improvement.
"""

import torch
from torch.utils.benchmark import Timer

from .schema import Ceilings, Floor, Size


def forward_flops(size: Size) -> float:
    """Operations of the gate products of all steps; the pointwise part is not counted."""
    return 2.0 * size.steps * size.batch * (size.inputs + size.state) * 3 * size.state


def parameters(size: Size) -> int:
    return 3 * size.state * (size.state + size.inputs + 1)


def forward_elements(size: Size) -> float:
    """Elements read or written once: inputs, parameters, outputs, saved gates."""
    b, i, s, t = size.batch, size.inputs, size.state, size.steps
    saved = 3 * b * s
    return parameters(size) + 2 * b * s + t * (b * i + b * s + saved) + b * s


def backward_elements(size: Size, input_gradients: bool) -> float:
    """Elements of backward: saved values and gradients in, gradients out."""
    b, i, s, t = size.batch, size.inputs, size.state, size.steps
    elements = t * (3 * b * s + b * s + b * s + b * (s + i)) + parameters(size)
    if input_gradients:
        elements += parameters(size) + t * b * i + 2 * b * s
    return elements


def model(size: Size, dtype: torch.dtype, ceilings: Ceilings, protocol: str) -> dict[str, Floor]:
    """Floors per step, by metric of the protocol; `train` is forward and backward together."""
    all_gradients = protocol != "tutorial"

    def floor(flops: float, elements: float, launches: float) -> Floor:
        return Floor(
            compute_us=flops / ceilings.gemm_flops * 1e6 / size.steps,
            memory_us=elements * dtype.itemsize / ceilings.copy_bytes_per_second * 1e6 / size.steps,
            launch_us=launches * (ceilings.launch_us or 0.0) / size.steps,
        )

    flops = forward_flops(size)
    saved = size.steps * 3 * size.batch * size.state
    forward = (flops, forward_elements(size), 2)  # GEMM and pointwise
    inference = (flops, forward_elements(size) - saved, 2)
    # Pointwise with db, and dW; also dh and dx where the inputs need gradients.
    products, launches = (2, 4) if all_gradients else (1, 2)
    backward = (flops * products, backward_elements(size, all_gradients), launches)
    if protocol == "graph":
        train = [f + b for f, b in zip(forward, backward, strict=True)]
        return {"forward": floor(*inference), "train": floor(*train)}
    metrics = {"forward": forward, "backward": backward, "inference": inference}
    return {metric: floor(*counts) for metric, counts in metrics.items()}


def working_set(size: Size, dtype: torch.dtype) -> int:
    """Bytes that forward reads and writes."""
    return int(forward_elements(size) * dtype.itemsize)


def measure_gemm(dtype: torch.dtype, device: str) -> float:
    """Operations per second of a large product of square random matrices."""
    n = (8192 if dtype.itemsize <= 2 else 4096) if device == "cuda" else 1024
    a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    timer = Timer("torch.mm(a, b, out=out)", globals={"torch": torch, "a": a, "b": b, "out": out})
    timer.timeit(2)
    return 2.0 * n**3 / timer.blocked_autorange(min_run_time=0.3).median


def measure_copy(bytes_moved: int, device: str) -> float:
    """Bytes per second, read plus written, of a copy that moves this many bytes."""
    n = max(1024, bytes_moved // 2 // 4)
    source = torch.randn(n, device=device)
    target = torch.empty_like(source)
    timer = Timer("target.copy_(source)", globals={"target": target, "source": source})
    timer.timeit(2)
    return 2.0 * n * 4 / timer.blocked_autorange(min_run_time=0.2).median


def measure_launch() -> float:
    """Microseconds from one of the smallest kernels to the next inside a CUDA graph."""
    x = torch.randn(32, device="cuda")
    launches = 200
    for _ in range(3):
        x.add_(1.0)
    torch.cuda.synchronize()
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        for _ in range(launches):
            x.add_(1.0)
    timer = Timer("g.replay()", globals={"g": recorded})
    timer.timeit(3)
    return timer.blocked_autorange(min_run_time=0.1).median * 1e6 / launches


def measure_ceilings(dtype: torch.dtype, device: str, bytes_moved: int) -> Ceilings:
    """Measure the ceilings; `bytes_moved`, the working set, matters only on the CPU."""
    with torch.no_grad():
        gemm = measure_gemm(dtype, device)
        if device == "cpu":
            return Ceilings(gemm, measure_copy(bytes_moved, device))
        # Two GiB are far beyond any L2 cache.
        return Ceilings(gemm, measure_copy(2 << 30, device), measure_launch())
