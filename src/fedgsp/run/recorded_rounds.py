"""A run's rounds as its event log has them: which attempt counted, who was skipped, who was not evaluated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedgsp.core.errors import InputError
from fedgsp.engine.messages import HopSkipped, NotEvaluated
from fedgsp.run.reader import read_log


@dataclass
class RecordedRound:
    """The attempt at a round that counted: how often it was tried, and what went wrong in it."""

    attempt: int = 1
    skipped: list[HopSkipped] = field(default_factory=list)
    not_evaluated: list[NotEvaluated] = field(default_factory=list)


@dataclass
class RecordedRounds:
    """Rounds by their number."""

    rounds: dict[int, RecordedRound] = field(default_factory=dict)

    def read(self, path: Path, limit: int | None = None) -> None:
        """Take in the event log of a run directory, or its first bytes."""
        if not (path / "events.jsonl").exists():
            return
        try:
            for event in read_log(path, "events", limit):
                self.take(event)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path / 'events.jsonl'} is damaged: {error!r} in an event.") from error

    def take(self, event: Mapping[str, Any]) -> None:
        """Fold one event in."""
        what = event["event"]
        if what == "round":
            self.rounds[event["round"]] = RecordedRound(event.get("attempt", 1))
        elif what == "skipped":
            self.rounds[event["round"]].skipped.append(
                HopSkipped(
                    event["round"], event["chain"], event["hop"], event["client"], event.get("cause", ""),
                    event.get("bytes", 0), event.get("seconds", 0.0),
                )
            )  # fmt: skip
        elif what == "not_judged":
            self.rounds[event["round"]].not_evaluated.append(NotEvaluated(event["round"], event["client"], event["cause"]))

    def of(self, round_: int) -> RecordedRound:
        """A round; one that is not in the log went without trouble."""
        return self.rounds.get(round_, RecordedRound())
