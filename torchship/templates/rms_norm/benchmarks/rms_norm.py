"""Median microseconds on a GPU, against torch.nn.RMSNorm and the formula in eager operations:
`python benchmarks/rms_norm.py [ROWS COLUMNS]`, outside the folder with the sources."""

import statistics
import sys

import torch

from own_op import reference, rms_norm

rows, columns = map(int, sys.argv[1:] or (8192, 4096))
x, dy = (torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16) for _ in range(2))
weight = torch.randn(columns, device="cuda", dtype=torch.bfloat16)
leaves = [x.requires_grad_(), weight.requires_grad_()]
flush = torch.empty(2**26, device="cuda")  # larger than the cache


def microseconds(call) -> float:
    times = []
    for _ in range(110):
        flush.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000)
    return statistics.median(times[10:])


for name, op in {
    "own-op": rms_norm,
    "torch.nn.RMSNorm": lambda x, w: torch.nn.functional.rms_norm(x, w.shape, w, 1e-6),
    "eager formula": reference,
}.items():
    with torch.no_grad():
        forward = microseconds(lambda op=op: op(*leaves))
    y = op(*leaves)
    backward = microseconds(lambda y=y: torch.autograd.grad(y, leaves, dy, retain_graph=True))
    print(f"{name:18} forward {forward:7.1f}   backward {backward:7.1f}")
