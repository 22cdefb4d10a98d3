"""safetensors stores and loads cell and layer, also a cell that shares a layer's parameters."""

import torch
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import nn

from lltm_conda import LLTM, LLTMLayer

for make in (lambda: LLTM(3, 4), lambda: LLTMLayer(3, 4, 2, bidirectional=True)):
    module = make()
    save_file(module.state_dict(), "module.safetensors")
    other = make()
    other.load_state_dict(load_file("module.safetensors"))
    for ours, theirs in zip(module.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = LLTMLayer(3, 4)
        self.cell = self.layer.cell()


tied = Tied()
save_model(tied, "tied.safetensors")
loaded = Tied()
load_model(loaded, "tied.safetensors")
assert torch.equal(loaded.cell.weights, tied.layer.weights_l0)
