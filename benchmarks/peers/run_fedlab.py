"""FedLab: its standalone pipeline with its own FedAvg server and serial client trainer."""

from __future__ import annotations

from typing import Any

import torch
from link import MANY, Link, Steps, Work
from stand_ins import stand_in_for

stand_in_for("torchvision", "PIL", "pynvml", "munch")
from fedlab.contrib.algorithm.fedavg import FedAvgSerialClientTrainer, FedAvgServerHandler  # noqa: E402
from fedlab.core.standalone import StandalonePipeline  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

torch.set_num_threads(1)
work, link, steps = Work.read(), Link(), Steps(torch.optim.SGD)
data = [TensorDataset(x, y) for x, y in work.tensors()]


class Clients:
    def get_dataloader(self, client: int, batch_size: int) -> Any:
        return DataLoader(data[client], batch_size=batch_size, shuffle=True)


class Pipeline(StandalonePipeline):  # type: ignore[misc]
    def evaluate(self) -> None:
        link.round_done(steps.count, lambda: work.loss(self.handler.model))


handler = FedAvgServerHandler(work.model(), MANY, work.per_round / len(data))
trainer = FedAvgSerialClientTrainer(work.model(), len(data))
trainer.setup_dataset(Clients())
trainer.setup_optim(1, work.batch, work.lr)
pipeline = Pipeline(handler, trainer)
link.ready(torch.get_num_threads(), "StandalonePipeline, FedAvgSerialClientTrainer")
pipeline.main()
