"""The engine without processes: chains run in this one, one after the other. For tests, debugging and tiny work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from fedgsp.core.chain import ChainResult, Plan
from fedgsp.core.errors import FedgspError, RunFailed
from fedgsp.core.state import ServerState
from fedgsp.engine.job import Absent, HopDone, Job, Listener, longest_first
from fedgsp.engine.walk import Walker, peak_memory_bytes
from fedgsp.evaluate.forward import SampleScores


class InlineEngine:
    """Walks chains in the calling process, with one math thread (so that its bits are those of any worker pool)."""

    def __init__(self, job: Job) -> None:
        self._job = job
        with OneThread():
            self._walker = Walker.of(job)

    def run(self, plan: Plan, state: ServerState, listener: Listener, absent: Absent | None = None) -> Iterator[ChainResult]:
        """See `Engine.run`."""
        for index in longest_first(plan, self._job.data):
            chain, at = plan.chains[index], [plan.chains[index].clients[0]]
            bag = self._walker.bag(state.kept)
            try:
                with OneThread():
                    tensors, hops = self._walker.walk(
                        plan.round,
                        chain,
                        state.models[chain.start],
                        state.shared,
                        (absent or {}).get(index, frozenset()),
                        lambda report, index=index: listener(HopDone(plan.round, index, report)),  # type: ignore[misc]
                        lambda client, at=at: at.__setitem__(0, client),  # type: ignore[misc]
                        bag,
                    )
            except (FedgspError, KeyboardInterrupt):
                raise
            except Exception as error:
                name = self._job.data.clients[at[0]]
                raise RunFailed(f"client '{name}' failed in round {plan.round}: {type(error).__name__}: {error}.") from error
            if hops:
                yield ChainResult(index, chain, {name: t.cpu() for name, t in tensors.items()}, hops, bag.sent, bag.marks)

    def score(
        self,
        state: ServerState,
        wanted: Sequence[tuple[str, NDArray[np.int64]]],
        owners: Sequence[int | None] | None = None,
    ) -> list[SampleScores]:
        """See `Engine.score`."""
        whose = [None] * len(wanted) if owners is None else owners
        with OneThread():
            return [
                self._walker.score(*state.evaluated(name), rows, owner, state.round, state.kept)
                for (name, rows), owner in zip(wanted, whose, strict=True)
            ]

    def peak_memory(self) -> dict[str, int]:
        """See `Engine.peak_memory`."""
        return {"main": peak_memory_bytes()}

    def close(self) -> None:
        """Nothing was started."""


class OneThread:
    """One math thread and a private random state, the caller's put back afterwards."""

    def __enter__(self) -> None:
        self._threads = torch.get_num_threads()
        self._state = torch.random.get_rng_state()
        torch.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        torch.set_num_threads(self._threads)
        torch.random.set_rng_state(self._state)
