"""Walking a chain inside one process: the model stays where it is and visits the clients' data one after the other."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from fedgsp.client.keep import Bag, ClientStore
from fedgsp.client.train import Trainer
from fedgsp.core.chain import Chain, HopReport
from fedgsp.core.tensors import Tensors
from fedgsp.core.wire import FULL, rounded
from fedgsp.data.federated import FederatedData
from fedgsp.engine.job import Job
from fedgsp.engine.manager import Begin, Finished, GroupManager, Policy, Train, Trained
from fedgsp.evaluate.forward import SampleScores, score_rows
from fedgsp.models.catalog import initial_tensors


@dataclass
class Walker:
    """One process's model and data, ready to walk chains and to evaluate."""

    trainer: Trainer
    store: ClientStore | None = None
    at_server: frozenset[int] = frozenset()

    @classmethod
    def of(cls, job: Job) -> Walker:
        """Build the model and bind the data."""
        device = torch.device(job.device)
        model = job.fresh_model().to(device)
        parts = (model, job.rule, job.task, job.data, device, job.seeds, job.kernel, job.wire)
        trainer = Trainer(*parts, fresh=lambda seed: initial_tensors(job.model, seed, job.equip))
        return cls(trainer, job.store, job.at_server)

    def bag(self, kept: Mapping[int, str]) -> Bag:
        """What a chain will carry beside its model, from the committed states of its clients."""
        return Bag(self.store, kept)

    def walk(
        self,
        round_: int,
        chain: Chain,
        start: Tensors,
        shared: Tensors,
        absent: frozenset[int],
        on_hop: Callable[[HopReport], None],
        on_train: Callable[[int], None] = lambda client: None,
        bag: Bag | None = None,
    ) -> tuple[Tensors, tuple[HopReport, ...]]:
        """The tensors that the last client hands on (sharing the model's memory) and a report of every hop.

        A failing hop raises: here a failure is a bug or a lack of memory, so the caller decides about the whole chain. What the
        clients keep and send beside the model is in `bag` afterwards.
        """
        hops = self.hops(round_, chain, start, shared, absent, on_train, Bag() if bag is None else bag)
        while True:
            try:
                on_hop(next(hops))
            except StopIteration as end:
                walked: tuple[Tensors, tuple[HopReport, ...]] = end.value
                return walked

    def hops(
        self,
        round_: int,
        chain: Chain,
        start: Tensors,
        shared: Tensors,
        absent: frozenset[int],
        on_train: Callable[[int], None],
        bag: Bag,
        carried: Tensors | None = None,
    ) -> Generator[HopReport, None, tuple[Tensors, tuple[HopReport, ...]]]:
        """The same, hop by hop. `carried` is the model as it comes from hops that were walked elsewhere (and are `absent`)."""
        wire = self.trainer.wire if self.trainer.rule.hands_on else FULL
        start = rounded(start, wire)
        self.trainer.load(start if carried is None else carried)
        manager = GroupManager(chain, Policy(on_failure="stop"), absent)
        actions = manager.step(Begin(), 0.0)
        trained = carried is not None
        while True:
            for action in actions:
                if isinstance(action, Finished):
                    return self.trainer.tensors(), action.hops
                if isinstance(action, Train):
                    on_train(action.stop.client)
                    report = self.trainer.visit(round_, action.stop, start, shared, not trained, bag)
                    trained = True
                    if wire != FULL:
                        self.trainer.load(rounded(self.trainer.tensors(), wire))
                    if action.stop.client in self.at_server:
                        report = replace(report, bytes_down=0, bytes_up=0)
                    yield report
                    actions = manager.step(Trained(action.stop.hop, action.attempt, None, report), 0.0)

    def score(
        self,
        tensors: Tensors,
        beside: Tensors,
        rows: NDArray[np.int64],
        owner: int | None = None,
        round_: int = 0,
        bag: Bag | None = None,
        data: FederatedData | None = None,
    ) -> SampleScores:
        """Per-sample scores of a model on some rows; `beside` is what the local rule needs to evaluate it.

        With an `owner`, that client makes the model of round `round_` its own first, by what it has in its `bag` from its
        visits. `data` has the rows, where it is not what the clients train on.
        """
        trainer = self.trainer
        trainer.load(tensors)
        trainer.rule.pose(trainer.model, beside)
        if owner is not None:
            trainer.personalise(round_, owner, bag)
        samples = trainer.data if data is None else data
        return score_rows(trainer.model, trainer.task, samples, rows, trainer.device, trainer.fused)


def peak_memory_bytes() -> int:
    """The largest resident memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
