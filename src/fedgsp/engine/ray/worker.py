"""A worker on a Ray cluster: an actor with one model, which walks legs of chains, adds results up and scores samples.

Nothing here imports Ray: the driver makes an actor of the class, and hands over a way to look references up.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fedgsp.client.keep import Bag, ClientStore
from fedgsp.core.blame import described
from fedgsp.core.chain import ChainResult
from fedgsp.core.state import GLOBAL
from fedgsp.core.sums import ExactSum, PartialSum
from fedgsp.core.version import __version__
from fedgsp.data.federated import FederatedData
from fedgsp.engine.job import Job
from fedgsp.engine.ray.holdings import Files, Piece, local_rows, only
from fedgsp.engine.ray.parcel import pack, unpack
from fedgsp.engine.ray.tasks import Baton, Beat, Board, Hello, Kept, ScoreTask, Walked, WalkTask
from fedgsp.engine.walk import Walker, peak_memory_bytes
from fedgsp.engine.worker import Broke, Hopped, Scored, broke

BEAT = 1.0
"""So often (seconds) a worker says that it is well while it walks many short chains."""


class RayWorker:
    """`job` has no samples in it yet: they are opened here, or sent by `take` or `hold`.

    `sign` is a file that the driver has just put into the folder of client states: who can read its text sees that folder.
    """

    def __init__(
        self,
        job: Job,
        fetch: Callable[[Any], Any],
        node: str,
        files: Files | None,
        sign: tuple[Path, str] | None,
    ) -> None:
        torch.set_num_threads(1)
        self._job, self._fetch, self._node = job, fetch, node
        self._store: ClientStore | None = job.store if sign is not None and _reads(*sign) else None
        self._walker: Walker | None = None
        self._whole = False
        self._pieces: dict[int, Piece] = {}
        self._board: tuple[Any, Board] | None = None
        self._sum: tuple[int, ExactSum] | None = None
        arrays = None if files is None else files.open()
        if arrays is not None:
            self.take(*arrays)

    def hello(self) -> Hello:
        """Say that it is there."""
        return Hello(self._node, platform.node(), versions(), self._whole, self._store is not None, os.getpid())

    def take(self, features: Any, labels: Any) -> None:
        """Have all samples at hand."""
        self._whole = True
        self._use(replace(self._job.data, features=features, labels=labels))

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
            self._use(only(self._job.data, self._pieces.values()) if self._pieces else None)

    def walk(self, task: WalkTask, batons: list[Baton] | None = None) -> Iterator[Any]:
        """`Hopped` for every hop of a lone leg (else `Beat` now and then), `Walked`, then what is handed on; or `Broke`."""
        alone, at, client = len(task.legs) == 1, task.legs[0].index, None
        baton = batons[0] if batons is not None else None
        walked, handed, said = [], [], time.monotonic()

        def on_train(number: int) -> None:
            nonlocal client
            client = number

        try:
            board = self._show(task.board)
            for leg in task.legs:
                at, client = leg.index, None
                bag, start = self._bag(leg.kept, baton), unpack(board.models[leg.chain.start])
                given = {number: bag.states[number] for number in leg.kept.states}
                carried = None if baton is None or baton.model is None else unpack(baton.model)
                walk = self._trained().hops(
                    task.round, leg.chain, start, unpack(board.shared), leg.absent, on_train, bag, carried
                )  # fmt: skip
                while True:
                    try:
                        report = next(walk)
                    except StopIteration as end:
                        tensors, hops = end.value
                        break
                    if alone:
                        yield Hopped(leg.index, report)
                    elif time.monotonic() - said >= BEAT:
                        said = time.monotonic()
                        yield Beat()
                adds = task.weighing is not None and leg.last and bool(leg.before or hops)
                if adds:
                    self._add(task, board, ChainResult(leg.index, leg.chain, tensors, (*leg.before, *hops)))
                states = {number: pack(state) for number, state in bag.states.items() if state is not given.get(number)}
                handed.append(Baton(None if adds else pack(tensors), pack(bag.sent), bag.marks, states))
                walked.append(hops)
            yield Walked(tuple(walked), peak_memory_bytes())
            yield handed
        except Exception as error:
            yield broke(at, client, error)

    def score(self, task: ScoreTask) -> Scored | Broke:
        """Scores of some samples."""
        try:
            model, beside = self._show(task.board).evaluated(task.name)
            cut: FederatedData | None = None if task.cut is None else self._fetch(task.cut)
            rows = task.rows
            if cut is None and not self._whole:
                rows = local_rows(self._pieces.values(), rows)
            bag = self._bag(task.kept, None)
            found = self._trained().score(model, beside, rows, task.owner, task.round, bag, cut)
            return Scored(task.number, found, peak_memory_bytes())
        except Exception as error:
            return broke(task.number, task.owner, error)

    def gather(self, round_: int) -> PartialSum | None:
        """What this round's chains add up to here; from now on it counts as handed over."""
        found, self._sum = self._sum, None
        return found[1].partial() if found is not None and found[0] == round_ else None

    def _add(self, task: WalkTask, board: Board, result: ChainResult) -> None:
        assert task.weighing is not None
        if self._sum is None or self._sum[0] != task.round:  # what is there of a round that failed counts no more
            self._sum = (task.round, task.weighing.sum_like(unpack(board.models[GLOBAL])))
        task.weighing.add(result, self._sum[1])

    def _use(self, data: FederatedData | None) -> None:
        try:
            self._walker = None if data is None else Walker.of(replace(self._job, data=data, store=self._store))
        except Exception as error:
            error.add_note(described(error))  # the last line of what the driver is told
            raise

    def _trained(self) -> Walker:
        if self._walker is None:
            raise RuntimeError("the worker has no samples yet")
        return self._walker

    def _show(self, reference: Any) -> Board:
        if self._board is None or self._board[0] != reference:
            self._board = (reference, self._fetch(reference))
        return self._board[1]

    def _bag(self, kept: Kept, baton: Baton | None) -> Bag:
        bag = Bag(self._store, kept.marks)
        bag.states = {client: unpack(state) for client, state in kept.states.items()}
        if baton is not None:
            bag.sent, bag.marks = unpack(baton.sent), dict(baton.marks)
            bag.states.update({client: unpack(state) for client, state in baton.states.items()})
        return bag


def versions() -> dict[str, str]:
    """What must be the same on all nodes, since it may change bits."""
    return {"fedgsp": __version__, "torch": torch.__version__}


def _reads(path: Path, text: str) -> bool:
    try:
        return path.read_text() == text
    except OSError:
        return False
