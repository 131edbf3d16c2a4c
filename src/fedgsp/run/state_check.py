"""Whether the state in a checkpoint is one that its run can have: checked before a server rule is handed it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedgsp.core.errors import InputError

if TYPE_CHECKING:
    from fedgsp.core.state import ServerState
    from fedgsp.core.tensors import Tensors


def check_state(path: Path, found: ServerState, begun: ServerState) -> None:
    """Refuse a state whose models, slots or facts are of other shapes and types than the run begins with.

    Args:
        path: The run directory, for the sentence.
        found: The checkpoint's.
        begun: The state before round 1. What it has not got yet may look like anything.

    Raises:
        InputError: It does not fit.
    """
    like = next(iter(begun.models.values()), None)
    wrong = [f"the model '{name}'" for name, model in found.models.items() if like is not None and not _alike(model, like)]
    if begun.models and not found.models:
        wrong.append("its models")
    for name, tensors in begun.slots.items():
        if name not in found.slots or not _agree(found.slots[name], tensors):
            wrong.append(f"what the server keeps as '{name}'")
    if not _agree(found.shared, begun.shared):
        wrong.append("what is sent along")
    wrong += [f"'{name}'" for name, value in begun.extra.items() if not _same_kind(found.extra.get(name), value)]
    if wrong:
        raise InputError(f"the checkpoint in {path} is not of this run: {wrong[0]} is not what it should be.")


def _alike(one: Tensors, other: Tensors) -> bool:
    """Whether two models have the same tensors, by name, shape and type."""
    return one.keys() == other.keys() and _agree(one, other)


def _agree(one: Tensors, other: Tensors) -> bool:
    """Whether tensors that both have are of the same shape and type."""
    return all(one[name].shape == t.shape and one[name].dtype == t.dtype for name, t in other.items() if name in one)


def _same_kind(one: Any, other: Any) -> bool:
    """Whether two plain values are of the same kind: both tables, both lists, both texts, or both numbers."""
    if isinstance(other, dict):
        return isinstance(one, dict) and all(_same_kind(one[name], value) for name, value in other.items() if name in one)
    if isinstance(other, bool) or not isinstance(other, (int, float)):
        return isinstance(one, type(other))
    return isinstance(one, (int, float)) and not isinstance(one, bool)
