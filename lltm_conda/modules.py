"""The LLTM cell as a module."""

import math
from typing import Any, NoReturn, overload

import torch
from torch import Tensor, nn
from torch.fx.proxy import Proxy, TraceError
from torch.nn.utils.rnn import PackedSequence

from ._arguments import (
    check_dtype,
    check_flag,
    check_like_parameters,
    check_pair,
    check_size,
    check_supported,
    either,
)
from ._torch_private import forward_hooks_of_all_modules
from .functions import lltm

__all__ = ["LLTM"]

State = tuple[Tensor, Tensor]


def proxies(*arguments: object) -> list[Proxy]:
    """What ``torch.fx.symbolic_trace`` passes instead of tensors, also inside of a state."""
    found = []
    for argument in arguments:
        members = argument if isinstance(argument, (tuple, list)) else (argument,)
        found += [member for member in members if isinstance(member, Proxy)]
    return found


def has_foreign_hooks(module: nn.Module) -> bool:
    """Whether forward hooks run at its call that are not torch's own, such as those of pruning."""
    hooks = [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]
    hooks += forward_hooks_of_all_modules()
    return any(not type(hook).__module__.startswith("torch.") for hook in hooks)


def parameter(module: nn.Module, name: str) -> Tensor:
    """``getattr(module, name)``, but quicker: Python would search object and class first."""
    tensor = module._parameters.get(name)  # None for a parametrized tensor
    return getattr(module, name) if tensor is None else tensor


class Recurrent(nn.Module):
    """The base class of the cell and of the layer."""

    state_size: int

    def reset_parameters(self) -> None:
        """Draws all parameters from U(-1/√S, 1/√S), as the tutorial and ``nn.LSTM`` do."""
        bound = 1.0 / math.sqrt(self.state_size)
        for tensor in self.parameters():
            nn.init.uniform_(tensor, -bound, bound)

    def _refuse_as_root(self, tracer: Any) -> None:  # noqa: ANN401 - a Tracer, which is untyped
        if self is tracer.root:
            raise TraceError(
                f"lltm: torch.fx.symbolic_trace records a call of {type(self).__name__} in a "
                "larger module, as it does of torch.nn.LSTM; wrap it in a module"
            )

    def _record_call(self, owner: type["Recurrent"], input: object, state: object) -> Any:  # noqa: ANN401 - a Proxy
        """Records one call of this module in ``torch.fx.symbolic_trace``; refuses other inputs.

        In ``torch.nn``'s modules the tracer does not step, either. `owner` is the class whose
        ``forward`` calls this method.

        Raises:
            TypeError: nothing is traced, so `input` is no tensor.
            TraceError: the recorded call would not compute what this call computes.
        """
        traced = proxies(input, state)
        if not traced:
            if isinstance(input, PackedSequence):
                advice = "a cell computes one step, so give whole sequences to an LLTMLayer"
            else:
                advice = "convert data with torch.as_tensor(data)"
            raise TypeError(
                f"lltm: input must be a torch.Tensor, got {type(input).__name__}; {advice}"
            )
        tracer: Any = traced[0].tracer
        name = type(self).__name__
        self._refuse_as_root(tracer)
        # The recorded call would run a second time what the tracer has run and recorded by now.
        own_forward = "forward" in vars(self) or type(self).forward is not owner.forward
        twice = [
            "a forward method of its own" if own_forward else "",
            "forward hooks" if has_foreign_hooks(self) else "",
        ]
        if any(twice):
            raise TraceError(
                f"lltm: torch.fx.symbolic_trace cannot record a call of {name}, which has "
                f"{' and '.join(filter(None, twice))}; trace it with a torch.fx.Tracer whose "
                f"is_leaf_module is true for {name}"
            )
        return tracer.create_proxy("call_module", tracer.path_of_module(self), (input, state), {})

    def __prepare_scriptable__(self) -> NoReturn:
        """Refuses ``torch.jit.script``, which calls this method first."""
        raise NotImplementedError(
            "lltm: TorchScript is not supported (a custom autograd Function cannot be scripted); "
            "use torch.export or torch.compile, or script a module that calls lltm_conda.reference"
        )


