"""The engine without processes: chains run in this one, one after the other. For tests, debugging and tiny work."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import torch

from fedgsp.core.blame import described
from fedgsp.core.chain import ChainResult, Plan
from fedgsp.core.errors import FedgspError, RunFailed
from fedgsp.core.state import ServerState
from fedgsp.engine.job import Absent, HopDone, Job, Listener, Scored, Scoring, Span, Wanted, longest_first
from fedgsp.engine.walk import Walker, peak_memory_bytes
from fedgsp.server.mean import Weighing


class InlineEngine:
    """Walks chains in the calling process, with one math thread (so that its bits are those of any worker pool)."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._spans: list[Span] = []
        with OneThread():
            self._walker = Walker.of(job)

    def run(
        self,
        plan: Plan,
        state: ServerState,
        listener: Listener,
        absent: Absent | None = None,
        meanwhile: Scoring | None = None,
        weighing: Weighing | None = None,
    ) -> Iterator[ChainResult]:
        """See `Engine.run`."""
        for index in longest_first(plan, self._job.data):
            chain, at = plan.chains[index], [plan.chains[index].clients[0]]
            bag, began = self._walker.bag(state.kept), time.perf_counter()
            try:
                with OneThread(draws=self._walker.trainer.fused is None):
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
                raise RunFailed(f"client '{name}' failed in round {plan.round}: {described(error)}.").with_trace() from error
            self._note("train", f"round {plan.round}, chain {index}", began)
            if hops:
                yield ChainResult(index, chain, {name: t.cpu() for name, t in tensors.items()}, hops, bag.sent, bag.marks)

    def ask(self, state: ServerState, wanted: Wanted, owners: Sequence[int | None] | None = None) -> Scoring:
        """See `Engine.ask`: here nobody is idle, so it is done at once."""
        whose = [None] * len(wanted) if owners is None else owners
        began = time.perf_counter()
        try:
            with OneThread():
                found = [
                    self._walker.score(*state.evaluated(name), rows, owner, state.round, self._walker.bag(state.kept))
                    for (name, rows), owner in zip(wanted, whose, strict=True)
                ]
        except FedgspError:
            raise
        except Exception as error:
            raise RunFailed(f"evaluation failed in round {state.round}: {described(error)}.").with_trace() from error
        self._note("evaluate", f"round {state.round}", began)
        return Scored(found)

    def idle_share(self, plan: Plan) -> float:
        """See `Engine.idle_share`."""
        return 0.0

    def spans(self) -> list[Span]:
        """See `Engine.spans`."""
        done, self._spans = self._spans, []
        return done

    def _note(self, kind: str, label: str, began: float) -> None:
        self._spans.append(Span(0, kind, label, began, time.perf_counter()))

    def peak_memory(self) -> dict[str, int]:
        """See `Engine.peak_memory`."""
        return {"main": peak_memory_bytes()}

    def close(self) -> None:
        """Nothing was started."""


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
