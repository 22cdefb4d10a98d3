"""captum's attributions through a layer add up, and agree with those through plain PyTorch."""

import torch
from captum.attr import IntegratedGradients, Saliency
from torch import nn

from lltm_conda import LLTMLayer, reference


class Model(nn.Module):
    def __init__(self, *, plain: bool) -> None:
        super().__init__()
        self.layer = LLTMLayer(3, 4, batch_first=True, dtype=torch.float64)
        self.plain = plain

    def forward(self, x):
        if not self.plain:
            return self.layer(x)[0][:, -1].sum(1)
        h = c = x.new_zeros(len(x), 4)
        for step in x.unbind(1):
            h, c = reference(step, self.layer.weights_l0, self.layer.bias_l0, h, c)
        return h.sum(1)


torch.manual_seed(0)
model = Model(plain=False)
plain = Model(plain=True)
plain.load_state_dict(model.state_dict())
x = torch.randn(2, 5, 3, dtype=torch.float64)
for method in (IntegratedGradients, Saliency):
    torch.testing.assert_close(method(model).attribute(x), method(plain).attribute(x))
attributions, delta = IntegratedGradients(model).attribute(x, return_convergence_delta=True)
assert delta.abs().max() < 1e-2, delta
