"""The round loop: the paper's Algorithm 1, on one screen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedgsp.run.accounting import Ledgers
from fedgsp.run.commits import Commits
from fedgsp.run.round import Round, RoundPlanner

if TYPE_CHECKING:
    from fedgsp.core.state import ServerState
    from fedgsp.engine.base import Engine
    from fedgsp.run.callbacks import Callback
    from fedgsp.run.directory import Recorder
    from fedgsp.run.run import Run


def train_rounds(
    run: Run,
    engine: Engine,
    state: ServerState,
    history: list[dict[str, Any]],
    recorder: Recorder,
    callbacks: Sequence[Callback] = (),
) -> ServerState:
    """Train from a state to the last round, or to the target: Algorithm 1, whose lines are named beside the code.

    Args:
        run: What is trained.
        engine: Where its chains run.
        state: The state to go on from.
        history: The journal lines so far; grows by one a round.
        recorder: Where events and rounds are written.
        callbacks: Are told how it goes.

    Returns:
        The newest committed state.
    """
    ledgers = Ledgers(run.config.method, history)
    rounds, commits = RoundPlanner(run, recorder, ledgers), Commits(run, engine, history, recorder, callbacks, ledgers)
    state = replace(state, trained=run.initial_state.trained)  # line 1; a checkpoint does not say what is trained
    planned = rounds.plan(state)
    while planned is not None and not commits.stopped:  # line 2: for each round
        with commits.kept_on_failure():
            round_ = Round(run, planned, state, recorder, callbacks)
            results = engine.run(planned.plan, state, round_.listen, None, commits.evaluating, round_.weighing)
            for result in results:  # lines 5-12: groups in parallel, the clients of each in sequence
                round_.add(result)
                commits.commit_evaluated()  # the round before, evaluated meanwhile
                if commits.stopped:
                    return recorder.committed
        commits.commit_pending()
        if not commits.stopped and rounds.enough(round_):  # else the round is planned and run again
            state = round_.aggregate()  # line 13
            commits.add(round_.evaluate(engine, state))
        if not commits.stopped:
            with commits.kept_on_failure():
                planned = rounds.plan(state)  # lines 3-4: group the clients, sample groups
            commits.commit_unless_idle(planned)
    return recorder.committed  # line 15
