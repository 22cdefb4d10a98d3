"""The names of Python and torch to which the API page links, as Sphinx inventories.

They are few and written by hand, so that the site builds without a network.
"""

from __future__ import annotations

import zlib
from pathlib import Path

_PYTHON = {
    "bool": ("class", "library/functions.html"),
    "collections.abc.Callable": ("class", "library/collections.abc.html"),
    "collections.abc.Iterable": ("class", "library/collections.abc.html"),
    "collections.abc.Mapping": ("class", "library/collections.abc.html"),
    "collections.abc.Sequence": ("class", "library/collections.abc.html"),
    "float": ("class", "library/functions.html"),
    "ImportError": ("exception", "library/exceptions.html"),
    "int": ("class", "library/functions.html"),
    "None": ("data", "library/constants.html"),
    "pathlib.Path": ("class", "library/pathlib.html"),
    "RuntimeError": ("exception", "library/exceptions.html"),
    "str": ("class", "library/stdtypes.html"),
    "tuple": ("class", "library/stdtypes.html"),
    "TypeError": ("exception", "library/exceptions.html"),
    "ValueError": ("exception", "library/exceptions.html"),
}
_TORCH = {
    "torch.autograd.Function": ("class", "autograd.html"),
    "torch.device": ("class", "tensor_attributes.html"),
    "torch.dtype": ("class", "tensor_attributes.html"),
    "torch.nn.LSTM": ("class", "generated/torch.nn.LSTM.html"),
    "torch.nn.LSTMCell": ("class", "generated/torch.nn.LSTMCell.html"),
    "torch.nn.Module": ("class", "generated/torch.nn.Module.html"),
    "torch.nn.utils.rnn.PackedSequence": (
        "class",
        "generated/torch.nn.utils.rnn.PackedSequence.html",
    ),
    "torch.Tensor": ("class", "tensors.html"),
}


def inventory(project: str, names: dict[str, tuple[str, str]]) -> bytes:
    """An inventory of version 2: four lines, then the names with their places, compressed."""
    head = (
        "# Sphinx inventory version 2\n"
        f"# Project: {project}\n"
        "# Version: \n"
        "# The remainder of this file is compressed using zlib.\n"
    )
    lines = [f"{name} py:{kind} 1 {page}#$ -\n" for name, (kind, page) in sorted(names.items())]
    return head.encode() + zlib.compress("".join(lines).encode())


def write(folder: Path) -> dict[str, tuple[str, str]]:
    """Writes both inventories into a folder; what `intersphinx_mapping` says of them."""
    folder.mkdir(parents=True, exist_ok=True)
    python = folder / "python.inv"
    python.write_bytes(inventory("Python", _PYTHON))
    torch = folder / "torch.inv"
    torch.write_bytes(inventory("PyTorch", _TORCH))
    return {
        "python": ("https://docs.python.org/3/", str(python)),
        "torch": ("https://docs.pytorch.org/docs/stable/", str(torch)),
    }
