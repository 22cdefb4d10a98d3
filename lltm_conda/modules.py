"""The LLTM cell as a module."""

import math
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from .functions import lltm

__all__ = ["LLTM"]


def parameter(module: nn.Module, name: str) -> Tensor:
    """``getattr(module, name)``, but quicker: Python would search object and class first."""
    tensor = module._parameters.get(name)  # None for a parametrised tensor
    return getattr(module, name) if tensor is None else tensor


class Recurrent(nn.Module):
    """The base class of the cell and of the layer."""

    state_size: int

    def reset_parameters(self) -> None:
        """Draws all parameters from U(-1/√S, 1/√S), as the tutorial and ``nn.LSTM`` do."""
        bound = 1.0 / math.sqrt(self.state_size)
        for tensor in self.parameters():
            nn.init.uniform_(tensor, -bound, bound)

    def __prepare_scriptable__(self) -> NoReturn:
        """Refuses ``torch.jit.script``, which calls this method first."""
        raise NotImplementedError(
            "lltm: TorchScript is not supported (a custom autograd Function cannot be scripted); "
            "use torch.export or torch.compile, or script a module that calls lltm_conda.reference"
        )


class LLTM(Recurrent):
    """One step of the LLTM recurrent cell, with its parameters.

    The parameters have the names and shapes of PyTorch's tutorial: ``weights`` ``(3S, S + I)`` with
    the columns of ``h`` first, and ``bias`` ``(3S,)``. State dicts of the tutorial load unchanged,
    also those of the tutorial's repository, where ``bias`` is ``(1, 3S)``.

    Args:
        input_features: ``I``, features of the input.
        state_size: ``S``, size of the hidden and of the cell state.
        device: the device of the parameters.
        dtype: the dtype of the parameters; float32, float64, float16 or bfloat16.

    Raises:
        ValueError: a size is negative, or ``state_size`` is zero.
    """

    def __init__(
        self,
        input_features: int,
        state_size: int,
        *,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if input_features < 0 or state_size < 1:
            raise ValueError(
                "LLTM needs input_features >= 0 and state_size >= 1, got "
                f"input_features={input_features}, state_size={state_size}"
            )
        self.input_features = input_features
        self.state_size = state_size
        self.weights = nn.Parameter(
            torch.empty(3 * state_size, state_size + input_features, device=device, dtype=dtype)
        )
        self.bias = nn.Parameter(torch.empty(3 * state_size, device=device, dtype=dtype))
        self.reset_parameters()

    def forward(
        self, input: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Computes one step.

        Args:
            input: ``(B, I)``.
            state: ``(h, c)``, each ``(B, S)``; zeros when None.

        Returns:
            ``(new_h, new_cell)``, each ``(B, S)``.

        Raises:
            RuntimeError: a shape, dtype or device does not match; the text names the argument.
        """
        if state is None:
            zeros = input.new_zeros(input.shape[0], self.state_size)
            state = (zeros, zeros)
        old_h, old_cell = state
        return lltm(input, parameter(self, "weights"), parameter(self, "bias"), old_h, old_cell)

    def extra_repr(self) -> str:
        return f"input_features={self.input_features}, state_size={self.state_size}"

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        bias = state_dict.get(prefix + "bias")
        if isinstance(bias, Tensor) and bias.shape == (1, 3 * self.state_size):
            state_dict[prefix + "bias"] = bias.flatten()
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
