"""Learns to undo the op; fails where it does not."""

import torch

from own_op import scale

x = torch.linspace(-1, 1, 50)[:, None]
line = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(line.parameters(), lr=0.1)
for _ in range(300):
    optimizer.zero_grad()
    (scale(line(x), 2.0) - x).square().mean().backward()
    optimizer.step()
torch.testing.assert_close(line.weight.item(), 0.5, atol=0.01, rtol=0)
