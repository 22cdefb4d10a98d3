"""Pads sequences of several lengths to the rectangle on which the op runs, and packs results."""

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence


class Rectangle:
    """A PackedSequence padded to ``(T, B, I)``, longest sequence first.

    `padded` has zeros after the end of each sequence; `lengths` ``(B,)`` is int64, on the CPU.
    """

    def __init__(self, packed: PackedSequence) -> None:
        self._packed = packed
        in_order = PackedSequence(packed.data, packed.batch_sizes)
        self.padded, _ = pad_packed_sequence(in_order)
        steps, batch_size = self.padded.shape[:2]
        # `pad_packed_sequence` writes its lengths into memory that make_fx does not follow.
        rows = torch.arange(batch_size, device=packed.batch_sizes.device)
        self.lengths = (packed.batch_sizes.unsqueeze(1) > rows).sum(0)
        device = packed.data.device
        lengths = self.lengths.to(device, non_blocking=True)
        self._rows = torch.arange(batch_size, device=device)
        self._last = lengths - 1
        time = torch.arange(steps, device=device).unsqueeze(1)
        self._mirrored = torch.where(time < lengths, lengths - 1 - time, time)

    def mirror(self, sequence: Tensor) -> Tensor:
        """Reverses each sequence of ``(T, B, ...)`` and leaves the padding in place."""
        return sequence[self._mirrored, self._rows]

    def final(self, sequence: Tensor) -> Tensor:
        """``(B, S)``: the last element of each sequence of ``(T, B, S)``."""
        return sequence[self._last, self._rows]

    def pack(self, sequence: Tensor) -> PackedSequence:
        """``(T, B, S)`` as a PackedSequence with the lengths and order of the input."""
        data = pack_padded_sequence(sequence, self.lengths).data
        packed = self._packed
        # Dynamo loses the fields of `packed._replace(data=data)`.
        return PackedSequence(
            data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices
        )

    def sort(self, state: Tensor, *, back: bool = False) -> Tensor:
        """The batch of ``(L, B, S)`` in the rectangle's order or, with `back`, in the caller's."""
        order = self._packed.unsorted_indices if back else self._packed.sorted_indices
        return state if order is None else state.index_select(1, order)
