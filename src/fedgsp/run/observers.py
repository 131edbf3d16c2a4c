"""Observers watch a run: progress displays, loggers, anything of the user's. They never change it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedgsp.core.blame import blamed
from fedgsp.core.chain import Plan
from fedgsp.engine.job import EngineEvent, Span

if TYPE_CHECKING:
    from fedgsp.run.result import RunResult
    from fedgsp.run.setup import Setup


class Observer:
    """Override what you care about; all hooks are called in the process that drives the run."""

    def started(self, setup: Setup, journal: list[dict[str, Any]]) -> None:
        """The run begins, or goes on after the rounds in `journal`."""

    def round_begun(self, plan: Plan) -> None:
        """A round is planned and its chains start."""

    def event(self, event: EngineEvent) -> None:
        """A client has trained, or was skipped; a worker was lost, or may hang."""

    def evaluating(self, round_: int) -> None:
        """The chains are done; the new model is evaluated."""

    def worked(self, entry: dict[str, Any], spans: list[Span]) -> None:
        """Just before: what workers did since the last round (evaluation included, where it was put off)."""

    def round_done(self, entry: dict[str, Any]) -> None:
        """A round is finished and on disk; `entry` is its journal line."""

    def ended(self, result: RunResult) -> None:
        """The run has come to an end; `result.status` says which."""

    def closed(self) -> None:
        """Whatever happened, this is the last call: give back what was taken."""


def tell(observers: Sequence[Observer], hook: str, *arguments: Any) -> None:
    """Call a hook of every observer; one that fails is named with its place."""
    for observer in observers:
        with blamed(f"the observer {type(observer).__name__} (its '{hook}')"):
            getattr(observer, hook)(*arguments)
