"""Settings at equal serial steps: so that the shape of a schedule is not taken for the work that it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedgsp.run.metrics import evaluations
from fedgsp.study.history import cut
from fedgsp.study.noise import Estimate
from fedgsp.study.tables import Column, Table, percent

if TYPE_CHECKING:
    from fedgsp.study.records import Trace

STEPS = "serial_steps_total"


def equal_steps(name: str, runs: Mapping[str, Sequence[Trace]]) -> Table:
    """A table of the accuracy that each setting has within as many serial steps as the thriftiest takes in all.

    Args:
        name: The study's name.
        runs: Setting -> its runs.

    Returns:
        A row a setting; none for one that diverged; no figure for one that was not evaluated within them.
    """
    whole = {setting: several for setting, several in runs.items() if several and not any(t.diverged for t in several)}
    budget = min((t.history[-1][STEPS] for several in whole.values() for t in several), default=0)
    rows: list[tuple[Any, ...]] = []
    for setting, several in whole.items():
        within = [[entry for entry in trace.history if entry[STEPS] <= budget] for trace in several]
        fits = all(evaluations(entries, "accuracy") for entries in within)
        ends = Estimate.of([cut(trace.history, STEPS, budget)[0] for trace in several]) if fits else None
        rounds = Estimate.of([float(len(entries)) for entries in within])
        rows.append((setting, ends, rounds if fits else None))
    return Table(
        f"{name}-equal-steps", f"At equal serial steps: the first {budget:,}",
        (Column("setting"), Column("accuracy %", percent), Column("rounds within them", "{:.1f}".format)), rows,
        "The budget is what the thriftiest setting takes in all its rounds; accuracy is the final figure of the rounds within "
        "it. At equal rounds a setting with longer chains does more work, which this table takes out.", kept=False,
    )  # fmt: skip
