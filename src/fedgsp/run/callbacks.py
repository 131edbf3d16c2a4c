"""Callbacks are told how a run goes on: progress displays, loggers, anything of the user's. They never change it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedgsp.core.errors import blamed
from fedgsp.engine.messages import EngineEvent, HopDone, HopSkipped, WorkerLost, WorkerSlow

if TYPE_CHECKING:
    from fedgsp.core.chain import Plan
    from fedgsp.engine.base import Span
    from fedgsp.run.result import RunResult
    from fedgsp.run.run import Run

Failure = HopSkipped | WorkerLost | WorkerSlow


def in_words(event: Failure) -> str:
    """A line about a client that was skipped, a chain that begins anew, or a worker that may hang."""
    if isinstance(event, WorkerSlow):
        return f"round {event.round}: {event} (`hop_seconds=` replaces workers that do)"
    if isinstance(event, HopSkipped):
        return f"round {event.round}: client {event.client} is skipped in chain {event.chain}: {event.cause}"
    return f"round {event.round}: chain {event.chain} is run again: {event.cause}"


class Callback:
    """The base of all callbacks: override the methods you need.

    All methods are called in the process that drives the run. An exception in one of them stops the run with a sentence that
    names the callback.

    Example:
        >>> import fedgsp
        >>> class PrintLoss(fedgsp.Callback):
        ...     def on_round_end(self, entry):
        ...         print(entry["round"], entry["train_loss"])
    """

    def on_run_start(self, run: Run, history: list[dict[str, Any]]) -> None:
        """The run starts, or is resumed.

        Args:
            run: What the run is made of.
            history: The journal lines of the rounds before; empty for a new run.
        """

    def on_round_start(self, plan: Plan) -> None:
        """A round is planned and its chains start.

        Args:
            plan: The chains of the round.
        """

    def on_hop_end(self, hop: HopDone) -> None:
        """A client has trained.

        Args:
            hop: Round, chain and the client's report.
        """

    def on_failure(self, failure: Failure) -> None:
        """A client was skipped, or a worker was lost or may hang.

        Args:
            failure: What happened, with its round and cause.
        """

    def on_evaluate_start(self, round_: int) -> None:
        """The round's chains are done and its model is evaluated next.

        Args:
            round_: The number of the round.
        """

    def on_worker_spans(self, entry: dict[str, Any], spans: list[Span]) -> None:
        """Called just before `on_round_end` with what each worker did since the last round.

        Args:
            entry: The round's journal line.
            spans: Who did what from when to when; also evaluations of an earlier round that were put off.
        """

    def on_round_end(self, entry: dict[str, Any]) -> None:
        """A round is finished and committed to disk.

        Args:
            entry: The round's journal line.
        """

    def on_run_end(self, result: RunResult) -> None:
        """The run has ended without an exception.

        Args:
            result: The run; `result.status` says how it ended.
        """

    def close(self) -> None:
        """The last call, however the run ended: release files, connections and the terminal."""


def notify(callbacks: Sequence[Callback], hook: str, *arguments: Any) -> None:
    """Call one method of every callback; one that fails is named with its place."""
    for callback in callbacks:
        with blamed(f"the callback {type(callback).__name__} (its '{hook}')"):
            getattr(callback, hook)(*arguments)


def notify_event(callbacks: Sequence[Callback], event: EngineEvent) -> None:
    """A hop that ended, or a failure."""
    notify(callbacks, "on_hop_end" if isinstance(event, HopDone) else "on_failure", event)
