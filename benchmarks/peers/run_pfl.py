"""pfl-research: its FederatedAveraging on its simulated backend, in one process."""

from __future__ import annotations

import itertools
import random
from typing import Any

import torch
from link import MANY, Link, Steps, Work
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel

torch.set_num_threads(1)
work, link = Work.read(), Link()
module = work.model()


def loss(x: Any, y: Any, **_: Any) -> Any:
    return torch.nn.functional.cross_entropy(module(x), y)


module.loss = loss
module.metrics = lambda x, y, **_: {"samples": Weighted(0, len(y))}  # no evaluation
users = [Dataset(pair, user_id=str(k)) for k, pair in enumerate(work.tensors())]


def sampler() -> Any:
    """Everybody in random order, again and again: no client twice in a round."""
    for _ in itertools.count():
        yield from random.sample(range(len(users)), len(users))


class Gate(TrainingProcessCallback):  # type: ignore[misc]
    def after_central_iteration(self, aggregate_metrics: Any, model: Any, *, central_iteration: int) -> Any:
        local = steps.count - (central_iteration + 1)  # the server's own step is one of the optimiser, too
        link.round_done(local, lambda: work.loss(module))
        return False, Metrics()


draw = sampler()
federation = FederatedDataset(lambda user: users[user], lambda: next(draw))
steps = Steps(torch.optim.SGD)
model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
algorithm = FederatedAveraging()
link.ready(torch.get_num_threads(), "SimulatedBackend, one process")
algorithm.run(
    NNAlgorithmParams(
        central_num_iterations=MANY, evaluation_frequency=MANY, train_cohort_size=work.per_round, val_cohort_size=None
    ),
    SimulatedBackend(federation, federation), model,
    NNTrainHyperParams(local_num_epochs=1, local_learning_rate=work.lr, local_batch_size=work.batch), callbacks=[Gate()],
)  # fmt: skip
