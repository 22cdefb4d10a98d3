"""Memory: the peak of a training loop over many steps, and what one step keeps for backward."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .problem import Cell, Inputs, State, make_inputs
from .schema import Size

LOOP_STEPS = 256


def training_loop(cell: Cell, x: Tensor, state: State) -> None:
    """Unroll the cell over `x` (T, B, I) and run backward through all of it."""
    for x_t in x.unbind(0):
        state = cell.call(x_t, state)
    torch.stack([s.sum() for s in state]).sum().backward()


def peak_of_loop(cell: Cell, size: Size, dtype: torch.dtype, device: str, seed: int) -> int:
    """Bytes allocated at the worst moment of the loop, beyond what was there before it.

    On CUDA the caching allocator's own count; on the CPU the running sum of the allocations and
    releases that the profiler reports.
    """
    steps = size.steps if size.steps > 1 else LOOP_STEPS
    inputs = make_inputs(replace(size, steps=steps), dtype, device, seed)
    x, state = inputs.detached(requires_grad=False)
    cell.module.zero_grad(set_to_none=True)
    training_loop(cell, x[:2], state)  # warm: workspaces and library handles are not the loop's
    cell.module.zero_grad(set_to_none=True)
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        training_loop(cell, x, state)
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() - before
    else:
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            training_loop(cell, x, state)
        peak = _peak_of_profile(profiler)
    cell.module.zero_grad(set_to_none=True)
    return peak


def _peak_of_profile(profiler: Any) -> int:
    """The largest running sum of the CPU allocations, in order of time."""
    changes = [
        (event.start_ns(), event.nbytes())
        for event in profiler.profiler.kineto_results.events()
        if event.name() == "[memory]" and event.device_type() == torch.autograd.DeviceType.CPU
    ]
    if not changes:
        raise RuntimeError(
            "torch's profiler reported no allocation on the CPU; peak memory there needs a torch "
            "whose profiler has '[memory]' events (2.4 to 2.15 have): measure memory on CUDA"
        )
    current = peak = 0
    for _, size in sorted(changes, key=lambda change: change[0]):
        current += size
        peak = max(peak, current)
    return peak


def saved_for_backward(cell: Cell, inputs: Inputs) -> int:
    """Bytes one step keeps for backward beyond its inputs, parameters and outputs.

    Counted over distinct storages that autograd packs. What an op keeps elsewhere (attributes of
    its context) does not pass here; the peak of the loop shows it.
    """
    x, state = inputs.detached(requires_grad=True)
    packed: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        packed[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        outputs = cell.call(x, state)
    known = {
        t.untyped_storage().data_ptr() for t in (x, *state, *cell.module.parameters(), *outputs)
    }
    return sum(t.untyped_storage().nbytes() for key, t in packed.items() if key not in known)
