"""Which of a run's checkpoints it goes on from, and where its event log then ends."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fedgsp.core.errors import InputError
from fedgsp.core.files import read_regular
from fedgsp.run import checkpoint
from fedgsp.run.reader import latest_checkpoint

if TYPE_CHECKING:
    from fedgsp.core.state import ServerState
    from fedgsp.run.checkpoint import Bookmark


def kept_rounds(run: Path) -> list[int]:
    """The rounds of which a run has a checkpoint, oldest first."""
    return sorted({checkpoint.round_of(path) for path in checkpoint.candidates(run / "checkpoint")})


def chosen_checkpoint(
    run: Path, *, previous: bool = False, round_: int | None = None
) -> tuple[ServerState, Bookmark] | None:  # fmt: skip
    """The checkpoint that a run goes on from; None if it was stopped before it had one.

    Args:
        run: The run directory.
        previous: The one before the newest.
        round_: The one of this round.

    Raises:
        InputError: There is no such checkpoint, or it is damaged.
    """
    if round_ is None:
        return latest_checkpoint(run, previous=previous)
    if previous:
        raise InputError("say either `previous=True` or `round=`, not both.")
    found = [path for path in checkpoint.candidates(run / "checkpoint") if checkpoint.round_of(path) == round_]
    if not found:
        kept = ", ".join(map(str, kept_rounds(run))) or "none"
        raise InputError(f"{run} has no checkpoint of round {round_}; there are those of the rounds: {kept}.")
    return checkpoint.load(found[0])


def end_of_events(run: Path, round_: int, bookmark: Bookmark) -> int | None:
    """Where the event log of a run that goes on from a round is cut off; None: it stays whole.

    A run that was stopped in the round after the checkpoint keeps what happened in it. One that goes back further does not:
    those rounds never were. What follows from the log itself needs no memory of who asked for it, so that a kill between the
    dropping of later checkpoints and this cut changes nothing.
    """
    if bookmark.events_bytes is None:
        return None
    with suppress(OSError):
        for line in read_regular(run / "events.jsonl")[bookmark.events_bytes :].split(b"\n"):
            with suppress(ValueError, RecursionError):
                event = json.loads(line)
                if isinstance(event, dict) and event.get("event") == "round" and _above(event.get("round"), round_ + 1):
                    return bookmark.events_bytes
    return None


def _above(value: object, limit: int) -> bool:
    return isinstance(value, int) and value > limit
