"""The types of what torch hands to autograd Functions and to rules of ``torch.vmap``.

Torch itself leaves them untyped. Its objects fit these protocols as they are, in eager mode
and under Dynamo, so nothing is made at run time.
"""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor


class Context(Protocol):
    """The `ctx` of an autograd Function: what it saves for backward, and what backward needs."""

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What `save_for_backward` got: tensors, and None where it got None."""

    @property
    def needs_input_grad(self) -> tuple[bool, ...]: ...

    def save_for_backward(self, *tensors: Tensor | None) -> None: ...

    def mark_non_differentiable(self, *outputs: Tensor) -> None: ...

    def set_materialize_grads(self, value: bool) -> None: ...


class BackwardOpContext(Context, Protocol):
    """The `ctx` of ``torch.ops.lltm.backward``, which keeps that op's `needs`."""

    needs: int


class LayerContext(Context, Protocol):
    """The `ctx` of a layer, which keeps two of the raw op's options."""

    reverse: bool
    allow_tf32: bool


class VmapInfo(Protocol):
    """What torch says of one mapping to a rule of ``torch.vmap``."""

    @property
    def batch_size(self) -> int: ...
