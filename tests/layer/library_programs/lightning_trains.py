"""Lightning trains a layer, saves it, and loads what it saved."""

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lltm_conda import LLTMLayer


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = LLTMLayer(3, 8, batch_first=True)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.layer(x)[0][:, -1])

    def training_step(self, batch, _index):
        x, y = batch
        loss = nn.functional.mse_loss(self(x), y)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.05)


lightning.seed_everything(0)
x = torch.randn(64, 5, 3)
data = DataLoader(TensorDataset(x, x.sum((1, 2)).tanh()[:, None]), batch_size=16)
model = Model()
model.losses = []
trainer = lightning.Trainer(
    max_epochs=10, accelerator="cpu", logger=False, enable_progress_bar=False, deterministic=True
)
trainer.fit(model, data)
assert sum(model.losses[-4:]) < 0.5 * sum(model.losses[:4]), model.losses
trainer.save_checkpoint("model.ckpt")
loaded = Model.load_from_checkpoint("model.ckpt")
torch.testing.assert_close(loaded(x), model.cpu()(x))
