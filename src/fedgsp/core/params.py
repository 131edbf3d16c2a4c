"""Parameters: checked where they are made, with a sentence for the person who wrote them; and how they are written down."""

from __future__ import annotations

import math
import typing
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from weakref import WeakKeyDictionary

from fedgsp.core.errors import InputError, did_you_mean

OMITTED = "omitted"
OMIT_DEFAULT: Mapping[str, bool] = {OMITTED: True}
"""The metadata of a field that came later, `dataclasses.field(default=..., metadata=OMIT_DEFAULT)`: its default is not written,
so that a run which does not use it has the text, and with it the digest, that it had before the field existed."""


FROM_RUN = "from run"
GIVEN_BY_RUN: Mapping[str, bool] = {FROM_RUN: True}
"""The metadata of a field that no config file spells: a run gives it its value."""


def require_real(where: str, name: str, value: object) -> float:
    """`value` if it is a finite number, else an InputError."""
    if not isinstance(value, Real) or isinstance(value, bool) or not math.isfinite(value):
        raise InputError(f"{where}: {name} must be a finite number, not {value!r}.")
    return float(value)


def require_whole(where: str, name: str, value: object, at_least: int) -> None:
    """Raise an InputError unless `value` is a whole number of at least `at_least`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < at_least:
        raise InputError(f"{where}: {name} must be a whole number of at least {at_least}, not {value!r}.")


def require_choice(where: str, name: str, value: object, choices: Iterable[str]) -> None:
    """Raise an InputError unless `value` is one of `choices`."""
    known = tuple(choices)
    if value not in known:
        raise InputError(f"{where}: {name} cannot be {value!r}; {did_you_mean(str(value), known)}")


_HINTS: WeakKeyDictionary[type, dict[str, typing.Any]] = WeakKeyDictionary()


def hints_of(cls: type) -> dict[str, typing.Any]:
    """The types of a class's fields, read once: it takes longer than all else that is done with a part."""
    if cls not in _HINTS:
        _HINTS[cls] = typing.get_type_hints(cls)
    return _HINTS[cls]
