"""Hand-made federations and walks for the tests of local and server rules: small enough to be worked out on paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedgsp.client import SGD
from fedgsp.client.client_state import ClientStates
from fedgsp.core.chain import Chain, ChainResult, HopReport, Plan
from fedgsp.core.seeds import Seeds
from fedgsp.core.state import ServerState
from fedgsp.core.tensors import Tensors, clone
from fedgsp.data import FederatedData
from fedgsp.data.arrays import from_arrays
from fedgsp.engine.base import WorkerSetup
from fedgsp.engine.chain_runner import ChainRunner
from fedgsp.method import Method
from fedgsp.models import classification, regression
from fedgsp.models.catalog import ModelSpec
from fedgsp.plan import Grouped, Random, Singletons
from fedgsp.server import Mean, ServerRule

torch.set_num_threads(1)  # models this small only lose by threads, and a busy machine makes them wait


def pairs(*clients: Sequence[tuple[float, float]]) -> FederatedData:
    """A regression federation: each client is a list of (x, y), all of it training data."""
    flat = [(x, y, k) for k, members in enumerate(clients) for x, y in members]
    x, y, owner = (np.array(column) for column in zip(*flat, strict=True))
    return from_arrays(
        x.astype(np.float32)[:, None], y.astype(np.float32), owner.astype(np.int64), classes=0, test_fraction=0.0
    )


def weight(value: float) -> nn.Module:
    """y = w x with w = `value`: the model every step of which can be done by hand."""
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(value)
    return model


def walk(
    rule: SGD,
    data: FederatedData,
    make: Callable[[], nn.Module],
    chain: Chain,
    start: Tensors | None = None,
    shared: Tensors | None = None,
    client_states: ClientStates | None = None,
) -> tuple[Tensors, tuple[HopReport, ...]]:
    """One chain walked in this process: (what its last client handed on, the reports).

    `shared` is what the server sends along; `client_states` has afterwards what the clients keep and send.
    """
    task = classification() if data.classes else regression()
    job = WorkerSetup(ModelSpec("test", make), rule, task, data, Seeds(0))
    begin = clone(dict(job.fresh_model().state_dict())) if start is None else start
    tensors, hops = ChainRunner.of(job).run(1, chain, begin, shared or {}, frozenset(), client_states=client_states)
    return clone(tensors), hops


def aggregate(
    rule: ServerRule,
    state: ServerState,
    models: Sequence[Tensors],
    samples: Sequence[int],
    sent: Sequence[Tensors] = (),
    **metrics: Sequence[float],
) -> ServerState:
    """A round of a server rule on given models of single clients (and what they sent), fed in reverse order."""
    chains = tuple(Chain((k,)) for k in range(len(models)))
    update = rule.start(state, Plan(state.round + 1, chains, len(chains)), samples)
    for k in reversed(range(len(models))):
        told = {name: values[k] for name, values in metrics.items()}
        hop = HopReport(k, 0, 0, samples[k], 1, 0, 0, 0.0, {"loss": 0.0, **told})
        update.add(ChainResult(k, chains[k], models[k], (hop,), sent[k] if sent else {}))
    return update.finish()


def vector(*values: float, dtype: torch.dtype = torch.float32) -> Tensors:
    """A model of one tensor called w."""
    return {"w": torch.tensor(values, dtype=dtype)}


def images(clients: int = 12, each: int = 20, classes: int = 4, seed: int = 0) -> FederatedData:
    """8 x 8 pictures whose bright row is their class, unevenly spread over the clients; learnt in a few rounds."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(clients), each)
    labels: NDArray[np.int64] = (rng.integers(0, 2, len(owner)) + owner) % classes
    pixels: NDArray[Any] = rng.integers(0, 120, (len(owner), 8, 8)).astype(np.uint8)
    pixels[np.arange(len(owner)), labels * 2] = 255
    return from_arrays(pixels, labels, owner, classes=classes, test_fraction=0.2)


def bits(tensors: Tensors) -> bytes:
    """A model's bits."""
    return b"".join(name.encode() + tensors[name].numpy().tobytes() for name in sorted(tensors))


def fedavg(server: Any = None, local: SGD | None = None) -> Method:
    """FedAvg over half of the clients, with one of its parts replaced."""
    return Method(Grouped(Singletons(), Random(), kappa=0.5), local or SGD(lr=0.05), server or Mean())
