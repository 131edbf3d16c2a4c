"""A worker process: `main(connection, lifeline, setup, ...)` on inherited descriptors, in its own interpreter.

It is forked by a program of its own that has imported this module (`core/fork_server.py`), so that scripts need no main guard
and notebooks work; what it needs from the caller (rule, model, task) arrives by cloudpickle. It ends when its parent does: a
thread waits for the end of the lifeline pipe, which the kernel closes even after `kill -9`.
"""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import torch

import fedgsp.parts  # noqa: F401 - what a setup may be made of: imported once for all workers
from fedgsp.core.fork_server import serve
from fedgsp.core.state import ServerState
from fedgsp.engine.chain_runner import ChainRunner
from fedgsp.engine.messages import ChainOutput, EvaluateTask, TaskFailed, TrainDone
from fedgsp.engine.transports.shared_memory import Heartbeat, Layout, Region, lay_out, open_data, read_bytes
from fedgsp.engine.worker import Worker

__all__ = ["NO_START", "ModelLayout", "OutputLayout", "WorkerReady", "main", "serve"]

NO_START = -1
"""The number in the failure of a worker that could not be set up."""


@dataclass(frozen=True)
class WorkerReady:
    """The worker is set up."""


@dataclass(frozen=True)
class ModelLayout:
    """Where a state's models lie in one of the two regions of published models."""

    region: int
    models: dict[str, Layout]
    shared: Layout
    slots: dict[str, Layout]

    def read(self, regions: tuple[Region, ...]) -> ServerState:
        """The models, over the region's pages."""
        region = regions[self.region]
        models = {name: region.tensors(layout) for name, layout in self.models.items()}
        slots = {name: region.tensors(layout) for name, layout in self.slots.items()}
        return ServerState(0, models, slots, region.tensors(self.shared))


@dataclass(frozen=True)
class OutputLayout:
    """Where what a chain hands on lies in an outbox."""

    tensors: Layout
    sent: Layout
    client_versions: dict[int, str]


class Outbox:
    """Where results are put down, one after the other from its beginning."""

    def __init__(self, region: Region) -> None:
        self._region, self._end = region, 0

    def clear(self) -> None:
        """Begin again."""
        self._end = 0

    def put(self, output: ChainOutput) -> OutputLayout:
        """Copy what a chain hands on."""
        assert output.tensors is not None
        tensors, end = lay_out(output.tensors, self._end)
        sent, end = lay_out(output.sent, end)
        self._region.reserve(end)
        self._region.write(output.tensors, tensors)
        self._region.write(output.sent, sent)
        self._end = end
        return OutputLayout(tensors, sent, output.client_versions)


def main(
    connection_fd: int, lifeline_fd: int, setup_fd: int, models_fd: int, evaluated_fd: int, heartbeat_fd: int, *outbox_fds: int
) -> None:
    """Serve tasks until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    threading.Thread(target=_die_with_parent, args=(lifeline_fd,), daemon=True).start()
    connection: Connection[Any, Any] = Connection(connection_fd)
    torch.set_num_threads(1)
    try:
        setup, recipe = cloudpickle.loads(read_bytes(setup_fd))
        worker = Worker(ChainRunner.of(replace(setup, data=open_data(recipe))), Heartbeat(heartbeat_fd).beat)
    except Exception as error:
        connection.send(TaskFailed.of(NO_START, None, error))
        return
    connection.send(WorkerReady())
    published = Region(models_fd), Region(evaluated_fd)
    outboxes = [Outbox(Region(descriptor)) for descriptor in outbox_fds]
    turn = 0
    while True:
        task = connection.recv()
        models = task.models.read(published)
        if isinstance(task, EvaluateTask):
            connection.send(worker.evaluate(task, models))
            continue
        turn = (turn + 1) % len(outboxes)  # the results before these may still be being read
        outboxes[turn].clear()
        for answer in worker.train(task, models, outboxes[turn].put):
            connection.send(replace(answer, outputs=(turn, answer.outputs)) if isinstance(answer, TrainDone) else answer)


def _die_with_parent(lifeline_fd: int) -> None:
    os.read(lifeline_fd, 1)  # returns only when the parent's end is closed
    os._exit(1)
