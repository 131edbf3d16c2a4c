"""What growth functions and groupers give, checked wherever a plan is made of it: each may be the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.errors import InputError, where_defined

if TYPE_CHECKING:
    from fedgsp.plan.groupers import GroupShape


def whole(value: object, least: int, most: int | None = None) -> bool:
    """Whether it is a whole number from `least` to `most`."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        return False
    return int(value) >= least and (most is None or int(value) <= most)


def checked_groups(growth: object, groups: object, round_: int, clients: int) -> int:
    """The number of groups that a growth function says: a whole number from 1 to the number of clients."""
    if not whole(groups, 1, clients):
        raise InputError(
            f"the growth function {where_defined(growth)} says {groups!r} groups in round {round_}; 'groups' gives a whole "
            f"number from 1 to the number of clients, here {clients}."
        )
    return int(groups)  # type: ignore[call-overload, no-any-return]


def checked_wanted(growth: object, wanted: object, round_: int, groups: int) -> int:
    """What the formula itself says, for those who look at the schedule; None is the number of groups."""
    if wanted is None:
        return groups
    if not whole(wanted, 1):
        raise InputError(
            f"the growth function {where_defined(growth)} wants {wanted!r} groups in round {round_}; 'wanted' gives a whole "
            f"number of at least 1, or None for a group a client."
        )
    return int(wanted)  # type: ignore[call-overload, no-any-return]


def checked_drawn_in(grouper: object, drawn_in: object, round_: int) -> int:
    """The round whose random numbers form the groups of `round_`: that one or an earlier one."""
    if not whole(drawn_in, 1, round_):
        raise InputError(
            f"the grouper {where_defined(grouper)} draws the groups of round {round_} in round {drawn_in!r}; 'drawn_in' gives "
            f"the round itself, or an earlier one whose groups are kept."
        )
    return int(drawn_in)  # type: ignore[call-overload, no-any-return]


def checked_shape(grouper: object, shape: GroupShape, clients: int, groups: int) -> GroupShape:
    """The sizes that a grouper foretells."""
    names = ("shortest", "longest", "grouped")
    sizes = [getattr(shape, name, None) for name in names]
    if not all(whole(size, 1, clients) for size in sizes) or shape.shortest > shape.longest:
        told = ", ".join(f"{name} {size!r}" for name, size in zip(names, sizes, strict=True))
        raise InputError(
            f"the grouper {where_defined(grouper)} foretells groups that cannot be ({told}) for {clients} clients in {groups} "
            f"groups; 'shape' gives a GroupShape of whole numbers from 1 to the number of clients."
        )
    return shape


def checked_labels(grouper: object, labels: Any, clients: int, groups: int) -> NDArray[np.int64]:
    """Labels (K,): whole numbers from -1 (nobody's) to `groups` - 1, and somebody in some group."""
    array, who = _labels(grouper, "assign", labels, clients), f"the grouper {where_defined(grouper)}"
    if array.min() < -1 or array.max() >= groups:
        odd = int(array.min() if array.min() < -1 else array.max())
        raise InputError(f"{who} gave the label {odd} for {groups} groups; labels are 0 to {groups - 1}, or -1 for nobody's.")
    if array.max() < 0:
        raise InputError(f"{who} put none of the {clients} clients into a group, so nobody would train.")
    return array


def checked_fill(grouper: object, labels: Any, sizes: Sequence[int]) -> NDArray[np.int64]:
    """Labels (K,) of groups of just these sizes."""
    array, who = _labels(grouper, "fill", labels, sum(sizes)), f"the grouper {where_defined(grouper)}"
    fits = array.min() >= 0 and array.max() < len(sizes)
    if not fits or np.bincount(array, minlength=len(sizes)).tolist() != list(sizes):
        raise InputError(f"{who}: 'fill' did not make groups of the sizes that were asked for.")
    return array


def _labels(grouper: object, method: str, labels: Any, clients: int) -> NDArray[np.int64]:
    who = f"the grouper {where_defined(grouper)}: '{method}'"
    try:
        array = np.asarray(labels)
    except ValueError:
        raise InputError(f"{who} gave no list of labels, one for each client.") from None
    if array.shape != (clients,):
        raise InputError(f"{who} gave labels of shape {array.shape} for {clients} clients; it gives one for each client.")
    if array.dtype.kind not in "iu":
        raise InputError(f"{who} gave labels of type {array.dtype}; they are whole numbers, and -1 for a client in no group.")
    return array.astype(np.int64, copy=False)
