"""Loads `kit` by the loader, and calls the operators that ask for autocast; prints as kit_program.

python autocast_program.py FOLDER_OF_THE_BUILT_CLIENT
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from small_clients import loader_of, project_of

loader = loader_of(project_of("kit", Path(sys.argv[1])))
loader.load()
kit = torch.ops.kit
low = torch.bfloat16


def backward(context, gradient, _):
    return gradient, []


torch.library.register_autograd("kit::lowered", backward)


@torch.library.register_fake("kit::lowered")
def _(x, more, *, factor=1.0):
    return torch.empty_like(x), torch.empty_like(more[0] if more else x)


def dtypes(device: str) -> dict[str, object]:
    """By property, what autocast does on a device."""
    x = torch.linspace(-2, 3, 8, device=device)
    outside = kit.lowered(x, [x.double()])
    with torch.autocast(device, dtype=low):
        lowered = kit.lowered(x, [x.double(), x])
        both = kit.lowered(x.half(), [x], factor=2.0)
        integers = kit.lowered(x.int(), [])
        raised = kit.raised(x.to(low))
        with torch.autocast(device, enabled=False):
            disabled = kit.lowered(x, [])
        leaf = x.clone().requires_grad_()
        kit.lowered(leaf, [])[0].sum().backward()
        compiled = torch.compile(
            lambda x: kit.lowered(x, [])[0] + 1, backend="aot_eager", fullgraph=True
        )(x)
    return {
        "nothing is cast outside": [str(part.dtype) for part in outside],
        "float64 stays, float32 is lowered": [str(part.dtype) for part in lowered],
        "a list and float16 are lowered": [str(part.dtype) for part in both],
        "integers stay": str(integers[0].dtype),
        "bfloat16 is raised": str(raised.dtype),
        "a disabled block casts nothing": str(disabled[0].dtype),
        "values are those of a cast": torch.equal(lowered[0], x.to(low)),
        "gradients": [str(leaf.grad.dtype), leaf.grad.tolist()],
        "compiled": torch.equal(compiled, x.to(low) + 1),
    }


print(json.dumps({d: dtypes(d) for d in ("cpu", *["cuda"] * torch.cuda.is_available())}))
