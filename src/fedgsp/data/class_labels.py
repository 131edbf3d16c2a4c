"""Labels as people have them, made the numbers 0..n-1: texts, truth values, numbers that begin elsewhere than at 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.errors import InputError

MOST_TOLD = 5
"""Names of classes that a note lists, at most."""


@dataclass(frozen=True)
class NumberedLabels:
    """Labels as numbers, what the classes are called (nothing where their numbers are their names), and what was done."""

    labels: NDArray[Any]
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def numbered(values: NDArray[Any], classes: int | None, where: str) -> NumberedLabels:
    """Labels as classes 0..n-1, where they are not so already.

    Texts and truth values get numbers in sorted order. So do whole numbers that do not begin at 0, unless the number of classes
    is given: then they are taken at their word.

    Args:
        values: The labels.
        classes: How many classes there are, if that was said.
        where: What the labels are called in errors.

    Returns:
        The labels, names and notes.

    Raises:
        InputError: If texts are mixed with other things.
    """
    if values.dtype.kind in "OUST":
        texts = values.tolist()
        if all(isinstance(one, bool) for one in texts):
            return numbered(values.astype(np.bool_), classes, where)
        if not all(isinstance(one, str) for one in texts):
            raise InputError(f"{where} mixes texts with other things, or misses some.")
        found, codes = np.unique(np.array(texts, dtype=np.str_), return_inverse=True)
        return _told(codes.astype(np.int64).reshape(values.shape), found.tolist())
    if values.dtype.kind == "b":
        return NumberedLabels(values.astype(np.int64), ("False", "True"))
    if values.dtype.kind not in "iu" or classes is not None or values.ndim != 1 or not len(values):
        return NumberedLabels(values)
    found, codes = np.unique(values, return_inverse=True)
    if found[0] == 0:
        return NumberedLabels(values, (), _gaps(len(found), int(found[-1]) + 1))
    return _told(codes.astype(np.int64), [str(number) for number in found.tolist()])


def _gaps(there: int, classes: int) -> tuple[str, ...]:
    """A note where most numbers up to the largest are no label at all."""
    if there * 2 >= classes:
        return ()
    return (f"labels go up to {classes - 1}, so there are {classes} classes, and {classes - there} of them have no sample.",)


def _told(codes: NDArray[np.int64], names: list[str]) -> NumberedLabels:
    shown = ", ".join(f"{name} is {number}" for number, name in enumerate(names[:MOST_TOLD]))
    more = f", and so on up to {names[-1]}" if len(names) > MOST_TOLD else ""
    return NumberedLabels(codes, tuple(names), (f"labels were numbered from 0 on: {shown}{more}.",))
