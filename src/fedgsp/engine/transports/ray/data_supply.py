"""How workers on a cluster get samples: see `data_placement`. This is the driver's side of it."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from fedgsp.core.errors import InputError, RunFailed
from fedgsp.engine.transports.ray.data_placement import cut, files_of, piece_of, shards, spread

if TYPE_CHECKING:
    from fedgsp.data.federated import FederatedData, Rows
    from fedgsp.engine.transports.ray.cluster import Cluster
    from fedgsp.engine.transports.ray.settings import RaySettings
    from fedgsp.engine.transports.ray.transport import RayHandle

STORE_SHARE = 0.25
"""Samples that take more of a node's object store are divided among the workers."""
SHARDS_EACH = 4
MOST_CUTS = 1024


class DataSupply:
    """The federation, as it is dealt out. `shard_of` is empty as long as nobody holds less than everything."""

    def __init__(self, data: FederatedData, cluster: Cluster, settings: RaySettings) -> None:
        self._data, self._cluster, self._settings = data, cluster, settings
        self.files = files_of(data) if settings.data in ("auto", "files") else None
        if settings.data == "files" and self.files is None:
            raise InputError("engine.data = 'files': the samples are not in files that could be read in place; use 'auto'.")
        self.shard_of: dict[int, int] = {}
        self._shards: list[tuple[int, ...]] = []
        self._arrays: tuple[Any, Any] | None = None
        self._cuts: dict[bytes, Any] = {}

    def welcome(self, worker: RayHandle) -> None:
        """All samples for a worker that is new, unless they are divided: then it gets its share by `settle` or `adopt`."""
        assert worker.facts is not None
        if worker.facts.sees_data:
            worker.shards = None
            return
        if self._settings.data == "files":
            raise RunFailed(f"the node {worker.facts.host} does not have the same data files; engine.data = 'auto' sends them.")
        if not self._shards and self._whole():
            if self._arrays is None:
                ray = self._cluster.ray
                self._arrays = (ray.put(self._data.features[:]), ray.put(self._data.labels[:]))
            if self._done(worker, worker.actor.take.remote(*self._arrays)):
                worker.shards = None
            return
        if not self._shards:
            self._shards = shards(self._data, SHARDS_EACH * max(1, self._settings.workers or self._cluster.capacity()))
            self.shard_of = {client: number for number, clients in enumerate(self._shards) for client in clients}

    def settle(self, ready: list[RayHandle]) -> None:
        """Between rounds: divide the shards evenly among those who have not everything."""
        takers = {worker.number: worker for worker in ready if worker.shards is not None}
        held = {number: worker.shards or frozenset() for number, worker in takers.items()}
        for number, wanted in spread(held, len(self._shards)).items():
            self._move(takers[number], wanted)

    def adopt(self, ready: list[RayHandle]) -> None:
        """Give shards that nobody has at hand to those who have nothing else to do."""
        nobody = self.orphans(ready)
        idle = [worker for worker in ready if worker.shards is not None and worker.task is None]
        for place, worker in enumerate(idle):
            self._move(worker, (worker.shards or frozenset()) | frozenset(nobody[place :: len(idle)]))

    def orphans(self, ready: list[RayHandle]) -> list[int]:
        """Shards that nobody has at hand."""
        if not self._shards or any(worker.shards is None for worker in ready):
            return []
        had: frozenset[int] = frozenset().union(*(worker.shards or frozenset() for worker in ready))
        return [number for number in range(len(self._shards)) if number not in had]

    def cut(self, rows: Rows) -> Any:
        """A reference to these samples, for who does not have them at hand; the same rows are evaluated in every round."""
        key = hashlib.sha256(rows.tobytes()).digest()
        if key not in self._cuts:
            if len(self._cuts) >= MOST_CUTS:
                self._cuts.pop(next(iter(self._cuts)))
            self._cuts[key] = self._cluster.ray.put(cut(self._data, rows))
        return self._cuts[key]

    def _move(self, worker: RayHandle, wanted: frozenset[int]) -> None:
        ray, had = self._cluster.ray, worker.shards or frozenset()
        if wanted == had:
            return
        for shard in sorted(wanted - had):  # one at a time: all of them might not fit in the object store
            reference = ray.put(piece_of(self._data, self._shards[shard]))
            if not self._done(worker, worker.actor.hold.remote(frozenset(), {shard: reference}, False)):
                return
        if self._done(worker, worker.actor.hold.remote(had - wanted, {}, True)):
            worker.shards = wanted

    def _done(self, worker: RayHandle, reference: Any) -> bool:
        """Whether a worker did as it was told; else it is dead, and the next wait will find out."""
        try:
            self._cluster.ray.get(reference)
        except self._cluster.ray.exceptions.RayActorError:
            worker.waiting = worker.actor.facts.remote()
            return False
        except self._cluster.ray.exceptions.RayTaskError as error:
            host = worker.facts.host if worker.facts is not None else "?"
            raise RunFailed(f"a worker on node {host} could not start: {last_line(error)}.").with_trace() from error
        return True

    def _whole(self) -> bool:
        if self._settings.data != "auto":
            return self._settings.data == "store"
        return self._data.features.nbytes + self._data.labels.nbytes <= STORE_SHARE * self._cluster.smallest_store()


def last_line(error: BaseException) -> str:
    """What a failure on a worker comes down to: Ray puts its whole traceback into the text."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1].strip().rstrip(".")
