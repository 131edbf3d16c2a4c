"""A worker process: `main(connection, lifeline, board, outbox)` on inherited file descriptors, in an interpreter of its own.

It is started as a program of its own, so that scripts need no main guard and notebooks work; what it needs from the caller
(rule, model, task) arrives by cloudpickle. It ends when its parent does: a thread waits for the end of the lifeline pipe, which
the kernel closes even after `kill -9`.
"""

from __future__ import annotations

import os
import signal
import threading
import traceback
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import numpy as np
import torch
from numpy.typing import NDArray

from fedgsp.core.chain import Chain, HopReport
from fedgsp.core.errors import FedgspError
from fedgsp.engine.share import Layout, Region, lay_out, open_data
from fedgsp.engine.walk import Walker, peak_memory_bytes
from fedgsp.evaluate.forward import SampleScores


@dataclass(frozen=True)
class WalkTask:
    """Walk a chain from the model laid out on the board, and leave the result in the outbox at `outbox_at`.

    `kept` are the committed states of the chain's clients.
    """

    index: int
    round: int
    chain: Chain
    start: Layout
    shared: Layout
    absent: frozenset[int]
    outbox_at: int
    outbox_size: int
    kept: dict[int, str]


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


@dataclass(frozen=True)
class Ready:
    """The worker is set up."""


@dataclass(frozen=True)
class Training:
    """A client is being trained now: should the worker die, this is where."""

    index: int
    client: int


@dataclass(frozen=True)
class Hopped:
    """A client has trained."""

    index: int
    report: HopReport


@dataclass(frozen=True)
class Walked:
    """A chain is walked; its tensors, and the sum of what was sent beside them, lie in the outbox."""

    index: int
    layout: Layout
    sent: Layout
    marks: dict[int, str]
    hops: tuple[HopReport, ...]
    peak_memory: int


@dataclass(frozen=True)
class Scored:
    """Scores of one task."""

    index: int
    scores: SampleScores
    peak_memory: int


@dataclass(frozen=True)
class Broke:
    """An exception came out of a task; `expected` is it where it is one of ours, with a sentence for the user."""

    index: int
    client: int | None
    error: str
    expected: FedgspError | None
    trace: str


def main(connection_fd: int, lifeline_fd: int, board_fd: int, outbox_fd: int) -> None:
    """Serve tasks until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    threading.Thread(target=_die_with_parent, args=(lifeline_fd,), daemon=True).start()
    connection: Connection[Any, Any] = Connection(connection_fd)
    torch.set_num_threads(1)
    try:
        job, recipe = cloudpickle.loads(connection.recv_bytes())
        walker = Walker.of(replace(job, data=open_data(recipe)))
    except Exception as error:
        connection.send(Broke(-1, None, f"{type(error).__name__}: {error}", None, traceback.format_exc()))
        return
    connection.send(Ready())
    board, outbox = Region(board_fd), Region(outbox_fd)
    while True:
        _serve(connection.recv(), walker, board, outbox, connection)


def _serve(task: WalkTask | ScoreTask, walker: Walker, board: Region, outbox: Region, connection: Connection[Any, Any]) -> None:
    client: int | None = None

    def on_train(number: int) -> None:
        nonlocal client
        client = number
        connection.send(Training(task.index, number))

    try:
        if isinstance(task, ScoreTask):
            model, beside = board.tensors(task.model), board.tensors(task.beside)
            scores = walker.score(model, beside, task.rows, task.owner, task.round, task.kept)
            connection.send(Scored(task.index, scores, peak_memory_bytes()))
            return
        bag = walker.bag(task.kept)
        tensors, hops = walker.walk(
            task.round, task.chain, board.tensors(task.start), board.tensors(task.shared), task.absent,
            lambda report: connection.send(Hopped(task.index, report)), on_train, bag,
        )  # fmt: skip
        layout, end = lay_out(tensors, task.outbox_at)
        sent, end = lay_out(bag.sent, end)
        if end > task.outbox_at + task.outbox_size:
            raise ValueError("the chain handed on more than the model it started from and what its rule says it sends")
        outbox.write(tensors, layout)
        outbox.write(bag.sent, sent)
        connection.send(Walked(task.index, layout, sent, bag.marks, hops, peak_memory_bytes()))
    except Exception as error:
        expected = error if isinstance(error, FedgspError) else None
        connection.send(Broke(task.index, client, f"{type(error).__name__}: {error}", expected, traceback.format_exc()))


def _die_with_parent(lifeline_fd: int) -> None:
    os.read(lifeline_fd, 1)  # returns only when the parent's end is closed
    os._exit(1)
