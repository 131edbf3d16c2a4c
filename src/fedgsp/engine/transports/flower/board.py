"""The group managers of the round under way, in a file of the run directory: who has which group's model, and since when.

It is for whoever looks (`fedgsp deploy status`); nothing is ever decided by it, and a run that is resumed writes it anew.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fedgsp.core.errors import FedgspError
from fedgsp.core.files import write_whole
from fedgsp.engine.messages import EngineEvent, HopDone, HopSkipped

if TYPE_CHECKING:
    from fedgsp.core.chain import Hop, Plan

FILE = "managers.json"
SCHEMA = 1


class Board(Protocol):
    """Where it is shown what the group managers do."""

    def begin(self, plan: Plan) -> None:
        """A round begins."""
        ...

    def asked(self, index: int, hop: Hop) -> None:
        """A client of a group has been sent the model."""
        ...

    def note(self, event: EngineEvent) -> None:
        """A client has answered, or is skipped."""
        ...


class NoBoard:
    """Nobody looks."""

    def begin(self, plan: Plan) -> None:
        """See `Board.begin`."""

    def asked(self, index: int, hop: Hop) -> None:
        """See `Board.asked`."""

    def note(self, event: EngineEvent) -> None:
        """See `Board.note`."""


class FileBoard:
    """The board as a file; `name` says what a client is called."""

    def __init__(self, run_dir: Path, name: Callable[[int], str], now: Callable[[], float] = time.time) -> None:
        self._file, self._name, self._now = run_dir / FILE, name, now
        self._round = 0
        self._groups: list[dict[str, Any]] = []

    def begin(self, plan: Plan) -> None:
        """See `Board.begin`."""
        self._round = plan.round
        now = round(self._now(), 3)
        fresh = {"state": "waiting", "hop": 0, "skipped": 0, "since": now}
        self._groups = [
            {"group": index, "client": self._name(chain.clients[0]), "hops": len(list(chain.hops())), **fresh}
            for index, chain in enumerate(plan.chains)
        ]
        self._write()

    def asked(self, index: int, hop: Hop) -> None:
        """See `Board.asked`."""
        self._change(index, state="training", client=self._name(hop.client), hop=hop.index)

    def note(self, event: EngineEvent) -> None:
        """See `Board.note`."""
        if isinstance(event, HopDone):
            self._passed(event.chain, event.report.hop)
        elif isinstance(event, HopSkipped):
            self._groups[event.chain]["skipped"] += 1
            self._passed(event.chain, event.hop)

    def _passed(self, index: int, hop: int) -> None:
        over = hop + 1 >= self._groups[index]["hops"]
        self._change(index, state="done" if over else "waiting", hop=hop + 1)

    def _change(self, index: int, **facts: Any) -> None:
        self._groups[index] |= {**facts, "since": round(self._now(), 3)}
        self._write()

    def _write(self) -> None:
        facts = {"schema": SCHEMA, "round": self._round, "groups": self._groups}
        with suppress(OSError, FedgspError):  # what nobody needs must not end a run
            write_whole(self._file, json.dumps(facts).encode() + b"\n", sync=False)


def read_board(run_dir: Path) -> tuple[int, list[dict[str, Any]]] | None:
    """(the round, its groups) as they were written last; None where there is nothing to be read."""
    try:
        facts = json.loads((run_dir / FILE).read_text(encoding="utf-8"))
        if facts["schema"] != SCHEMA:
            return None
        wanted = {"group": int, "state": str, "client": str, "hop": int, "hops": int, "skipped": int, "since": (int, float)}
        groups = [{name: one[name] for name in wanted} for one in facts["groups"]]
        if not all(isinstance(one[name], kind) for one in groups for name, kind in wanted.items()):  # type: ignore[arg-type]
            return None
        return int(facts["round"]), groups
    except (OSError, ValueError, KeyError, TypeError):
        return None
