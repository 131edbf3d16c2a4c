"""What a worker does with a task: hops, evaluations, partial sums. How tasks come and answers go is the transport's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fedgsp.core.chain import ChainResult
from fedgsp.core.state import GLOBAL, ServerState
from fedgsp.engine.chain_runner import ChainRunner, peak_memory_bytes
from fedgsp.engine.messages import (
    Answer,
    ChainOutput,
    EvaluateDone,
    EvaluateTask,
    HopDone,
    StillWorking,
    SumDone,
    TaskFailed,
    TrainDone,
    TrainTask,
)

if TYPE_CHECKING:
    from fedgsp.client.client_state import ClientStates
    from fedgsp.core.sums import ExactSum
    from fedgsp.core.tensors import Tensors
    from fedgsp.data.federated import FederatedData, Rows

SIGN_OF_LIFE_SECONDS = 1.0
"""So often a worker says that it is well while it trains many short chains."""
MEMORY_SECONDS = 0.2
"""So often it looks how much memory it took: asking costs as much as a tiny client's training."""


def _silent(index: int, client: int | None) -> None:
    """Nobody looks."""


class Worker:
    """One model and some clients' samples. `on_hop_start` is told of every chain (or evaluation) and client that is begun."""

    def __init__(self, runner: ChainRunner | None, on_hop_start: Callable[[int, int | None], None] = _silent) -> None:
        self.runner = runner
        self._on_hop_start = on_hop_start
        self._sum: tuple[int, ExactSum] | None = None
        self._peak, self._looked = 0, -MEMORY_SECONDS

    def train(
        self,
        task: TrainTask,
        models: ServerState,
        pack: Callable[[ChainOutput], Any],
        carried: ChainOutput | None = None,
    ) -> Iterator[Answer]:
        """`HopDone` for each hop of a lone segment (else `StillWorking` now and then), then `TrainDone`; or `TaskFailed`.

        `models` has the models that `task.models` stands for. What a segment hands on shares the model's memory, so it is
        packed before the next begins.
        """
        alone, index, client = len(task.segments) == 1, task.segments[0].index, None
        done, outputs, said = [], [], time.monotonic()

        def on_hop_start(number: int) -> None:
            nonlocal client
            client = number
            self._on_hop_start(index, number)

        try:
            runner = self._ready()
            for segment in task.segments:
                index, client = segment.index, None
                client_states, hops = _client_states(runner, segment.client_versions, segment.states, carried), []
                start = models.models[segment.chain.start]
                handed = None if carried is None else carried.tensors
                for report in runner.hops(
                    task.round, segment.chain, start, models.shared, segment.absent, on_hop_start, client_states, handed,
                    len(segment.before),
                ):  # fmt: skip
                    hops.append(report)
                    if alone:
                        yield HopDone(task.round, index, report)
                    elif time.monotonic() - said >= SIGN_OF_LIFE_SECONDS:
                        said = time.monotonic()
                        yield StillWorking()
                tensors: Tensors | None = runner.trainer.tensors()
                if task.weighing is not None and segment.last and (segment.before or hops):
                    self._add(task, models, ChainResult(index, segment.chain, tensors or {}, (*segment.before, *hops)))
                    tensors = None
                states = {
                    number: state
                    for number, state in client_states.in_memory.items()
                    if state is not segment.states.get(number)
                }
                outputs.append(pack(ChainOutput(tensors, client_states.sent, client_states.versions, states)))
                done.append(tuple(hops))
            yield TrainDone(tuple(done), outputs, self._peak_memory())
        except Exception as error:
            yield TaskFailed.of(index, client, error)

    def evaluate(
        self, task: EvaluateTask, models: ServerState, rows: Rows | None = None, samples: FederatedData | None = None
    ) -> EvaluateDone | TaskFailed:
        """Scores of some samples; `rows` says where they are here, if not where the task says, `samples` what they are of."""
        self._on_hop_start(task.number, task.owner)
        try:
            runner = self._ready()
            tensors, beside = models.evaluated(task.name)
            client_states = _client_states(runner, task.client_versions, task.states, None)
            where = task.rows if rows is None else rows
            scores = runner.evaluate(tensors, beside, where, task.owner, task.round, client_states, samples)
            return EvaluateDone(task.number, scores, self._peak_memory())
        except Exception as error:
            return TaskFailed.of(task.number, task.owner, error)

    def sums(self, round_: int) -> SumDone:
        """What this round's chains add up to here; from now on it counts as handed over."""
        found, self._sum = self._sum, None
        return SumDone(found[1].partial() if found is not None and found[0] == round_ else None)

    def _add(self, task: TrainTask, models: ServerState, result: ChainResult) -> None:
        assert task.weighing is not None
        if self._sum is None or self._sum[0] != task.round:  # what is there of a round that failed counts no more
            self._sum = (task.round, task.weighing.sum_like(models.models[GLOBAL]))
        task.weighing.add(result, self._sum[1])

    def _peak_memory(self) -> int:
        """The largest resident memory of this process so far, as it was a moment ago."""
        now = time.monotonic()
        if now - self._looked >= MEMORY_SECONDS:
            self._peak, self._looked = peak_memory_bytes(), now
        return self._peak

    def _ready(self) -> ChainRunner:
        if self.runner is None:
            raise RuntimeError("the worker has no samples yet")
        return self.runner


def _client_states(
    runner: ChainRunner, versions: Mapping[int, str], states: Mapping[int, Tensors], carried: ChainOutput | None
) -> ClientStates:
    client_states = runner.client_states(versions)
    client_states.in_memory = dict(states)
    if carried is not None:
        client_states.sent, client_states.versions = dict(carried.sent), dict(carried.client_versions)
        client_states.in_memory.update(carried.states)
    return client_states