class LLTM(Recurrent):
    """One step of the LLTM recurrent cell, with its parameters.

    It computes ::

        [z_i, z_o, z_c] = [h, x] Wᵀ + b
        i = σ(z_i)    o = σ(z_o)    g = elu(z_c)
        c' = c + g · i
        h' = tanh(c') · o

    The parameters have the names and shapes of PyTorch's tutorial: ``weights``
    ``(3S, S + I)`` with the columns of ``h`` first, and ``bias`` ``(3S,)``; they are drawn from
    U(-1/√S, 1/√S). State dicts of the tutorial load unchanged, also those of the tutorial's
    repository, where ``bias`` is ``(1, 3S)``. Arguments, attributes and results have the names,
    order and shapes of ``torch.nn.LSTMCell``, too.

    Example::

        cell = LLTM(3, 5)
        h, c = cell(torch.randn(2, 3))  # from zeros; each (2, 5)
        h, c = cell(torch.randn(2, 3), (h, c))

    Args:
        input_features: ``I``, features of the input; required, by this name or as `input_size`.
        state_size: ``S``, size of the hidden and of the cell state; required, by this name or as
            `hidden_size`.
        bias: whether the cell has a bias. Without one, the attribute ``bias`` is None.
        device: the device of the parameters.
        dtype: the dtype of the parameters; float32, float64, float16 or bfloat16.
        input_size, hidden_size: the names of ``torch.nn.LSTMCell`` for the two sizes.

    Raises:
        TypeError: a size is missing or not an integer, both of its names are given, or `bias`
            is not a bool.
        ValueError: a size is negative, ``state_size`` is zero, or `dtype` is another one.
    """

    @overload
    def __init__(
        self,
        input_features: int,
        state_size: int,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self,
        *,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

    def __init__(  # noqa: PLR0913, PLR0917 - as nn.LSTMCell
        self,
        input_features: int | None = None,
        state_size: int | None = None,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        input_size: int | None = None,
        hidden_size: int | None = None,
    ) -> None:
        """Draws the parameters. Both sizes are required, each by one of its two names."""
        super().__init__()
        features = either("LLTM", input_features=input_features, input_size=input_size)
        state = either("LLTM", state_size=state_size, hidden_size=hidden_size)
        features = check_size("LLTM", "input_features", features, least=0)
        state = check_size("LLTM", "state_size", state, least=1)
        has_bias = check_flag("LLTM", "bias", bias)
        check_dtype("LLTM", dtype)
        self.input_features = self.input_size = features
        self.state_size = self.hidden_size = state
        self.weights = nn.Parameter(
            torch.empty(3 * state, state + features, device=device, dtype=dtype)
        )
        if has_bias:
            self.bias = nn.Parameter(torch.empty(3 * state, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def forward(
        self, input: Tensor, state: State | None = None, *, hx: State | None = None
    ) -> State:
        """Computes one step.

        Args:
            input: ``(B, I)``, or ``(I,)`` without a batch.
            state: ``(h, c)``, each ``(B, S)``, or ``(S,)`` without a batch; zeros when None.
            hx: the name of ``torch.nn.LSTMCell`` for `state`.

        Returns:
            ``(new_h, new_cell)``, each in the shape of `h`.

        Raises:
            ValueError: a tensor has not one or two dimensions.
            RuntimeError: a size, dtype or device does not match.
            TypeError: both `state` and `hx` are given.

        The message of each names the argument, what it got and what it needs.
        """
        if hx is not None:
            state = self._one_state(input, state, hx)
        traced = not isinstance(input, Tensor)
        if type(state) is tuple and len(state) == 2:  # quicker than to ask any pair
            traced = traced or isinstance(state[0], Proxy) or isinstance(state[1], Proxy)
        elif state is not None:  # a tensor could be unpacked by rows
            traced = traced or bool(proxies(state))
            if not traced:
                check_pair("state", state, ("h", "c"))
        if traced:
            return self._record_call(LLTM, input, state)  # type: ignore[no-any-return]  # a Proxy
        try:
            if input.dim() == 1:
                return self._without_batch(input, state)
            if state is None:
                zeros = input.new_zeros(input.shape[0], self.state_size)
                state = (zeros, zeros)
            old_h, old_cell = state
            # Quicker than attributes, which Python would search in object and class first.
            parameters = self._parameters
            weights = parameters.get("weights")
            bias = parameters.get("bias")
            if weights is None or bias is None:  # parametrized, or without a bias
                return lltm(input, self.weights, self._bias_or_zeros(), old_h, old_cell)
            return lltm(input, weights, bias, old_h, old_cell)
        except (RuntimeError, ValueError, TypeError, AttributeError, IndexError):
            self._explain(input, state)
            raise

    def _one_state(self, input: object, state: State | None, hx: State) -> State:
        """The state that was given under one of its two names."""
        if isinstance(input, Proxy):
            self._refuse_as_root(input.tracer)
        return either("LLTM", state=state, hx=hx)

    def _without_batch(self, input: Tensor, state: State | None) -> State:
        """One step for one row, with vectors instead of matrices."""
        if state is not None:
            check_pair("state", state, ("h", "c"))
            state = (state[0].unsqueeze(0), state[1].unsqueeze(0))
        new_h, new_cell = self.forward(input.unsqueeze(0), state)
        return new_h.squeeze(0), new_cell.squeeze(0)

    def _bias_or_zeros(self) -> Tensor:
        bias: Tensor | None = self.bias
        return self.weights.new_zeros(3 * self.state_size) if bias is None else bias

    def _explain(self, input: Tensor, state: object) -> None:
        """After an error, raises one that names what the caller gave, if that is the cause."""
        check_supported("input", input)
        known_dim = input.dim() in (1, 2)
        if not known_dim or input.shape[-1] != self.input_features:
            message = (
                f"lltm: input must have shape (B, I) or (I,) with I = {self.input_features}, got "
                f"{tuple(input.shape)}; reshape it, or make a cell for its I: LLTM(I, "
                f"{self.state_size})"
            )
            raise RuntimeError(message) if known_dim else ValueError(message)
        weights = self.weights
        check_like_parameters("input", input, weights)
        if state is None:
            return
        check_pair("state", state, ("h", "c"))
        shape = (*input.shape[:-1], self.state_size)
        letters = "(B, S)" if input.dim() == 2 else "(S,)"
        for name, tensor in zip(("h", "c"), state, strict=True):  # type: ignore[call-overload]
            if tuple(tensor.shape) != shape:
                message = (
                    f"lltm: {name} of state must have shape {letters} = {shape}, got "
                    f"{tuple(tensor.shape)}; B is read from input, S is the cell's state_size"
                )
                raise RuntimeError(message) if tensor.dim() in (1, 2) else ValueError(message)
            check_like_parameters(name, tensor, weights)

    def extra_repr(self) -> str:
        """Both sizes, and a missing bias, for ``print(cell)``."""
        sizes = f"input_features={self.input_features}, state_size={self.state_size}"
        return sizes if self.bias is not None else f"{sizes}, bias=False"

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: object, **kwargs: object
    ) -> None:
        bias = state_dict.get(prefix + "bias")
        if isinstance(bias, Tensor) and bias.shape == (1, 3 * self.state_size):
            state_dict[prefix + "bias"] = bias.flatten()
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
