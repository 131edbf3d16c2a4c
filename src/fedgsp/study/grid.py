"""A grid of hyper-parameters: from texts such as `lr=0.003,0.01` to methods with those values in place."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from fedgsp.core.errors import InputError, did_you_mean
from fedgsp.core.params import hints_of
from fedgsp.method import Method
from fedgsp.methods import decode_method
from fedgsp.parts import checked
from fedgsp.run.overlay import literal

RANGE = re.compile(r"([^,]+?)\.\.([^,]+?)(,\s*log)?")
ROLES = ("local", "server", "planner", "preparation")
"""Where a bare name is looked for, in this order: `lr` is the clients', `server_lr` the server's."""


@dataclass(frozen=True)
class Range:
    """All values from `low` to `high`, for a driver that chooses among them; whole numbers if both are.

    Args:
        low: The least value.
        high: The largest.
        log: Whether orders of magnitude are alike: 0.001 to 0.01 is as wide as 0.01 to 0.1.

    Example:
        >>> Range(0.001, 0.1, log=True)
        Range(low=0.001, high=0.1, log=True)
    """

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        if not self.low < self.high or not math.isfinite(self.high - self.low) or (self.log and self.low <= 0):
            least = "above 0 " if self.log else ""
            raise InputError(f"a range goes from a number {least}to a larger one, not from {self.low} to {self.high}.")


@dataclass(frozen=True)
class Axis:
    """One hyper-parameter: how the user calls it, where it is in [method], and the values to try.

    Of a range `values` are its ends, and `within` is the range.
    """

    name: str
    path: tuple[str, ...]
    values: tuple[Any, ...]
    within: Range | None = None


@dataclass(frozen=True)
class Point:
    """One value of every axis, and the method that has them."""

    values: dict[str, Any]
    method: Method

    @property
    def label(self) -> str:
        """As the user would type it: also the name of the point's folder."""
        return ",".join(f"{name}={shown(value)}" for name, value in self.values.items()).replace("/", "-")


def shown(value: Any) -> str:
    """A value as a person writes it."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


Grid = Sequence[str] | Mapping[str, Sequence[Any] | Range]
"""NAME=VALUE,VALUE,... texts, or the values by name. A text NAME=LOW..HIGH or NAME=LOW..HIGH,log is a range."""


def parse_grid(texts: Grid, method: Method) -> tuple[Axis, ...]:
    """Read a grid of hyper-parameters.

    Args:
        texts: NAME=VALUE,VALUE,... each, such as `lr=0.003,0.01` or `planner.growth.alpha=1,2`; or the values by name.
        method: The method that has them; every value is tried out on it.

    Raises:
        InputError: A text is not of that form, the method has no such parameter, or does not take such a value.
    """
    if not texts:
        raise InputError("a grid needs at least one NAME=VALUE,VALUE,..., such as lr=0.003,0.01,0.03,0.1.")
    table, axes = method.encode(complete=True), []
    for name, values in texts.items() if isinstance(texts, Mapping) else map(_entry, texts):
        if isinstance(values, Range):
            axes.append(Axis(name, find(name, table), (values.low, values.high), values))
            continue
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise InputError(f"the grid has no list of values for '{name}', such as [0.01, 0.1].")
        axes.append(Axis(name, find(name, table), tuple(dict.fromkeys(values))))
    doubled = [axis.name for i, axis in enumerate(axes) if axis.path in {other.path for other in axes[:i]}]
    if doubled:
        raise InputError(f"the grid names '{doubled[0]}' twice.")
    for axis in axes:
        for value in axis.values:
            _with_values(method, [(axis, value)])
    return tuple(axes)


def _entry(text: str) -> tuple[str, Sequence[Any] | Range]:
    name, equals, tail = text.partition("=")
    if within := RANGE.fullmatch(tail.strip()):
        low, high = literal(within[1]), literal(within[2])
        if all(isinstance(end, int | float) for end in (low, high)) and name.strip():
            return name.strip(), Range(low, high, bool(within[3]))
    values = [literal(part.strip()) for part in tail.split(",") if part.strip()]
    if not equals or not name.strip() or not values:
        raise InputError(f"the grid entry '{text}' is not NAME=VALUE,VALUE,...")
    return name.strip(), values


def points(axes: Sequence[Axis], method: Method) -> Iterator[Point]:
    """Every combination of the axes' values, the last axis running fastest."""
    for values in product(*(axis.values for axis in axes)):
        chosen = list(zip(axes, values, strict=True))
        yield point(chosen, method)


def point(chosen: Sequence[tuple[Axis, Any]], method: Method) -> Point:
    """A method with a value in place for each of some axes."""
    return Point({axis.name: value for axis, value in chosen}, _with_values(method, chosen))


def find(name: str, table: dict[str, Any]) -> tuple[str, ...]:
    """Where `name` is in a method's table: `lr`, `server_lr`, or a path such as `planner.growth.alpha`."""
    if "." in name:
        path = tuple(name.split("."))
        at: Any = table
        for folder in path[:-1]:
            at = at.get(folder) if isinstance(at, dict) else None
        if not isinstance(at, dict):
            raise InputError(f"the method has nothing called '{name}'.")
        return path
    known: dict[str, tuple[str, ...]] = {}
    for role in ROLES:
        for path in _leaves(table.get(role, {}), (role,)):
            known.setdefault(path[-1], path)
            known.setdefault(f"{role}_{path[-1]}", path)
    if name not in known:
        raise InputError(f"the method '{table['name']}' has no parameter '{name}': {did_you_mean(name, known)}")
    return known[name]


def _leaves(table: dict[str, Any], at: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    nested = []
    for key, value in table.items():
        if isinstance(value, dict):
            nested.append((key, value))
        elif key != "kind":
            yield (*at, key)
    for key, value in nested:
        yield from _leaves(value, (*at, key))


def _with_values(method: Method, values: Sequence[tuple[Axis, Any]]) -> Method:
    if any(":" in kind for kind in _kinds(method.encode())):  # parts of the user's own may be those of a notebook
        for axis, value in values:
            method = _replaced(method, axis.path, value, axis.name)
        return method
    table = copy.deepcopy(method.encode())
    for axis, value in values:
        at: Any = table
        for folder in axis.path[:-1]:
            at = at[folder]
        at[axis.path[-1]] = value
    return decode_method(table)


def _kinds(table: dict[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _kinds(value)
        elif key == "kind":
            yield value


def _replaced(part: Any, path: Sequence[str], value: Any, name: str) -> Any:
    """A part with a value in place of its own, some parts further in."""
    if not hasattr(part, path[0]):
        raise InputError(f"the method has nothing called '{name}'.")
    if len(path) > 1:
        return replace(part, **{path[0]: _replaced(getattr(part, path[0]), path[1:], value, name)})
    hint = hints_of(type(part)).get(path[0], Any)
    return replace(part, **{path[0]: checked(value, hint, name)})
