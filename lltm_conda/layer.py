"""The LLTM over whole sequences as a module with the interface of ``torch.nn.LSTM``."""

import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from inspect import signature
from typing import Any, TypeVar, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.fx.proxy import Proxy
from torch.nn.utils.rnn import PackedSequence
from torch.utils.checkpoint import checkpoint

from ._arguments import (
    check_dtype,
    check_flag,
    check_like_parameters,
    check_pair,
    check_probability,
    check_size,
    check_supported,
    either,
)
from ._packed import Rectangle
from ._tensors import LayerResults
from ._torch_private import (
    autocast_is_active,
    forward_mode_is_active,
    functorch_is_active,
    is_exporting,
    jit_is_tracing,
)
from .layer_functions import lltm_sequence
from .modules import LLTM, Recurrent, parameter, proxies

__all__ = ["LLTMLayer"]

State = tuple[Tensor, Tensor]
Start = tuple[Tensor | None, Tensor | None]
NO_STATE: Start = (None, None)
Input = TypeVar("Input", Tensor, PackedSequence)


def is_traced() -> bool:
    """Whether ``torch.jit.trace`` runs, which would warn of a comparison of sizes."""
    return not is_compiling() and jit_is_tracing()


class LLTMLayer(Recurrent):
    """LLTM cells over whole sequences, in one or several layers and one or both directions.

    Each step of a layer computes ::

        [z_i, z_o, z_c] = [h, x] Wᵀ + b
        i = σ(z_i)    o = σ(z_o)    g = elu(z_c)
        c' = c + g · i
        h' = tanh(c') · o

    where ``x`` is the input of the first layer, or what the layer before puts out. Arguments and
    results have the names, order and shapes of ``torch.nn.LSTM``. There is no forget gate, and
    ``g`` is an ``elu``, not a ``tanh``.

    The parameters are those of one :class:`LLTM` for each layer and direction, and are drawn from
    U(-1/√S, 1/√S):

    - ``weights_l0`` ``(3S, S + I)``, with the columns of ``h`` first, and ``bias_l0`` ``(3S,)``;
    - ``weights_l1`` and so on ``(3S, S + S)``, or ``(3S, S + 2S)`` if bidirectional, and
      ``bias_l1`` and so on ``(3S,)``;
    - the same with ``_reverse`` behind their names for the backward direction.

    Example::

        layer = LLTMLayer(input_size=32, hidden_size=128, num_layers=2)
        output, (h_n, c_n) = layer(torch.randn(100, 16, 32))  # (T, B, I)
        # output: (100, 16, 128); h_n and c_n: (2, 16, 128)

    Args:
        input_size: ``I``, features of the input; required, by this name or as `input_features`.
        hidden_size: ``S``, size of the hidden and of the cell state; required, by this name or
            as `state_size`.
        num_layers: the number of layers; each but the first reads the output of the one before.
        bias: whether the cells have a bias.
        batch_first: input and output are ``(B, T, ...)`` instead of ``(T, B, ...)``; the
            shapes of the states stay the same.
        dropout: probability of dropping an element of a layer's output before the next layer
            reads it, in training.
        bidirectional: run each layer in both directions and concatenate their outputs.
        proj_size: must be 0, because the kernels do not support projections.
        device: the device of the parameters.
        dtype: the dtype of the parameters; float32, float64, float16 or bfloat16.
        keep_cells: keep the cell state of every step for backward. If False, backward
            computes the cell states again: backward takes longer, but the graph keeps a
            quarter less memory, not counting inputs and outputs. With a ``PackedSequence``,
            the value counts as True.
        checkpoint: keep for backward only the states before each run of this many steps, and
            compute the run again in backward. A run of about √T steps needs the least memory.
        input_features, state_size: :class:`LLTM`'s names for `input_size` and `hidden_size`.

    Raises:
        TypeError: a size is missing or not an integer, both of its names are given, or a
            switch is not a bool.
        ValueError: a size, `dropout` or `checkpoint` is out of range, `proj_size` is not 0, or
            `dtype` is another one.
    """

    mode = "LLTM"
    weights_l0: Tensor

    @overload
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        keep_cells: bool = True,
        checkpoint: int | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self,
        *,
        input_features: int,
        state_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        keep_cells: bool = True,
        checkpoint: int | None = None,
    ) -> None: ...

    def __init__(
        self,
        input_size: int | None = None,
        hidden_size: int | None = None,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        keep_cells: bool = True,
        checkpoint: int | None = None,
        input_features: int | None = None,
        state_size: int | None = None,
    ) -> None:
        """Draws the parameters. Both sizes are required, each by one of its two names."""
        super().__init__()
        features = either("LLTMLayer", input_size=input_size, input_features=input_features)
        state = either("LLTMLayer", hidden_size=hidden_size, state_size=state_size)
        self.input_size = check_size("LLTMLayer", "input_size", features, least=0)
        self.hidden_size = check_size("LLTMLayer", "hidden_size", state, least=1)
        self.num_layers = check_size("LLTMLayer", "num_layers", num_layers, least=1)
        self.bias = check_flag("LLTMLayer", "bias", bias)
        self.batch_first = check_flag("LLTMLayer", "batch_first", batch_first)
        self.dropout = check_probability("LLTMLayer", "dropout", dropout)
        self.bidirectional = check_flag("LLTMLayer", "bidirectional", bidirectional)
        self.proj_size = check_size("LLTMLayer", "proj_size", proj_size, least=0)
        check_dtype("LLTMLayer", dtype)
        self.keep_cells = check_flag("LLTMLayer", "keep_cells", keep_cells)
        self.checkpoint = checkpoint
        if checkpoint is not None:
            self.checkpoint = check_size("LLTMLayer", "checkpoint", checkpoint, least=1)
        if proj_size != 0:
            raise ValueError(
                f"LLTMLayer needs proj_size=0, got {proj_size}: its kernels have no projections; "
                "put an nn.Linear behind the layer"
            )
        self.input_features = self.input_size
        self.state_size = self.hidden_size
        if dropout > 0.0 and num_layers == 1:
            warnings.warn(
                f"lltm: dropout={dropout} acts between layers, so it has no effect with "
                "num_layers=1; set dropout=0.0 or num_layers=2",
                stacklevel=2,
            )
        for suffix, features in self._cells():
            shapes: dict[str, tuple[int, ...]] = {}
            shapes["weights"] = (3 * self.state_size, self.state_size + features)
            if self.bias:
                shapes["bias"] = (3 * self.state_size,)
            for name, shape in shapes.items():
                tensor = torch.empty(shape, device=device, dtype=dtype)
                self.register_parameter(name + suffix, nn.Parameter(tensor))
        self.reset_parameters()

    def forward(
        self, input: Input, hx: State | None = None, *, state: State | None = None
    ) -> tuple[Input, State]:
        """Runs all steps of all layers. D is 2 if bidirectional, else 1; L is `num_layers`.

        Args:
            input: ``(T, B, I)``, or ``(B, T, I)`` with `batch_first`, or ``(T, I)`` for one
                sequence without a batch, or a ``PackedSequence``.
            hx: ``(h_0, c_0)``, each ``(L·D, B, S)``, or ``(L·D, S)`` without a batch; zeros
                when None.
            state: :class:`LLTM`'s name for `hx`.

        Returns:
            ``(output, (h_n, c_n))``. `output` is the last layer's hidden state of every step,
            with ``D·S`` features and otherwise in the form of `input`. `h_n` and `c_n` are
            the states of every layer and direction after its last computed step, in the shape
            of `hx`.

        Raises:
            ValueError: `input` has not two or three dimensions, or the wrong dtype.
            RuntimeError: a size or device does not match, or the dtype of a state.
            TypeError: both `hx` and `state` are given.

        The message of each names the argument, what it got and what it needs.
        """
        if state is not None:
            if isinstance(input, Proxy):
                self._refuse_as_root(input.tracer)
            hx = either("LLTMLayer", hx=hx, state=state)
        if not isinstance(input, (Tensor, PackedSequence)) or proxies(input, hx):
            return self._record_call(LLTMLayer, input, hx)  # type: ignore[no-any-return]  # a Proxy
        try:
            if isinstance(input, PackedSequence):
                return self._run_packed(input, hx)
            return self._run_tensor(input, hx)
        except (RuntimeError, ValueError, TypeError, AttributeError):
            self._explain(input, hx)
            raise

    def _run_packed(self, input: PackedSequence, hx: State | None) -> tuple[PackedSequence, State]:
        self._check_features(input.data, 2, "input.data", "(sum of lengths, I)")
        rectangle = Rectangle(input)
        self._check_state(hx, (rectangle.padded.shape[1], self.state_size))
        if hx is not None:
            hx = (rectangle.sort(hx[0]), rectangle.sort(hx[1]))
        output, (h, cell) = self._run(rectangle.padded, hx, rectangle)
        final = rectangle.sort(h, back=True), rectangle.sort(cell, back=True)
        return rectangle.pack(output), final

    def _run_tensor(self, input: Tensor, hx: State | None) -> tuple[Tensor, State]:
        if input.dim() == 2:
            self._check_features(input, 2, "input", "(T, I)")
            self._check_state(hx, (self.state_size,))
            if hx is not None:
                hx = (hx[0].unsqueeze(1), hx[1].unsqueeze(1))
            output, (h, cell) = self._run(input.unsqueeze(1), hx, None)
            return output.squeeze(1), (h.squeeze_(1), cell.squeeze_(1))

        self._check_features(input, 3, "input", "(B, T, I)" if self.batch_first else "(T, B, I)")
        if self.batch_first:
            input = input.transpose(0, 1)
        self._check_state(hx, (input.shape[1], self.state_size))
        output, final = self._run(input, hx, None)
        return output.transpose(0, 1) if self.batch_first else output, final

    def cell(self, layer: int = 0, *, reverse: bool = False) -> LLTM:
        """A cell whose parameters are those of one layer and direction, not copies of them.

        If this module has no bias, the cell gets a bias of zeros that is not trained. Tensors
        that are computed from parameters (``torch.nn.utils.parametrize``, pruning,
        ``functional_call``) become attributes of the cell that are not parameters; gradients
        flow through them.

        Raises:
            ValueError: the layer or direction does not exist.
        """
        suffix = self._suffix(layer, reverse)
        weights = getattr(self, "weights" + suffix)
        features = weights.shape[1] - self.state_size
        cell = LLTM(features, self.state_size, device="meta")
        bias = getattr(self, "bias" + suffix) if self.bias else None
        if bias is None:
            zeros = weights.new_zeros(3 * self.state_size)
            bias = nn.Parameter(zeros, requires_grad=False)
        for name, tensor in (("weights", weights), ("bias", bias)):
            if isinstance(tensor, nn.Parameter):
                cell.register_parameter(name, tensor)
            else:  # computed from parameters: parametrized, pruned, or of functional_call
                delattr(cell, name)
                setattr(cell, name, tensor)
        return cell

    def load_cell(self, cell: LLTM, layer: int = 0, *, reverse: bool = False) -> None:
        """Copies the parameters of `cell` into one layer and direction.

        A parametrized tensor gets the value as an assignment does: through ``right_inverse``.

        Raises:
            ValueError: the layer or direction does not exist, the sizes differ, or `cell` has
                a bias other than zero although this module has no bias.
        """
        own = self.cell(layer, reverse=reverse)
        suffix = self._suffix(layer, reverse)
        if cell.weights.shape != own.weights.shape:
            raise ValueError(
                f"lltm: cell must have weights of shape (3S, S + I) = {tuple(own.weights.shape)} "
                f"for weights{suffix}, got {tuple(cell.weights.shape)}; make "
                f"it as LLTM({own.input_features}, {self.state_size})"
            )
        bias: Tensor | None = cell.bias
        if not self.bias and bias is not None and bias.count_nonzero():
            raise ValueError(
                "lltm: cell has a bias, and this layer has none; make it with LLTMLayer(bias=True)"
            )
        with torch.no_grad():
            self._assign("weights" + suffix, cell.weights)
            if self.bias:
                self._assign("bias" + suffix, torch.zeros_like(own.bias) if bias is None else bias)

    def _assign(self, name: str, value: Tensor) -> None:
        """Copies a value into a parameter, or into what a tensor is computed from."""
        if nn.utils.parametrize.is_parametrized(self, name):
            current = getattr(self, name)
            setattr(self, name, value.detach().to(current))
            return
        original = self._parameters.get(name + "_orig")  # of torch.nn.utils.prune
        if original is not None:
            original.copy_(value)
            getattr(self, name).copy_(value * getattr(self, name + "_mask"))
            return
        getattr(self, name).copy_(value)

    @classmethod
    def from_cells(
        cls,
        cells: Sequence[LLTM],
        *,
        bidirectional: bool = False,
        **options: Any,  # noqa: ANN401 - the constructor checks them
    ) -> "LLTMLayer":
        """A layer with copies of the parameters of `cells`.

        Args:
            cells: the cells layer by layer; if bidirectional, each layer's forward cell
                before its backward cell.
            bidirectional: as in the constructor.
            options: the constructor's other options: `bias`, `batch_first`, `dropout`,
                `keep_cells` and `checkpoint`.

        Raises:
            ValueError: the number of cells is wrong, `load_cell` refuses a cell, or an option
                is out of range.
        """
        directions = 2 if bidirectional else 1
        if not cells or len(cells) % directions:
            raise ValueError(
                f"LLTMLayer.from_cells needs a positive multiple of {directions} cells, got "
                f"{len(cells)}"
            )
        first = cells[0]
        layer = cls(
            first.input_features,
            first.state_size,
            num_layers=len(cells) // directions,
            bidirectional=bidirectional,
            device=first.weights.device,
            dtype=first.weights.dtype,
            **options,
        )
        for k, cell in enumerate(cells):
            layer.load_cell(cell, k // directions, reverse=k % directions == 1)
        return layer

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """Weights and bias of each layer and direction, in the order of the states.

        They are parameters, unless they are computed from some, as parametrized tensors are.
        """
        names = ("weights", "bias") if self.bias else ("weights",)
        return [[getattr(self, name + suffix) for name in names] for suffix, _ in self._cells()]

    def flatten_parameters(self) -> None:
        """Does nothing; code written for ``nn.LSTM`` may call it."""

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        """As ``torch.nn.LSTM``'s: refuses a wrong dtype, number of dimensions or width.

        `batch_sizes` are those of a ``PackedSequence`` whose data `input` is, or None.
        """
        if not autocast_is_active():
            check_like_parameters("input", input, self.weights_l0, wrong_dtype=ValueError)
        if batch_sizes is not None:
            self._check_features(input, 2, "input", "(sum of lengths, I)")
        else:
            letters = "(B, T, I)" if self.batch_first else "(T, B, I)"
            self._check_features(input, 3, "input", letters)

    def get_expected_hidden_size(
        self, input: Tensor, batch_sizes: Tensor | None
    ) -> tuple[int, int, int]:
        """As ``torch.nn.LSTM``'s: the shape ``(L·D, B, S)`` of `h_0` for this input."""
        if batch_sizes is not None:
            batch_size = int(batch_sizes[0])
        else:
            batch_size = input.shape[0] if self.batch_first else input.shape[1]
        return self._number_of_states(), batch_size, self.state_size

    def get_expected_cell_size(
        self, input: Tensor, batch_sizes: Tensor | None
    ) -> tuple[int, int, int]:
        """As ``torch.nn.LSTM``'s: the shape ``(L·D, B, S)`` of `c_0` for this input."""
        return self.get_expected_hidden_size(input, batch_sizes)

    def check_hidden_size(
        self,
        hx: Tensor,
        expected_hidden_size: tuple[int, int, int],
        msg: str = "Expected hidden size {}, got {}",
    ) -> None:
        """As ``torch.nn.LSTM``'s: refuses a state of another shape."""
        if tuple(hx.shape) != tuple(expected_hidden_size):
            raise RuntimeError(msg.format(expected_hidden_size, list(hx.shape)))

    def check_forward_args(self, input: Tensor, hidden: State, batch_sizes: Tensor | None) -> None:
        """As ``torch.nn.LSTM``'s: refuses arguments that `forward` would refuse."""
        self.check_input(input, batch_sizes)
        expected = self.get_expected_hidden_size(input, batch_sizes)
        self.check_hidden_size(hidden[0], expected, "Expected hidden[0] size {}, got {}")
        self.check_hidden_size(hidden[1], expected, "Expected hidden[1] size {}, got {}")

    def permute_hidden(self, hx: State, permutation: Tensor | None) -> State:
        """As ``torch.nn.LSTM``'s: both states with their batch in another order."""
        if permutation is None:
            return hx
        return hx[0].index_select(1, permutation), hx[1].index_select(1, permutation)

    def extra_repr(self) -> str:
        """Both sizes, and the options that are not the default, for ``print(layer)``."""
        names = ["num_layers", "bias", "batch_first", "dropout", "bidirectional"]
        names += ["keep_cells", "checkpoint"]
        options = signature(LLTMLayer).parameters
        changed = [name for name in names if getattr(self, name) != options[name].default]
        sizes = f"{self.input_features}, {self.state_size}"
        return ", ".join([sizes, *(f"{name}={getattr(self, name)}" for name in changed)])

    def _cells(self) -> Iterator[tuple[str, int]]:
        """The suffix of the parameters' names and the number of input features, for each cell."""
        directions = ("", "_reverse") if self.bidirectional else ("",)
        features = self.input_features
        for layer in range(self.num_layers):
            for direction in directions:
                yield f"_l{layer}{direction}", features
            features = len(directions) * self.state_size

    def _suffix(self, layer: int, reverse: bool) -> str:
        if not 0 <= layer < self.num_layers or (reverse and not self.bidirectional):
            raise ValueError(
                f"lltm: there is no layer={layer}, reverse={reverse} in an LLTMLayer with "
                f"num_layers={self.num_layers}, bidirectional={self.bidirectional}"
            )
        return f"_l{layer}" + ("_reverse" if reverse else "")

    def _check_features(self, input: Tensor, dims: int, name: str, meaning: str) -> None:
        if input.dim() == dims and is_traced():
            return
        if input.dim() != dims or input.shape[-1] != self.input_features:
            message = (
                f"lltm: {name} must have shape {meaning} with I = {self.input_features}, got "
                f"{tuple(input.shape)}; reshape it, or make a layer for its I: LLTMLayer(I, "
                f"{self.state_size})"
            )
            raise RuntimeError(message) if input.dim() in (2, 3) else ValueError(message)

    def _number_of_states(self) -> int:
        return self.num_layers * (2 if self.bidirectional else 1)

    def _check_state(self, state: State | None, shape: tuple[int, ...]) -> None:
        if state is None:
            return
        check_pair("hx", state, ("h_0", "c_0"))
        if is_traced():
            return
        expected = (self._number_of_states(), *shape)
        for name, tensor in zip(("h_0", "c_0"), state, strict=True):
            if tensor.shape != expected:
                letters = "(L·D, B, S)" if len(shape) == 2 else "(L·D, S)"
                raise RuntimeError(
                    f"lltm: {name} must have shape {letters} = {expected}, got "
                    f"{tuple(tensor.shape)}; L·D is num_layers, or twice that if bidirectional"
                )

    def _explain(self, input: Tensor | PackedSequence, hx: State | None) -> None:
        """After an error, raises one that names what the caller gave, if that is the cause."""
        data = input.data if isinstance(input, PackedSequence) else input
        name = "input.data" if isinstance(input, PackedSequence) else "input"
        check_supported(name, data)
        check_like_parameters(name, data, self.weights_l0, wrong_dtype=ValueError)
        if hx is None:
            return
        check_pair("hx", hx, ("h_0", "c_0"))
        for name, tensor in zip(("h_0", "c_0"), hx, strict=True):
            check_like_parameters(name, tensor, self.weights_l0)

    def _run(
        self, input: Tensor, state: State | None, rectangle: Rectangle | None
    ) -> tuple[Tensor, State]:
        """Runs all layers on ``(T, B, I)``; `rectangle` is None except for a PackedSequence."""
        if self.num_layers == 1 and not self.bidirectional:  # quicker: no splits and no copies
            start = state or NO_STATE
            output, h, cell = self._direction(
                input, "_l0", start, reverse=False, rectangle=rectangle
            )
            # Truncated backpropagation calls `detach_`, which refuses views, so make none. The
            # results of a subclass of Tensor are views.
            if type(h) is not Tensor:
                h, cell = h.clone(), cell.clone()
            if h.dim() == 3:
                return output, (h, cell)
            # Compiled code would return a view for a change of shape in place.
            if is_compiling():
                return output, (h.unsqueeze(0).clone(), cell.unsqueeze(0).clone())
            return output, (h.unsqueeze_(0), cell.unsqueeze_(0))
        starts = [NO_STATE] * (2 * self.num_layers)
        if state is not None:
            starts = list(zip(state[0].unbind(0), state[1].unbind(0), strict=True))
        finals: list[State] = []
        for layer in range(self.num_layers):
            outputs = []
            for reverse in (False, True) if self.bidirectional else (False,):
                suffix = self._suffix(layer, reverse)
                start = starts[len(finals)]
                output, h, cell = self._direction(
                    input, suffix, start, reverse=reverse, rectangle=rectangle
                )
                outputs.append(output)
                finals.append((h, cell))
            input = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=2)
            if self.dropout > 0.0 and layer + 1 < self.num_layers:
                input = F.dropout(input, self.dropout, self.training)
        h_n, c_n = (torch.stack(states) for states in zip(*finals, strict=True))
        return input, (h_n, c_n)

    def _direction(
        self,
        input: Tensor,
        suffix: str,
        start: Start,
        *,
        reverse: bool,
        rectangle: Rectangle | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Runs one cell over ``(T, B, I)``; returns its output and final states."""
        weights = parameter(self, "weights" + suffix)
        bias = parameter(self, "bias" + suffix) if self.bias else None
        run = self._checkpointed if self._runs_checkpointed() else lltm_sequence
        if rectangle is None:
            results = run(input, weights, bias, *start, reverse=reverse, keep_cells=self.keep_cells)
            return results.output, results.final_h, results.final_cell
        # `mirror` reverses each sequence and leaves the padding at the end.
        if reverse:
            input = rectangle.mirror(input)
        output, _, _, cells = run(input, weights, bias, *start)
        h = rectangle.final(output)
        cell = rectangle.final(cells)
        return rectangle.mirror(output) if reverse else output, h, cell

    def _runs_checkpointed(self) -> bool:
        """Whether to checkpoint.

        Not in an exported or traced program, which would keep the number of runs, nor under
        ``torch.func``, which has no hooks on saved tensors, nor in forward mode, which
        ``checkpoint`` of torch 2.10 and 2.11 refuses.
        """
        if self.checkpoint is None or not torch.is_grad_enabled():
            return False
        recorded = is_exporting() or is_traced()
        return not (recorded or functorch_is_active() or forward_mode_is_active())

    def _checkpointed(
        self,
        input: Tensor,
        weights: Tensor,
        bias: Tensor | None,
        initial_h: Tensor | None,
        initial_cell: Tensor | None,
        *,
        reverse: bool = False,
        keep_cells: bool = True,
    ) -> LayerResults:
        """`lltm_sequence` in runs of steps; the graph keeps only the states before each run.

        Compiled code runs all steps at once: a loop over runs would be compiled again for every
        length.
        """
        assert self.checkpoint is not None
        steps = partial(lltm_sequence, reverse=reverse, keep_cells=keep_cells)
        call = partial(checkpoint, steps, use_reentrant=False, preserve_rng_state=False)
        if is_compiling():
            return LayerResults(*call(input, weights, bias, initial_h, initial_cell))
        order = -1 if reverse else 1
        h = initial_h
        cell = initial_cell
        outputs = []
        cells = []
        for run in input.split(self.checkpoint)[::order]:
            results = call(run, weights, bias, h, cell)
            h = results.final_h
            cell = results.final_cell
            outputs.append(results.output)
            cells.append(results.cells)
        return LayerResults(
            output=torch.cat(outputs[::order]),
            final_h=results.final_h,
            final_cell=results.final_cell,
            cells=torch.cat(cells[::order]),
        )
