"""What a run's event log amounts to, folded event by event, so that logs of any length can be followed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

ENDINGS = ("finished", "target", "paused", "interrupted", "failed")
FAULTS = ("skipped", "lost", "not_judged")


class EventLog:
    """Counts over a whole event log, how the run stands, and the round under way.

    `round`, `chains` and `hops` are those of the round under way; None and nothing between rounds. `faults` counts
    (kind, client, cause); `sites` has the names of a deployment's sites by number, `present` the numbers of those there now.
    """

    def __init__(self) -> None:
        self.began: float | None = None
        self.versions: dict[str, str] = {}
        self.last = ""
        self.cause: str | None = None
        self.round: int | None = None
        self.chains = 0
        self.hops: list[Mapping[str, Any]] = []
        self.kinds: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.faults: Counter[tuple[str, int | None, str]] = Counter()
        self.sites: dict[int, str] = {}
        self.present: set[int] = set()

    def take(self, event: Mapping[str, Any]) -> None:
        """Fold one event in."""
        kind = event["event"]
        self.kinds[kind] += 1
        if kind == "round":
            self._close()
            self.round, self.chains, self.hops = event["round"], event["chains"], []
        elif kind == "hop":
            self.hops.append(event)
            for way in ("down", "up"):
                self.bytes[way] += event.get(way, 0)
        elif kind in FAULTS:
            self.faults[kind, event.get("client"), str(event.get("cause"))] += 1
        elif kind == "sites":
            self.sites.update({member["number"]: member["name"] for member in event["members"]})
            self.present |= {member["number"] for member in event["members"]}
            self.present -= set(event["left"])
        elif kind in ENDINGS or kind in ("started", "resumed"):
            if kind in ENDINGS:
                self._close()
            self.last, self.cause = kind, event.get("cause")
            if kind == "started":
                self.began = event["at"]
            self.versions = event.get("versions", self.versions)

    def _close(self) -> None:
        """A round is over, or begins anew."""
        if self.round is not None and self.hops:
            self.round_over(self.round, self.hops)
        self.round, self.hops = None, []

    def round_over(self, round_: int, hops: list[Mapping[str, Any]]) -> None:
        """For those who want to know what a round's hops were before they are forgotten."""

    def lanes(self) -> list[list[int]]:
        """The round under way: the clients that have trained so far, chain by chain in the order they did."""
        walked: dict[int, dict[int, int]] = {}
        for hop in self.hops:
            walked.setdefault(hop["chain"], {})[hop["hop"]] = hop["client"]
        return [[client for _, client in sorted(walked.get(chain, {}).items())] for chain in range(self.chains)]
