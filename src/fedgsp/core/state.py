"""`ServerState` is all that a run is: a checkpoint is this on disk, so resuming is free and exact."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from fedgsp.core.tensors import Tensors, digest

GLOBAL = "global"
"""The name of the one shared model of the methods that have one."""


@dataclass(frozen=True)
class ServerState:
    """What the server knows after a round.

    `models` are the live models by name (chains name the one they start from); `slots` are tensors that never leave the
    server (momentum, second moments); `shared` are tensors sent along with the model (control variates, tables); `extra`
    is plain data (a cluster tree, counters) that survives JSON.
    """

    round: int
    models: dict[str, Tensors]
    slots: dict[str, Tensors] = field(default_factory=dict)
    shared: Tensors = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> Tensors:
        """The global model, for the methods that have one."""
        return self.models[GLOBAL]

    def digest(self) -> str:
        """A SHA-256 over the bits of every tensor of the state."""
        sha = hashlib.sha256()
        for kind, group in (("models", self.models), ("slots", self.slots), ("shared", {"": self.shared})):
            for name in sorted(group):
                sha.update(f"{kind}/{name}={digest(group[name])}\n".encode())
        return sha.hexdigest()
