"""fedgsp by its Python interface, as users call it: `run_fedgsp.py WORKERS FAST [GROUPS]`; with GROUPS FedGSP's own rounds."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Any

import torch
from link import MANY, Link, Work

import fedgsp
from fedgsp.plan import Constant
from fedgsp.server import Mean

work, link = Work.read(), Link()
workers, fast, chains = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 0
torch.set_num_threads(1)
steps, newest = 0, {}


@dataclass(frozen=True)
class Kept(Mean):
    """The mean, which also lets us look at the newest model."""

    def step(self, state: Any, mean: Any) -> Any:
        made = super().step(state, mean)
        newest.update(made.model)
        return made


class Gate(fedgsp.Callback):
    """Stops at every round until the driver wants the next."""

    def on_round_start(self, plan: Any) -> None:
        if plan.round == 1:
            link.ready(torch.get_num_threads(), f"fast {fast}, {workers} workers")

    def on_round_end(self, entry: dict[str, Any]) -> None:
        global steps
        steps += entry["steps"]
        link.round_done(steps, self.loss)

    def loss(self) -> float:
        model = work.model()
        model.load_state_dict(newest)
        return work.loss(model)


clients, samples = work.y.shape
data = fedgsp.from_arrays(
    work.x.reshape(-1, *work.x.shape[2:]), work.y.reshape(-1), [k for k in range(clients) for _ in range(samples)],
    test_fraction=0.0,
)  # fmt: skip
method = fedgsp.named("fedgsp" if chains else "fedavg")
planner = replace(method.planner, kappa=work.per_round / clients)
if chains:
    planner = replace(planner, growth=Constant(chains))
method = replace(method, planner=planner, local=replace(method.local, lr=work.lr, batch_size=work.batch), server=Kept())
fedgsp.train(
    method, data, work.model(), rounds=MANY, workers=workers, fast=fast, eval_every=MANY, callbacks=[Gate()]
)  # fmt: skip
