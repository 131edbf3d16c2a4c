"""A torch model of your own. It is trained as plain PyTorch would train it; the first line of a run says by which steps."""

import torch
from torch import nn

import fedgsp


class Net(nn.Module):
    """A network with dropout, which the compiled steps do not do."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
        self.head = nn.Sequential(nn.Dropout(0.1), nn.Linear(16 * 12 * 12, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Class scores of some pictures."""
        return self.head(self.features(x.view(-1, 1, 28, 28)))


data = fedgsp.load("glyphs:clients=30")
result = fedgsp.train("fedgsp", data, lambda classes: Net(classes), rounds=6, lr=0.03, workers=0)
print(f"accuracy {result.accuracy:.3f}")

# Start from weights that you have: hand over a module in place of a function.
again = fedgsp.train("fedavg", data, result.model(), rounds=2, lr=0.03, workers=0)
print(f"after two rounds of fedavg from there: {again.accuracy:.3f}")
