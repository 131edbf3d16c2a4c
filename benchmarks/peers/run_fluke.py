"""fluke: its own FedAvg, with its fast data loader; clients forget their model after each round (persistency off)."""

from __future__ import annotations

from typing import Any

import torch
from link import MANY, Link, Steps, Work
from stand_ins import stand_in_for

stand_in_for("torchvision", "PIL", "datasets", "clearml", "wandb", "tensorboard", "opacus")
from fluke import DDict, FlukeENV  # noqa: E402
from fluke.algorithms.fedavg import FedAVG  # noqa: E402
from fluke.data import FastDataLoader  # noqa: E402
from fluke.utils import FederationObserver  # noqa: E402

torch.set_num_threads(1)
work, link, steps = Work.read(), Link(), Steps(torch.optim.SGD)


class Splitter:
    """In place of fluke's own: the clients are there already."""

    def assign(self, clients: int, batch_size: int) -> Any:
        loaders = [
            FastDataLoader(x, y, num_labels=work.classes, batch_size=batch_size, shuffle=True, skip_singleton=False)
            for x, y in work.tensors()
        ]
        return (loaders, [None] * clients), None


class Gate(FederationObserver):  # type: ignore[misc]
    def end_round(self, round: int) -> None:  # noqa: A002 - fluke's own name
        link.round_done(steps.count, lambda: work.loss(algorithm.server.model))


FlukeENV().set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
told = DDict(
    model=work.model(),
    client=DDict(
        batch_size=work.batch, local_epochs=1, loss="CrossEntropyLoss", optimizer=DDict(name="SGD", lr=work.lr),
        persistency=False, scheduler=DDict(name="StepLR", step_size=1, gamma=1),
    ),
    server=DDict(weighted=True),
)  # fmt: skip
algorithm = FedAVG(len(work.y), Splitter(), told)
algorithm.set_callbacks([Gate()])
link.ready(torch.get_num_threads(), "FedAVG, FastDataLoader, persistency off")
algorithm.run(MANY, work.per_round / len(work.y))
