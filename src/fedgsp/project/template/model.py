"""What is trained. `shape` is that of a sample, `classes` how many there are."""

from torch import nn


def network(shape: tuple[int, ...], classes: int) -> nn.Module:
    """A small network for samples of any shape."""
    size = 1
    for length in shape:
        size *= length
    return nn.Sequential(nn.Flatten(), nn.Linear(size, 32), nn.ReLU(), nn.Linear(32, classes))
