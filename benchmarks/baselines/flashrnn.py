"""FlashRNN's LSTM as a contender, if the package `flashrnn` can be imported.

It is not among the requirements: its licence allows measuring it, and no code of it is here. It
compiles its kernels for each size, which takes a minute.
"""

import importlib
from functools import partial
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..contender import Cell, Request, State, Unavailable, prepared

DTYPES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
PROPERTIES = {
    "maxThreadsPerBlock": "max_threads_per_block",
    "regsPerMultiprocessor": "regs_per_multiprocessor",
    "multiProcessorCount": "multi_processor_count",
    "sharedMemPerBlockOptin": "shared_memory_per_block_optin",
}
"""What FlashRNN asks of the GPU, and the names of these facts in torch."""


class FlashLSTM(nn.Module):
    """An LSTM of one head; the gates are in FlashRNN's order i, f, g, o."""

    def __init__(self, inputs: int, state: int) -> None:
        super().__init__()
        self.weight_ih = nn.Parameter(torch.empty(4 * state, inputs))
        self.weight_hh = nn.Parameter(torch.empty(4 * state, state))
        self.bias_ih = nn.Parameter(torch.empty(4 * state))


def gpu_facts(device_id: int) -> dict[str, int]:
    """Stands for FlashRNN's own probe of the GPU, which CUDA 13 does not compile."""
    properties = torch.cuda.get_device_properties(device_id)
    return {name: getattr(properties, ours) for name, ours in PROPERTIES.items()}


def _flashrnn(backend: str, request: Request) -> Cell:
    if request.device != "cuda" or request.dtype not in DTYPES:
        raise Unavailable("FlashRNN runs float32, float16 and bfloat16 on a GPU alone")
    try:
        package = importlib.import_module("flashrnn")
        implementation = importlib.import_module("flashrnn.flashrnn.flashrnn")
    except ImportError as error:
        raise Unavailable(f"flashrnn cannot be imported: {error}; pip install flashrnn") from error
    vars(implementation)["get_gpu_info"] = gpu_facts
    module = cast(FlashLSTM, prepared(FlashLSTM, request))
    state_size = request.size.state

    def call(x: Tensor, state: State) -> tuple[Tensor, ...]:
        steps, batch, _ = x.shape
        z = F.linear(x, module.weight_ih).transpose(0, 1)
        outputs, last = package.flashrnn(
            z.reshape(batch, steps, 4, 1, state_size),
            module.weight_hh.view(4, 1, state_size, state_size),
            module.bias_ih.view(4, 1, state_size),
            states=torch.stack([part.transpose(0, 1)[:, None] for part in state]),
            function="lstm",
            backend=backend,
            dtype=DTYPES[request.dtype],
        )
        hidden = outputs[0].reshape(batch, steps, state_size).transpose(0, 1)
        h_n, c_n = last.reshape(2, 1, batch, state_size)
        return hidden, h_n, c_n

    return Cell("lstm-one-bias", module, call, slack=2.0)


fused = partial(_flashrnn, "cuda_fused")
alternating = partial(_flashrnn, "cuda")
