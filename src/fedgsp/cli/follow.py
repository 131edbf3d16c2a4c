"""The live display of a run that another process drives: everything is read off its directory."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from fedgsp.cli.display import About, LiveDisplay, PlainLines, display, plain_console, size
from fedgsp.core.chain import Chain, Plan
from fedgsp.progress import duration
from fedgsp.run.reader import RunReader

if TYPE_CHECKING:
    from fedgsp.deploy.conduct import Outcome
    from fedgsp.deploy.status import RunStatus, Status


class Follower:
    """Tells a display what a run directory says; `look` takes in what is new."""

    def __init__(self, run: Path, shown: LiveDisplay | PlainLines) -> None:
        self.run, self._shown = run, shown
        self._reader: RunReader | None = None
        self._told = 0
        self._begun = False
        self._names: dict[int, str] = {}
        if self._is_there():
            reader, _ = self._read()  # what went before was shown then
            self._names.update(reader.events.sites)

    def look(self) -> None:
        """Take in what is new and show it."""
        if not self._is_there():
            return
        reader, events = self._read()
        if not self._begun and reader.names:
            self._begin(reader)
        for event in events:
            (self._tell if self._begun else self._know)(event)
        for entry in reader.history:
            if self._begun and entry["round"] > self._told:
                self._shown.on_round_end(entry)
                self._told = entry["round"]

    def _is_there(self) -> bool:
        return self._reader is not None or (self.run / "config.toml").is_file()

    def _read(self) -> tuple[RunReader, list[dict[str, Any]]]:
        self._reader = self._reader or RunReader(self.run)
        return self._reader, self._reader.read()

    def tell(self, text: str) -> None:
        """Say something that the run directory does not."""
        self._shown.say(text)

    def close(self) -> None:
        """Give the terminal back."""
        self._shown.close()

    def _begin(self, run: RunReader) -> None:
        self._begun = True
        self._names.update(enumerate(run.names))
        self._told = run.round
        headline = f"{run.method}: {run.rounds_planned} rounds, {len(run.names)} clients, model {run.model}, in {self.run}"
        self._shown.begin(About(headline, run.rounds_planned, run.score), run.history)

    def _tell(self, event: Mapping[str, Any]) -> None:
        kind = event.get("event")
        if kind == "round":
            lengths = event.get("hops") or [1] * max(1, event["chains"])
            chains = tuple(Chain(tuple(range(max(1, length)))) for length in lengths)
            self._shown.on_round_start(Plan(event["round"], chains, len(chains), 0))
        elif kind == "hop":
            self._shown.advanced(event["chain"], event["hop"] + 1)
        elif kind in ("skipped", "lost", "not_judged"):
            what = "was not judged on" if kind == "not_judged" else kind
            self._shown.say(f"round {event.get('round')}: {self._name(event.get('client'))} {what}: {event.get('cause')}")
            if kind == "skipped":
                self._shown.advanced(event["chain"], event["hop"] + 1)
        elif kind == "sites":
            for number in event["left"]:
                self._shown.say(f"{self._name(number)} has left")
            for name in self._know(event):
                self._shown.say(f"{name} has joined")
        elif kind == "slow":
            self._shown.say(f"round {event.get('round')}: {event.get('cause')}")
        elif kind == "waiting":
            self._shown.say(f"waiting for sites: {event.get('cause')}")
        elif kind == "below_quorum":
            done = f"{event.get('trained')} of {event.get('planned')} samples"
            self._shown.say(f"round {event.get('round')}: below the quorum ({done}); it is run again")

    def _know(self, event: Mapping[str, Any]) -> list[str]:
        """Remember what sites are called; those that were not there before (the first list is the headline's)."""
        if event.get("event") != "sites":
            return []
        listed = {member["number"]: member["name"] for member in event["members"]}
        new = [name for number, name in listed.items() if number not in self._names] if self._names else []
        self._names.update(listed)
        return new

    def _name(self, client: Any) -> str:
        return self._names.get(client, f"client {client}")


class Unseen:
    """Shows nothing."""

    def look(self) -> None:
        """Nothing to show."""

    def tell(self, text: str) -> None:
        """Nothing is said."""

    def close(self) -> None:
        """Nothing to give back."""


def follower(run: Path, silent: bool) -> Follower | Unseen:
    """Whoever shows a run: the same display as of `fedgsp run`, or nobody."""
    return Unseen() if silent else Follower(run, display())


def show_outcome(outcome: Outcome) -> None:
    """What came out of a run that another process drove."""
    assert outcome.run is not None
    result = RunReader(outcome.path).result
    totals = result.get("totals", {})
    rows = [*_run_rows(outcome.run), ("traffic", f"{size(totals.get('bytes', 0))} handed on")]
    seconds = result.get("timings", {}).get("seconds")
    if seconds is not None:
        rows.append(("time", duration(seconds)))
    _table(rows)
    plain_console().print(f"next: fedgsp report {outcome.path}", soft_wrap=True)


def show_status(status: Status, place: Path) -> None:
    """A deployment in a few lines."""
    rows: list[tuple[str, str]] = []
    if status.processes:
        alive = [name for name, _, lives in status.processes if lives]
        dead = [name for name, _, lives in status.processes if not lives and name != "submit"]
        rows.append(("processes", f"{len(alive)} running{'; ended: ' + ', '.join(dead) if dead else ''}"))
    if status.nodes is None:
        rows.append(("superlink", str(status.trouble)))
    else:
        nodes = status.nodes
        rows.append(("superlink", "answers"))
        rows.append(
            ("nodes", f"{len(nodes.online)} online" + _list("away", nodes.away) + _list("not registered", nodes.unknown))
        )
    if status.run is None:
        rows.append(("run", "none yet"))
    else:
        rows += _run_rows(status.run)
        if status.run.resumable:
            rows.append(("next", f"fedgsp deploy resume {place}"))
    _table(rows)


def _run_rows(run: RunStatus) -> list[tuple[str, str]]:
    rows = [("run", f"{run.path}"), ("status", f"{run.method}, {run.status}, {run.round} of {run.rounds} rounds")]
    if run.score is not None:
        rows.append((run.score, run.told))
    if run.cause:
        rows.append(("cause", run.cause))
    if spent := _spent(run.timings):
        rows.append((f"round {run.round}", spent))
    if run.managers is not None:
        number, groups = run.managers
        rows += [(f"round {number}, group {one['group']}", _manager(one, time.time())) for one in groups]
    for name, causes in sorted(run.faults.items()):
        rows.append((name, "; ".join(f"{cause} ({count}x)" for cause, count in causes.most_common(3))))
    return rows


def _spent(timings: Mapping[str, float]) -> str:
    """Where a round's seconds went."""
    stages = ", ".join(f"{name} {duration(timings[name])}" for name in ("plan", "train", "evaluate") if name in timings)
    parts = ", ".join(f"{name} {duration(timings[name])}" for name in ("training", "transfer", "waiting") if name in timings)
    return stages + (f"; its hops: {parts}" if parts else "")


def _manager(group: Mapping[str, Any], now: float) -> str:
    """What a group manager does, and since when."""
    since, at = duration(max(0.0, now - group["since"])), f"hop {group['hop'] + 1} of {group['hops']}"
    lost = f", {group['skipped']} skipped" if group["skipped"] else ""
    if group["state"] == "training":
        return f"{at}: {group['client']} has the model, training for {since}{lost}"
    if group["state"] == "done":
        return f"done for {since}{lost}"
    return f"{at}: waiting for {since}{lost}"


def _list(what: str, names: list[str]) -> str:
    return f", {what}: {', '.join(names)}" if names else ""


def _table(rows: list[tuple[str, str]]) -> None:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*row)
    plain_console().print(table)
