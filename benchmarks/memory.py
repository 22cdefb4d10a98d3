"""Memory: the peak of a training loop over many steps, and what one step keeps for backward."""

from dataclasses import replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from .contender import Calls, Cell, Inputs, Request, State, make_inputs
from .schema import Measured

LOOP_STEPS = 256


def measure(cell: Cell, request: Request) -> dict[str, Measured]:
    size, dtype, device = request.size, request.dtype, request.device
    loop = make_inputs(replace(size, steps=LOOP_STEPS), dtype, device, seed=4)
    peak = float(peak_of_loop(cell, loop))
    saved = float(saved_for_backward(cell, make_inputs(size, dtype, device, seed=3)))
    rows = saved / (size.batch * size.state * dtype.itemsize)
    return {
        "peak of training loop": Measured("bytes", [[peak]], {"steps": float(LOOP_STEPS)}),
        "saved per step": Measured("bytes", [[saved]], {"rows of B*S": rows}),
    }


def training_loop(cell: Cell, x: Tensor, state: State) -> None:
    for x_t in x.unbind(0):
        state = cell.call(x_t, state)
    torch.stack([s.sum() for s in state]).sum().backward()


def peak_of_loop(cell: Cell, inputs: Inputs) -> int:
    """Peak bytes of the loop over `inputs.x` (T, B, I), beyond those allocated before it."""
    x, state = inputs.detached(requires_grad=False)
    state = tuple(s[0] for s in state)  # a step has no dimension of layers
    cell.module.zero_grad(set_to_none=True)
    training_loop(cell, x[:2], state)  # warm-up: allocates workspaces and library handles
    cell.module.zero_grad(set_to_none=True)
    if x.is_cuda:
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
    changes = [
        (event.start_ns(), event.nbytes())
        for event in profiler.profiler.kineto_results.events()
        if event.name() == "[memory]" and event.device_type() == torch.autograd.DeviceType.CPU
    ]
    changes.sort(key=lambda change: change[0])
    return max(accumulate(size for _, size in changes))


def saved_for_backward(cell: Cell, inputs: Inputs) -> int:
    """Bytes that one step keeps for backward beyond its inputs, parameters and outputs.

    Counts the distinct storages that autograd packs. Tensors that an op keeps elsewhere, such as in
    attributes of its context, show only in the peak of the loop.
    """
    calls = Calls(cell, inputs)
    packed: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        packed[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        outputs = calls.forward()
    known = {t.untyped_storage().data_ptr() for t in (*calls.leaves, *outputs)}
    return sum(t.untyped_storage().nbytes() for key, t in packed.items() if key not in known)
