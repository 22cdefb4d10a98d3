"""The LLTM cell in plain PyTorch: the definition with which tests compare the compiled op.

The definition runs on every device that PyTorch supports and needs no binary of the package.
Where no binary fits, import the package with ``LLTM_CONDA_LOAD=0`` and then use this module.
"""

import torch
import torch.nn.functional as F

__all__ = ["reference"]


def reference(
    input: torch.Tensor,
    weights: torch.Tensor,
    bias: torch.Tensor,
    old_h: torch.Tensor,
    old_cell: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One step of the LLTM cell (an LSTM without a forget gate, with ELU for the candidate).

    ``X = [h, x]``; ``[z_i, z_o, z_c] = X Wᵀ + b``; ``i = σ(z_i)``, ``o = σ(z_o)``,
    ``g = elu(z_c)``; ``c' = c + g·i``; ``h' = tanh(c')·o``. This is the cell of PyTorch's
    tutorial "Custom C++ and CUDA Extensions".

    Args:
        input: ``(B, I)``, floating point.
        weights: ``(3S, S + I)``; the columns of ``h`` come first, the rows in the order i, o, c.
        bias: ``(3S,)`` or ``(1, 3S)``.
        old_h: ``(B, S)``, the previous hidden state.
        old_cell: ``(B, S)``, the previous cell state.

    Returns:
        ``(new_h, new_cell)``, each ``(B, S)``, of the dtype of ``input``.

    Raises:
        RuntimeError: shapes, dtypes or devices do not match; the text is PyTorch's own.
    """
    z = F.linear(torch.cat([old_h, input], dim=1), weights, bias.flatten())
    z_i, z_o, z_c = z.chunk(3, dim=1)
    new_cell = old_cell + F.elu(z_c) * torch.sigmoid(z_i)
    return torch.tanh(new_cell) * torch.sigmoid(z_o), new_cell
