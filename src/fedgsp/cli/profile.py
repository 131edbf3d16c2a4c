"""What `fedgsp run --profile` prints: where the time went, and where the trace is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedgsp.cli.display import plain_console
from fedgsp.progress import duration
from fedgsp.run.profile import LAPS

MEANS = {
    "plan": "grouping, sampling and ordering clients",
    "broadcast": "laying the model out for the workers (part of training)",
    "train": "chains on their way, results added as they come",
    "aggregate": "adding results and making the new model (part of training)",
    "evaluate": "waiting for the evaluation (nothing, where it was done in idle time)",
}


def show_profile(totals: dict[str, Any], place: Path) -> None:
    """A table of the whole run."""
    from rich.table import Table

    console = plain_console()
    table = Table("time on", "seconds", "a round", "what it is", title="Where the time went")
    for name in LAPS:
        table.add_row(name, f"{totals[name]:.3f}", f"{totals[name] / max(1, totals['rounds']):.4f}", MEANS[name])
    console.print(table)
    idle = ", ".join(f"worker {number} {share:.1%}" for number, share in enumerate(totals["idle"]))
    console.print(f"idle: {idle} (after the first round, in which the workers start)")
    console.print(f"{totals['rounds']} rounds in {duration(totals['seconds'])}; every round: {place / 'profile.json'}")
    console.print(f"open {place / 'trace.json'} in chrome://tracing or a Perfetto viewer")
