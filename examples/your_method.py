"""A local rule of your own, with FedGSP's groups and alone, against the built-in ones, over three seeds."""

from dataclasses import dataclass, replace
from statistics import fmean, stdev

from torch.nn.utils import clip_grad_norm_

import fedgsp
from fedgsp.client import SGD, LocalContext


@dataclass(frozen=True, kw_only=True)
class Clipped(SGD):
    """SGD whose gradients have at most a given length."""

    most: float = 1.0

    def adjust(self, ctx: LocalContext) -> None:
        """Called after each backward pass, before the step."""
        clip_grad_norm_(ctx.model.parameters(), self.most)


data = fedgsp.load("glyphs:clients=20")
mine = Clipped(lr=0.05, most=2.0)
methods = {
    "fedavg": replace(fedgsp.named("fedavg"), local=SGD(lr=0.05)),
    "fedgsp": replace(fedgsp.named("fedgsp"), local=SGD(lr=0.05)),
    "fedavg, clipped": replace(fedgsp.named("fedavg"), local=mine),
    "fedgsp, clipped": replace(fedgsp.named("fedgsp"), local=mine),
}
for name, method in methods.items():
    figures = [fedgsp.train(method, data, rounds=4, seed=seed, workers=0).accuracy for seed in range(3)]
    print(f"{name:16s} {fmean(figures):.3f} +- {stdev(figures):.3f}")
