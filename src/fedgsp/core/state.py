"""`ServerState` is all that a run is: a checkpoint is this on disk, so resuming is free and exact."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch

from fedgsp.core.errors import InputError
from fedgsp.core.tensors import Tensors, digest

GLOBAL = "global"
"""The name of the one shared model of the methods that have one."""


MEAN_SAMPLES = "mean samples"
"""Among what is sent along, where clients are to count by their samples: how many a client has in the mean."""

Yields = Literal["one", "several", "none", "personalised"]
"""What a method ends with: one global model, several, none (clients keep their own), or one that each client adapts."""


def beside(model: str) -> str:
    """The slot whose tensors the local rule is given when `model` is evaluated (FedFusion's previous extractor, say)."""
    return f"beside {model}"


@dataclass(frozen=True)
class Setting:
    """What a server rule is told once, before round 1.

    `clients` are those that may train (K), `classes` is 0 for regression. `trained` names the tensors that SGD trains; None
    means all of them. The others (BatchNorm's running means, counters) are only ever averaged. `alone` says that every
    chain has one client, `everybody` that besides all clients train in every round. `samples` are those that the clients may
    train on, all together (0: not known). `seed` is the run's.
    """

    clients: int = 0
    classes: int = 0
    trained: frozenset[str] | None = None
    alone: bool = True
    everybody: bool = True
    samples: int = 0
    seed: int = 0

    def trained_of(self, model: Tensors) -> Tensors:
        """The trained tensors of a model: those of a real-valued type that `trained` names."""
        chosen = model.keys() if self.trained is None else self.trained
        return {name: t for name, t in model.items() if name in chosen and t.is_floating_point()}

    def mean_samples(self, weights: Literal["samples", "uniform"], rule: str) -> Tensors:
        """What a rule whose clients count by their samples sends along; nothing where all count alike."""
        if weights == "uniform":
            return {}
        if not (self.samples and self.clients):
            raise InputError(f"the server rule '{rule}': weights = 'samples' needs to know how many samples the clients have.")
        return {MEAN_SAMPLES: torch.tensor([self.samples / self.clients])}


@dataclass(frozen=True, repr=False)
class ServerState:
    """What the server knows after a round.

    `models` are the live models by name (chains name the one they start from); `slots` are tensors that never leave the
    server (momentum, second moments, and `beside(name)`: what a model is evaluated with); `shared` are tensors sent along
    with the model (control variates, tables); `extra` is plain data (a cluster tree, counters) that survives JSON.
    `client_versions` says which version of its own state each client has (`fedgsp.client.client_state`): the files are on the
    clients' side, the versions, which name the content, are part of what a run is. `trained` names the tensors of the models
    that are trained, None: all that are real-valued. It follows from the model, so the run says it anew in every round, and it
    is in no checkpoint; sums of the others have no limits (`fedgsp.core.buffer_sums`).
    """

    round: int
    models: dict[str, Tensors]
    slots: dict[str, Tensors] = field(default_factory=dict)
    shared: Tensors = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    client_versions: dict[int, str] = field(default_factory=dict)
    trained: frozenset[str] | None = None

    def __repr__(self) -> str:
        models = ", ".join(f"{name} ({len(tensors)} tensors)" for name, tensors in list(self.models.items())[:5])
        return f"ServerState after round {self.round}: {len(self.models)} model(s): {models}"

    @property
    def model(self) -> Tensors:
        """The global model, for the methods that have one."""
        return self.models[GLOBAL]

    def evaluated(self, name: str) -> tuple[Tensors, Tensors]:
        """The tensors that a view named `name` is about (a model, or a slot that holds one) and those beside them."""
        tensors = self.models[name] if name in self.models else self.slots[name]
        return tensors, self.slots.get(beside(name), {})

    def digest(self) -> str:
        """A SHA-256 over the bits of every tensor of the state, the clients' own included."""
        sha = hashlib.sha256()
        for kind, group in (("models", self.models), ("slots", self.slots), ("shared", {"": self.shared})):
            for name in sorted(group):
                sha.update(f"{kind}/{name}={digest(group[name])}\n".encode())
        for client in sorted(self.client_versions):
            sha.update(f"kept/{client}={self.client_versions[client]}\n".encode())
        return sha.hexdigest()

    def with_client_versions(self, versions: dict[int, str]) -> ServerState:
        """The same with other versions of the clients' states."""
        return replace(self, client_versions=versions) if versions != self.client_versions else self
