"""All that a run is made of, in one object."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.machine import cores
from fedgsp.engine.time_limits import TimeLimits
from fedgsp.engine.transports.ray.settings import RaySettings, parse_resources
from fedgsp.run.checks import most_chains

if TYPE_CHECKING:
    from fedgsp.client.client_state import ClientStore
    from fedgsp.core.seeds import Seeds
    from fedgsp.core.state import ServerState
    from fedgsp.core.tensors import Tensors
    from fedgsp.data import FederatedData
    from fedgsp.engine.base import Engine, WorkerSetup
    from fedgsp.run.config import RunConfig
    from fedgsp.run.participants import Availability
    from fedgsp.server import Bench, ServerRule


class ServerEvaluation(Protocol):
    """Evaluates models on samples that the server has itself."""

    def figures(self, state: ServerState) -> dict[str, Any] | None:
        """An entry for the journal; None where there is nothing to say."""
        ...


@dataclass(frozen=True, repr=False)
class Run:
    """All that a run is made of, resolved and checked: `RunBuilder.build` makes one, `lifecycle.start` trains it.

    Attributes:
        config: The configuration, complete: with the data it is enough to repeat the run.
        data: The federation as it came. Models are evaluated on it.
        participants: The clients that train.
        evaluated: The clients whose test samples count: the participants, and clients that have only such samples.
        held_out: The clients that never train.
        worker_setup: What every worker is given. Its `data` is what clients train on: `data`, or what a preparation made of it.
        initial_model: The weights before round 1.
        initial_state: The server's state before round 1.
        notes: What the user should be told, such as a capped schedule.
        prepared_bytes: What the preparation sent.
        bench: What the server itself can train on, if a preparation gave it data.
        server_evaluation: Evaluates every model on samples of the server's own, in a deployment that has such.
        availability: Who can take part now; None: all participants, always.
        remote_engine: Starts the engine of a run whose clients are elsewhere and keep their states themselves.
    """

    config: RunConfig
    data: FederatedData
    participants: NDArray[np.int64]
    evaluated: NDArray[np.int64]
    held_out: NDArray[np.int64]
    worker_setup: WorkerSetup
    initial_model: Tensors
    initial_state: ServerState
    notes: tuple[str, ...]
    prepared_bytes: int = 0
    bench: Bench | None = None
    server_evaluation: ServerEvaluation | None = None
    availability: Availability | None = None
    remote_engine: Callable[[Run], Engine] | None = None

    def __repr__(self) -> str:
        config = self.config
        return (
            f"Run of {config.method.name}: {config.run.rounds} rounds, {len(self.participants)} clients, model "
            f"{config.model.name}, seed {config.run.seed}"
        )

    @property
    def server(self) -> ServerRule:
        """The method's server rule, with the server's own data at hand where there is such."""
        rule = self.config.method.server
        return rule if self.bench is None else rule.bind(self.bench)

    @property
    def seeds(self) -> Seeds:
        """The run's randomness."""
        return self.worker_setup.seeds

    @property
    def remote(self) -> bool:
        """Whether the clients are elsewhere."""
        return self.remote_engine is not None

    def workers(self) -> int:
        """How many worker processes: as told, or one a core, but not more than there are chains."""
        wanted = self.config.run.workers
        return wanted if isinstance(wanted, int) else max(1, min(cores(), self._most_chains()))

    def engine(self, store: ClientStore | None = None) -> Engine:
        """Start the engine.

        Args:
            store: Where clients keep their states, for local rules that have such.
        """
        if self.remote_engine is not None:
            return self.remote_engine(self)
        workers, given = self.workers(), replace(self.worker_setup, store=store)
        limits = TimeLimits(self.config.engine.hop_seconds)
        if self.config.engine.name == "ray":
            from fedgsp.engine.transports.ray.transport import RayEngine

            return RayEngine(given, self._ray(), self._most_chains(), limits)
        from fedgsp.engine import InlineEngine, ProcessEngine

        return InlineEngine(given) if workers == 0 else ProcessEngine(given, workers, limits)

    def reached(self) -> AbstractContextManager[object]:
        """Where the run is to take place: for a cluster, a connection to it, or a sentence why there is none."""
        if self.config.engine.name != "ray":
            return nullcontext()
        from fedgsp.engine.transports.ray.cluster import Cluster

        return closing(Cluster(self._ray()))

    def _most_chains(self) -> int:
        return most_chains(self.config, len(self.participants))

    def _ray(self) -> RaySettings:
        told, wanted = self.config.engine, self.config.run.workers
        workers = wanted if isinstance(wanted, int) else None
        return RaySettings(told.address, parse_resources(told.resources), workers, told.data)
