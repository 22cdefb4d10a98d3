"""Accelerate prepares and trains a layer with gradient accumulation and mixed precision."""

import accelerate
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lltm_conda import LLTMLayer

accelerate.utils.set_seed(0)
accelerator = accelerate.Accelerator(
    cpu=True, mixed_precision="bf16", gradient_accumulation_steps=2
)
layer = LLTMLayer(3, 1)
x = torch.randn(64, 5, 3)
data = DataLoader(TensorDataset(x, x.mean((1, 2))), batch_size=8)
optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
layer, optimizer, data = accelerator.prepare(layer, optimizer, data)
losses = []
for _ in range(15):
    for sequences, target in data:
        with accelerator.accumulate(layer):
            output, _ = layer(sequences.transpose(0, 1))
            loss = nn.functional.mse_loss(output[-1, :, 0].float(), target)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
assert sum(losses[-8:]) < 0.7 * sum(losses[:8]), (losses[:8], losses[-8:])
state = accelerator.get_state_dict(layer)
assert set(state) == {"weights_l0", "bias_l0"}
