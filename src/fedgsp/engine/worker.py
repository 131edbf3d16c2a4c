"""A worker process: `main(connection, lifeline, setup, board, ...)` on inherited descriptors, in its own interpreter.

It is started as a program of its own, so that scripts need no main guard and notebooks work; what it needs from the caller
(rule, model, task) arrives by cloudpickle. It ends when its parent does: a thread waits for the end of the lifeline pipe, which
the kernel closes even after `kill -9`.
"""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import numpy as np
import torch
from numpy.typing import NDArray

from fedgsp.core.blame import described, trace_of
from fedgsp.core.chain import Chain, HopReport
from fedgsp.core.errors import FedgspError
from fedgsp.engine.share import Layout, Pulse, Region, lay_out, open_data, read_bytes
from fedgsp.engine.walk import Walker, peak_memory_bytes
from fedgsp.evaluate.forward import SampleScores


@dataclass(frozen=True)
class Walk:
    """A chain to walk from the model laid out on the board, and where in the outbox its result goes.

    `kept` are the committed states of the chain's clients.
    """

    index: int
    chain: Chain
    start: Layout
    absent: frozenset[int]
    outbox_at: int
    kept: dict[int, str]


@dataclass(frozen=True)
class WalkTask:
    """Chains to walk one after the other; several at once if they are short, since every message costs as much as a client."""

    walks: tuple[Walk, ...]
    round: int
    shared: Layout
    outbox_size: int

    def label(self) -> str:
        """For a profile."""
        first, more = self.walks[0].index, len(self.walks) - 1
        return f"round {self.round}, chain {first}" + (f" and {more} more" if more else "")


@dataclass(frozen=True)
class ScoreTask:
    """Score a model laid out on the board on some rows, made its own by the client `owner` first, if there is one."""

    index: int
    model: Layout
    beside: Layout
    rows: NDArray[np.int64]
    owner: int | None = None
    round: int = 0
    kept: dict[int, str] = field(default_factory=dict)

    def label(self) -> str:
        """For a profile."""
        return f"round {self.round}, {len(self.rows)} samples"


NO_START = -1
"""The task number of a worker that could not be set up; scores have smaller ones, chains larger ones."""


@dataclass(frozen=True)
class Ready:
    """The worker is set up."""


@dataclass(frozen=True)
class Hopped:
    """A client has trained."""

    index: int
    report: HopReport


@dataclass(frozen=True)
class ChainDone:
    """A chain is walked; its tensors, and the sum of what was sent beside them, lie in the outbox."""

    index: int
    layout: Layout
    sent: Layout
    marks: dict[int, str]
    hops: tuple[HopReport, ...]


@dataclass(frozen=True)
class Walked:
    """All chains of a task are walked."""

    chains: tuple[ChainDone, ...]
    peak_memory: int


@dataclass(frozen=True)
class Scored:
    """Scores of one task."""

    index: int
    scores: SampleScores
    peak_memory: int


@dataclass(frozen=True)
class Broke:
    """An exception came out of a task, or of the start (`index` NO_START): what it was and where, and its traceback.

    `expected` is it where it is one of ours, with a sentence for the user.
    """

    index: int
    client: int | None
    error: str
    expected: FedgspError | None
    trace: str


def main(
    connection_fd: int, lifeline_fd: int, setup_fd: int, board_fd: int, show_fd: int, outbox_fd: int, pulse_fd: int
) -> None:
    """Serve tasks until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    threading.Thread(target=_die_with_parent, args=(lifeline_fd,), daemon=True).start()
    connection: Connection[Any, Any] = Connection(connection_fd)
    torch.set_num_threads(1)
    try:
        job, recipe = cloudpickle.loads(read_bytes(setup_fd))
        walker = Walker.of(replace(job, data=open_data(recipe)))
    except Exception as error:
        connection.send(broke(NO_START, None, error))
        return
    connection.send(Ready())
    board, show, outbox, pulse = Region(board_fd), Region(show_fd), Region(outbox_fd), Pulse(pulse_fd)
    while True:
        task = connection.recv()
        if isinstance(task, ScoreTask):
            pulse.beat(task.index, task.owner)
            _score(task, walker, show, connection)
        else:
            _walk(task, walker, board, outbox, connection, pulse)


def _score(task: ScoreTask, walker: Walker, show: Region, connection: Connection[Any, Any]) -> None:
    try:
        model, beside = show.tensors(task.model), show.tensors(task.beside)
        scores = walker.score(model, beside, task.rows, task.owner, task.round, walker.bag(task.kept))
        connection.send(Scored(task.index, scores, peak_memory_bytes()))
    except Exception as error:
        connection.send(broke(task.index, task.owner, error))


def _walk(
    task: WalkTask, walker: Walker, board: Region, outbox: Region, connection: Connection[Any, Any], pulse: Pulse
) -> None:
    alone, at, client = len(task.walks) == 1, task.walks[0].index, None
    shared = board.tensors(task.shared)
    done = []

    def on_train(number: int) -> None:
        nonlocal client
        client = number
        pulse.beat(at, number)

    def on_hop(report: HopReport) -> None:
        if alone:  # else the reports come with the results
            connection.send(Hopped(at, report))

    try:
        for walk in task.walks:
            at, client = walk.index, None
            bag = walker.bag(walk.kept)
            start = board.tensors(walk.start)
            tensors, hops = walker.walk(task.round, walk.chain, start, shared, walk.absent, on_hop, on_train, bag)
            layout, end = lay_out(tensors, walk.outbox_at)
            sent, end = lay_out(bag.sent, end)
            if end > walk.outbox_at + task.outbox_size:
                raise ValueError("the chain handed on more than the model it started from and what its rule says it sends")
            outbox.write(tensors, layout)
            outbox.write(bag.sent, sent)
            done.append(ChainDone(walk.index, layout, sent, bag.marks, hops))
        connection.send(Walked(tuple(done), peak_memory_bytes()))
    except Exception as error:
        connection.send(broke(at, client, error))


def broke(index: int, client: int | None, error: Exception) -> Broke:
    """What is said of an exception that came out of a task."""
    ours = isinstance(error, FedgspError) and type(error).__module__.startswith("fedgsp.")  # others' may not travel
    return Broke(index, client, described(error), error if isinstance(error, FedgspError) and ours else None, trace_of(error))


def _die_with_parent(lifeline_fd: int) -> None:
    os.read(lifeline_fd, 1)  # returns only when the parent's end is closed
    os._exit(1)
