"""Hops and evaluations inside one process: the model stays where it is, and the clients take turns with it."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from fedgsp.client.client_state import ClientStates, ClientStore
from fedgsp.client.train import Trainer
from fedgsp.core.blend import blended
from fedgsp.core.tensors import FULL, Tensors, clone, rounded
from fedgsp.evaluate.forward import SampleScores, evaluate_rows
from fedgsp.models.catalog import initial_tensors

if TYPE_CHECKING:
    from fedgsp.core.chain import Chain, HopReport
    from fedgsp.data.federated import FederatedData
    from fedgsp.engine.base import WorkerSetup


@dataclass
class ChainRunner:
    """One process's model and data, ready to train chains and to evaluate."""

    trainer: Trainer
    store: ClientStore | None = None
    at_server: frozenset[int] = frozenset()

    @classmethod
    def of(cls, setup: WorkerSetup) -> ChainRunner:
        """Build the model and bind the data."""
        device = torch.device(setup.device)
        model = setup.fresh_model().to(device)
        parts = (model, setup.rule, setup.task, setup.data, device, setup.seeds, setup.kernel, setup.wire)
        trainer = Trainer(*parts, fresh=lambda seed: initial_tensors(setup.model, seed, setup.wrap_model))
        return cls(trainer, setup.store, setup.at_server)

    def client_states(self, versions: Mapping[int, str]) -> ClientStates:
        """What a chain will carry beside its model, from the committed states of its clients."""
        return ClientStates(self.store, versions)

    def run(
        self,
        round_: int,
        chain: Chain,
        start: Tensors,
        shared: Tensors,
        absent: frozenset[int] = frozenset(),
        client_states: ClientStates | None = None,
    ) -> tuple[Tensors, tuple[HopReport, ...]]:
        """Train a whole chain: the tensors that its last client hands on (sharing the model's memory), the report of each hop.

        What the clients keep and send beside the model is in `client_states` afterwards.
        """
        states = ClientStates() if client_states is None else client_states
        hops = tuple(self.hops(round_, chain, start, shared, absent, lambda client: None, states))
        return self.trainer.tensors(), hops

    def hops(
        self,
        round_: int,
        chain: Chain,
        start: Tensors,
        shared: Tensors,
        absent: frozenset[int],
        on_hop_start: Callable[[int], None],
        client_states: ClientStates,
        carried: Tensors | None = None,
        before: int = 1,
    ) -> Iterator[HopReport]:
        """The same, hop by hop; in the end the model has what is handed on.

        `carried` is the model as it comes from hops that were done elsewhere (and are `absent`), `before` how many those are. A
        hop that fails raises: here that is a bug or a lack of memory, so the caller decides about the whole chain.
        """
        wire = self.trainer.wire if self.trainer.rule.hands_on else FULL
        start = rounded(start, wire)
        self.trainer.load(start if carried is None else carried)
        trained = 0 if carried is None else before
        mean: Tensors = {} if carried is None or before >= chain.least else clone(carried)
        for hop in chain.hops():
            if hop.index in absent:
                continue
            on_hop_start(hop.client)
            first = trained < chain.least
            if first and trained:
                self.trainer.load(start)
            report = self.trainer.train(round_, hop, start, shared, first, client_states)
            trained += 1
            if wire != FULL:
                self.trainer.load(rounded(self.trainer.tensors(), wire))
            if first and chain.least > 1:
                mean = rounded(blended(mean, self.trainer.tensors(), trained), wire)
                self.trainer.load(mean)
            yield replace(report, bytes_down=0, bytes_up=0) if hop.client in self.at_server else report

    def evaluate(
        self,
        tensors: Tensors,
        beside: Tensors,
        rows: NDArray[np.int64],
        owner: int | None = None,
        round_: int = 0,
        client_states: ClientStates | None = None,
        data: FederatedData | None = None,
    ) -> SampleScores:
        """Per-sample scores of a model on some rows; `beside` is what the local rule needs to evaluate it.

        With an `owner`, that client makes the model of round `round_` its own first, by its `client_states`. `data` has the
        rows, where it is not what the clients train on.
        """
        trainer = self.trainer
        trainer.load(tensors)
        trainer.rule.before_evaluate(trainer.model, beside)
        if owner is not None:
            trainer.personalise(round_, owner, client_states)
        samples = trainer.data if data is None else data
        return evaluate_rows(trainer.model, trainer.task, samples, rows, trainer.device, trainer.fused)


def peak_memory_bytes() -> int:
    """The largest resident memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
