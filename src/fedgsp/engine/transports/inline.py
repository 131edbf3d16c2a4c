"""The engine without processes: one worker in this one, one chain after the other. For tests, debugging and tiny work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from fedgsp.engine.chain_runner import ChainRunner
from fedgsp.engine.messages import Answer, ChainOutput, EvaluateTask, Task, TrainDone, TrainTask, WorkerGone
from fedgsp.engine.scheduler import Scheduler
from fedgsp.engine.task_batching import BatchLimits
from fedgsp.engine.transports.base import Transport, WorkerHandle
from fedgsp.engine.worker import Worker

if TYPE_CHECKING:
    from fedgsp.core.state import ServerState
    from fedgsp.engine.base import WorkerSetup
    from fedgsp.engine.time_limits import Activity


class InlineTransport(Transport):
    """A worker in the calling process, with one math thread (so that its bits are those of any number of processes)."""

    batch_limits = BatchLimits(chains=1)
    most_exceptions = 1

    def __init__(self, setup: WorkerSetup) -> None:
        super().__init__()
        with OneThread():
            self._worker = Worker(ChainRunner.of(setup))
        self._on_cpu = torch.device(setup.device).type == "cpu"
        self.workers = [WorkerHandle(0, ready=True)]

    def send(self, worker: WorkerHandle, task: Task) -> None:
        """It is done when answers are waited for."""

    def receive(self, seconds: float) -> Iterator[tuple[WorkerHandle, Answer]]:
        """Do the task."""
        (worker,) = self.workers
        answers = self._answers(worker.task)
        fused = self._worker.runner is not None and self._worker.runner.trainer.fused is not None
        draws = not (fused and isinstance(worker.task, TrainTask))
        while True:
            with OneThread(draws):
                answer = next(answers, None)
            if answer is None:
                return
            yield worker, answer

    def _answers(self, task: Task | None) -> Iterator[Answer]:
        if isinstance(task, TrainTask):
            yield from self._worker.train(task, task.models, lambda output: output)
        elif isinstance(task, EvaluateTask):
            yield self._worker.evaluate(task, task.models)

    def replace(self, worker: WorkerHandle, cause: str | None = None, blameless: bool = False) -> WorkerGone:
        """This process cannot be replaced, nor does it ever seem dead to itself."""
        raise NotImplementedError

    def publish(self, state: ServerState, slots: frozenset[str] | None = None) -> ServerState:
        """The worker sees it already."""
        return state

    def fetch(self, worker: WorkerHandle, done: TrainDone, round_: int) -> Sequence[ChainOutput]:
        """On the CPU, and valid until the next chain begins."""
        if self._on_cpu:
            found: Sequence[ChainOutput] = done.outputs
            return found
        return [replace(one, tensors={name: t.cpu() for name, t in (one.tensors or {}).items()}) for one in done.outputs]

    def activity(self, worker: WorkerHandle) -> Activity | None:
        """Nobody can look at it while it works."""
        return None

    def close(self) -> None:
        """Nothing was started."""


class InlineEngine(Scheduler):
    """Runs chains in the calling process.

    Args:
        setup: What is the same for every chain.
    """

    def __init__(self, setup: WorkerSetup) -> None:
        super().__init__(setup, InlineTransport(setup))


class OneThread:
    """One math thread and, where anything `draws` random numbers, a private random state; the caller's put back afterwards."""

    def __init__(self, draws: bool = True) -> None:
        self._draws = draws

    def __enter__(self) -> None:
        self._threads = torch.get_num_threads()
        if self._draws:
            self._state = torch.random.get_rng_state()
        if self._threads != 1:
            torch.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        if self._threads != 1:
            torch.set_num_threads(self._threads)
        if self._draws:
            torch.random.set_rng_state(self._state)
