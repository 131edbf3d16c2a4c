"""A worker on a Ray cluster: an actor with one model, which gets its samples and its tasks from the driver.

Nothing here imports Ray: the driver makes an actor of the class, and hands over a way to look references up.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fedgsp.core import __version__
from fedgsp.core.errors import described
from fedgsp.engine.chain_runner import ChainRunner
from fedgsp.engine.messages import EvaluateDone, EvaluateTask, SumDone, TaskFailed, TrainDone, TrainTask
from fedgsp.engine.transports.ray.data_placement import Files, Piece, local_rows, only
from fedgsp.engine.transports.ray.messages import NodeFacts, PackedOutput
from fedgsp.engine.transports.ray.tensor_buffer import unpack
from fedgsp.engine.worker import Worker

if TYPE_CHECKING:
    from fedgsp.client.client_state import ClientStore
    from fedgsp.core.state import ServerState
    from fedgsp.data.federated import FederatedData
    from fedgsp.engine.base import WorkerSetup


class RayWorker:
    """`setup` has no samples in it yet: they are opened here, or sent by `take` or `hold`.

    `sign` is a file that the driver has just put into the folder of client states: who can read its text sees that folder.
    """

    def __init__(
        self,
        setup: WorkerSetup,
        fetch: Callable[[Any], Any],
        node: str,
        files: Files | None,
        sign: tuple[Path, str] | None,
    ) -> None:
        torch.set_num_threads(1)
        self._setup, self._fetch, self._node = setup, fetch, node
        self._store: ClientStore | None = setup.store if sign is not None and _reads(*sign) else None
        self._worker = Worker(None)
        self._whole = False
        self._pieces: dict[int, Piece] = {}
        self._models: tuple[Any, ServerState] | None = None
        arrays = None if files is None else files.open()
        if arrays is not None:
            self.take(*arrays)

    def facts(self) -> NodeFacts:
        """Say that it is there."""
        return NodeFacts(self._node, platform.node(), versions(), self._whole, self._store is not None, os.getpid())

    def take(self, features: Any, labels: Any) -> None:
        """Have all samples at hand."""
        self._whole = True
        self._use(replace(self._setup.data, features=features, labels=labels))

    def hold(self, dropped: frozenset[int], added: dict[int, Any], complete: bool = True) -> None:
        """Have the samples of some shards at hand (references, by their number), and no more those of others.

        Unless that is `complete`, more will follow at once.
        """
        for number in dropped:
            self._pieces.pop(number, None)
        for number, reference in added.items():
            piece: Piece = self._fetch(reference)
            features, labels = piece.features.copy(), piece.labels.copy()  # of its own: the store's may go
            self._pieces[number] = replace(piece, features=features, labels=labels)
        if complete:
            self._use(only(self._setup.data, self._pieces.values()) if self._pieces else None)

    def train(self, task: TrainTask, carried: list[PackedOutput] | None = None) -> Iterator[Any]:
        """See `Worker.train`; what is handed on comes after `TrainDone`, as an object of its own."""
        try:
            models = self._read(task.models)
            segments = tuple(replace(segment, states=_unpacked(segment.states)) for segment in task.segments)
            before = None if carried is None else carried[0].read()
        except Exception as error:
            yield TaskFailed.of(task.segments[0].index, None, error)
            return
        for answer in self._worker.train(replace(task, segments=segments), models, PackedOutput.of, before):
            if isinstance(answer, TrainDone):
                yield replace(answer, outputs=None)
                yield answer.outputs
            else:
                yield answer

    def evaluate(self, task: EvaluateTask) -> EvaluateDone | TaskFailed:
        """See `Worker.evaluate`."""
        try:
            models = self._read(task.models)
            samples: FederatedData | None = None if task.samples is None else self._fetch(task.samples)
            rows = local_rows(self._pieces.values(), task.rows) if samples is None and not self._whole else task.rows
        except Exception as error:
            return TaskFailed.of(task.number, task.owner, error)
        return self._worker.evaluate(replace(task, states=_unpacked(task.states)), models, rows, samples)

    def sums(self, round_: int) -> SumDone:
        """See `Worker.sums`."""
        return self._worker.sums(round_)

    def _use(self, data: FederatedData | None) -> None:
        try:
            setup = None if data is None else replace(self._setup, data=data, store=self._store)
            self._worker.runner = None if setup is None else ChainRunner.of(setup)
        except Exception as error:
            error.add_note(described(error))  # the last line of what the driver is told
            raise

    def _read(self, reference: Any) -> ServerState:
        if self._models is None or self._models[0] != reference:
            self._models = (reference, self._fetch(reference).read())
        return self._models[1]


def versions() -> dict[str, str]:
    """What must be the same on all nodes, since it may change bits."""
    return {"fedgsp": __version__, "torch": torch.__version__}


def _unpacked(states: dict[int, Any]) -> dict[int, Any]:
    return {client: unpack(state) for client, state in states.items()}


def _reads(path: Path, text: str) -> bool:
    try:
        return path.read_text() == text
    except OSError:
        return False
