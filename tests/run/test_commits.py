"""When a round is committed: at once, or after the next one's idle time was used to evaluate it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from fedgsp.core.chain import Plan
from fedgsp.core.errors import RunFailed
from fedgsp.core.state import ServerState
from fedgsp.engine import InlineEngine
from fedgsp.engine.base import Span
from fedgsp.run.accounting import Ledgers
from fedgsp.run.build import RunBuilder
from fedgsp.run.commits import LONG_ROUND, Commits
from fedgsp.run.config import RunConfig, RunSection
from fedgsp.run.directory import NoRecord
from fedgsp.run.round import PlannedRound, Round, RoundPlanner, TrainedRound
from fedgsp.run.run import Run
from tests.support import tiny


@dataclass
class Idle:
    """An engine that says how idle its workers will be."""

    engine: InlineEngine
    share: float = 0.5

    def idle_share(self, plan: Plan) -> float:
        return self.share

    def spans(self) -> list[Span]:
        return []


class Committed(NoRecord):
    """Remembers which rounds were committed."""

    def __init__(self, state: ServerState) -> None:
        super().__init__(state)
        self.rounds: list[int] = []

    def commit(self, state: ServerState, plan: Plan, entry: dict[str, Any], scores: dict[str, Any] | None = None) -> None:
        super().commit(state, plan, entry, scores)
        self.rounds.append(state.round)


class There:
    """Commits of a run with eight clients, and its first two rounds."""

    def __init__(self, share: float = 0.5, **options: Any) -> None:
        config = RunConfig(run=RunSection(**{"rounds": 3, "workers": 0, **options}), method=tiny.static(2))
        self.run: Run = RunBuilder(tiny.federation(), tiny.linear).build(config)
        self.state = self.run.initial_state
        self.recorder, self.history = Committed(self.state), cast(list[dict[str, Any]], [])
        self.engine = InlineEngine(self.run.worker_setup)
        ledgers = Ledgers(config.method, self.history)
        self.planner = RoundPlanner(self.run, self.recorder, ledgers)
        idle = cast(Any, Idle(self.engine, share))
        self.commits = Commits(self.run, idle, self.history, self.recorder, (), ledgers)

    def planned(self) -> PlannedRound:
        found = self.planner.plan(self.state)
        assert found is not None
        return found

    def trained(self) -> TrainedRound:
        planned, callbacks = self.planned(), cast(Sequence[Any], ())
        round_ = Round(self.run, planned, self.state, self.recorder, callbacks)
        for result in self.engine.run(planned.plan, self.state, round_.listen):
            round_.add(result)
        self.state = round_.aggregate()
        return round_.evaluate(self.engine, self.state)


def test_a_round_waits_for_idle_time_of_the_next() -> None:
    there = There()
    there.commits.add(there.trained())
    there.commits.commit_unless_idle(there.planned())
    assert there.recorder.rounds == []
    assert there.commits.evaluating is not None
    there.commits.evaluating.result()  # the workers' idle time
    there.commits.commit_evaluated()
    assert there.recorder.rounds == [1]
    assert there.commits.evaluating is None


@pytest.mark.parametrize("last", [True, False])
def test_without_idle_time_it_is_committed_at_once(last: bool) -> None:
    there = There(share=0.5 if last else 0.0)
    there.commits.add(there.trained())
    there.commits.commit_unless_idle(None if last else there.planned())
    assert [entry["round"] for entry in there.history] == there.recorder.rounds == [1]


def test_nothing_waits_after_a_long_round() -> None:
    there = There()
    trained = there.trained()
    trained.planned.stopwatch.laps["train"] = LONG_ROUND + 1
    there.commits.add(trained)
    assert there.recorder.rounds == [1]


def test_nothing_waits_where_clients_keep_states() -> None:
    there = There()
    trained = there.trained()
    there.commits.add(replace(trained, state=trained.state.with_client_versions({0: "1-a"})))
    assert there.recorder.rounds == [1]


def test_a_round_that_is_not_evaluated_is_committed_at_once() -> None:
    there = There(eval_every=2)
    there.commits.add(there.trained())
    assert there.recorder.rounds == [1]
    assert "accuracy" not in there.history[0]


def test_a_trained_round_is_kept_when_the_next_fails() -> None:
    there = There()
    there.commits.add(there.trained())
    with pytest.raises(RunFailed, match="no more"), there.commits.kept_on_failure():
        raise RunFailed("no more")
    assert there.recorder.rounds == [1]


def test_the_target_stops_the_run() -> None:
    there = There(target_accuracy=1e-9, stop_at_target=True)
    there.commits.add(there.trained())
    assert not there.commits.stopped
    there.commits.commit_pending()
    assert there.commits.stopped
