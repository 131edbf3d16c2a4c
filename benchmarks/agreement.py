"""How far compiled steps are from plain ones: one client's epoch (8 steps) of random networks.

    python benchmarks/agreement.py [--networks 200]

The largest difference in units in the last place of the tensor's largest weight, and as a share of the largest change in the
same tensor, which is what the check before a run looks at.
"""

from __future__ import annotations

import argparse
import copy

import numpy as np
import torch
from torch import nn

from fedgsp import from_arrays
from fedgsp.client import SGD
from fedgsp.client.train import Trainer
from fedgsp.core.chain import Hop
from fedgsp.core.seeds import Seeds
from fedgsp.core.tensors import Tensors, clone
from fedgsp.data.batches import gather
from fedgsp.fast import PLAIN, Kernel, Obstacles, candidates
from fedgsp.models import classification
from fedgsp.models.state import model_tensors

CLASSES = 10


def network(rng: np.random.Generator) -> tuple[nn.Module, tuple[int, ...]]:
    """Up to two convolutions and up to two hidden layers."""
    side, channels = int(rng.integers(8, 20)), int(rng.integers(1, 4))
    shape, layers, width, out = (channels, side, side), [], side, channels
    for _ in range(int(rng.integers(0, 3))):
        many, kernel = int(rng.integers(2, 24)), int(rng.choice([1, 3, 5]))
        layers += [nn.Conv2d(out, many, kernel, padding=kernel // 2), nn.ReLU(), nn.MaxPool2d(2)]
        out, width = many, width // 2
    features = out * width * width
    layers.append(nn.Flatten())
    for _ in range(int(rng.integers(0, 3))):
        many = int(rng.integers(8, 300))
        layers += [nn.Linear(features, many), nn.ReLU()]
        features = many
    return nn.Sequential(*layers, nn.Linear(features, CLASSES)), shape


def after(model: nn.Module, rule: SGD, data: object, kernel: Kernel) -> Tensors:
    turn = Trainer(copy.deepcopy(model), rule, classification(), data, torch.device("cpu"), Seeds(0), kernel)  # type: ignore[arg-type]
    turn.train(1, Hop(0, 0, 0), clone(model_tensors(model)), {})
    return clone(turn.tensors())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=200)
    torch.set_num_threads(1)
    rng, rule = np.random.default_rng(0), SGD(lr=0.05, batch_size=5)
    ulps, shares = [], []
    for number in range(parser.parse_args().networks):
        torch.manual_seed(number)
        model, shape = network(rng)
        x = rng.normal(size=(40, *shape)).astype(np.float32)
        data = from_arrays(x, rng.integers(0, CLASSES, 40), np.zeros(40, int), ["a"], classes=CLASSES, test_fraction=0.0)
        kernel = next(candidates(model, gather(data, np.arange(2))[0], Obstacles(), largest_batch=5))
        assert isinstance(kernel, Kernel), kernel
        before, plain, fast = clone(model_tensors(model)), after(model, rule, data, PLAIN), after(model, rule, data, kernel)
        worst, share = 0.0, 0.0
        for name, tensor in plain.items():
            apart, change = (tensor - fast[name]).abs(), float((tensor - before[name]).abs().max())
            unit = 2.0**-23 * float(tensor.abs().max())
            worst, share = max(worst, float((apart / unit).max())), max(share, float(apart.max()) / change if change else 0.0)
        ulps.append(worst)
        shares.append(share)
    for what, values in (("ulps of a tensor's largest weight", ulps), ("of the largest change", shares)):
        quantiles = ", ".join(f"{q} %: {np.percentile(values, q):.2g}" for q in (50, 90, 95, 99, 100))
        print(f"largest difference in {what}, over {len(values)} networks: {quantiles}")


if __name__ == "__main__":
    main()
