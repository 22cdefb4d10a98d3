"""skorch fits a classifier around a layer, and clones and pickles it as scikit-learn does."""

import pickle

import numpy as np
import torch
from sklearn.base import clone
from skorch import NeuralNetClassifier
from torch import nn

from lltm_conda import LLTMLayer


class Classifier(nn.Module):
    def __init__(self, hidden=8) -> None:
        super().__init__()
        self.layer = LLTMLayer(3, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 2)

    def forward(self, x):
        return self.head(self.layer(x)[0][:, -1])


torch.manual_seed(0)
x = np.random.default_rng(0).normal(size=(128, 5, 3)).astype("float32")
y = (x.sum((1, 2)) > 0).astype("int64")
net = NeuralNetClassifier(
    Classifier,
    criterion=nn.CrossEntropyLoss,
    optimizer=torch.optim.Adam,
    lr=0.02,
    max_epochs=30,
    verbose=0,
    train_split=None,
)
net = clone(net).set_params(module__hidden=12).fit(x, y)
assert net.score(x, y) > 0.9, net.score(x, y)
again = pickle.loads(pickle.dumps(net))
assert np.array_equal(again.predict(x), net.predict(x))
