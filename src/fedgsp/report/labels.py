"""Runs of one method with other seeds belong together; configurations of one name are told apart by what differs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedgsp.report.runview import RunView

NOT_TOLD_APART = {
    ("schema",), ("method", "name"),
    *(("run", name) for name in ("seed", "workers", "rounds", "eval_every", "target_accuracy", "stop_at_target")),
}  # fmt: skip
MOST_WORDS = 3


@dataclass(frozen=True)
class RunGroup:
    """Runs that differ in their seed only, by their places in the list of runs."""

    label: str
    method: str
    runs: tuple[int, ...]


def group_runs(runs: Sequence[RunView]) -> list[RunGroup]:
    """Groups in the order in which they first appear."""
    leaves = [_leaves(run.config) for run in runs]
    keys = [
        (run.method, json.dumps(sorted((k, repr(v)) for k, v in own.items()))) for run, own in zip(runs, leaves, strict=True)
    ]
    members: dict[tuple[str, str], list[int]] = {}
    for index, key in enumerate(keys):
        members.setdefault(key, []).append(index)
    namesakes: dict[str, list[int]] = {}
    for key, own in members.items():
        namesakes.setdefault(key[0], []).append(own[0])
    groups = [
        RunGroup(_label(runs[own[0]], leaves, own[0], namesakes[key[0]]), key[0], tuple(own)) for key, own in members.items()
    ]  # fmt: skip
    return _told_apart(groups)


def _label(run: RunView, leaves: list[dict[tuple[str, ...], Any]], index: int, namesakes: list[int]) -> str:
    """The method, and what tells this configuration from others of the same name."""
    if len(namesakes) == 1:
        return run.method
    names = sorted({name for other in namesakes for name in leaves[other]})
    odd = [name for name in names if len({repr(leaves[other].get(name)) for other in namesakes}) > 1]
    words = [f"{name[-1]} {leaves[index][name]}" for name in odd if name in leaves[index]][:MOST_WORDS]
    return f"{run.method} ({', '.join(words)})" if words else run.method


def _told_apart(groups: list[RunGroup]) -> list[RunGroup]:
    """Labels that are still the same get a number."""
    seen: dict[str, int] = {}
    result = []
    for group in groups:
        seen[group.label] = seen.get(group.label, 0) + 1
        count = seen[group.label]
        result.append(group if count == 1 else RunGroup(f"{group.label} #{count}", group.method, group.runs))
    return result


def _leaves(table: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    if path in NOT_TOLD_APART:
        return {}
    if isinstance(table, dict):
        return {k: v for name, value in table.items() for k, v in _leaves(value, (*path, str(name))).items()}
    return {path: table}
