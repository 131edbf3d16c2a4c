"""The door that every part of a method comes in by: is it a part of its kind, made with its parameters?

What parts give when they are asked is tried on the run's own data, in `run/part_checks.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, get_args

from fedgsp.client.rules import SGD
from fedgsp.client.schedule import LearningRateSchedule
from fedgsp.core.errors import InputError, ours, where_defined
from fedgsp.core.state import Yields
from fedgsp.plan.groupers import Grouper
from fedgsp.plan.growth import Growth
from fedgsp.plan.planner import Planner
from fedgsp.prepare.preparation import Preparation
from fedgsp.server.rule import ServerRule

PLAIN = (str, bytes, int, float, tuple, list, dict, type(None))


FORMS: Mapping[str, tuple[str, type, str]] = {
    "planner": ("planner", Planner, "fedgsp.plan.Planner"),
    "growth": ("growth function", Growth, "fedgsp.plan.Growth"),
    "grouper": ("grouper", Grouper, "fedgsp.plan.Grouper"),
    "local": ("local rule", SGD, "fedgsp.client.SGD"),
    "schedule": ("schedule of learning rates", LearningRateSchedule, "fedgsp.client.LearningRateSchedule"),
    "server": ("server rule", ServerRule, "fedgsp.server.ServerRule, Mean or Combine"),
    "preparation": ("preparation", Preparation, "fedgsp.prepare.Preparation"),
}
"""The word for a role, and the base class of its parts."""
ROLES = {**{role: role for role in FORMS}, "first": "planner", "then": "planner"}
"""The role of a part that stands in a field of that name of another part."""


def check_part(role: str, part: Any) -> None:
    """Refuse a part that is a class or not of its role's base class, and those inside it likewise."""
    word, base, name_of_base = FORMS[role]
    if isinstance(part, type):
        raise InputError(
            f"the {word} is the class {where_defined(part)} itself; make one of it: {part.__name__}(...), with its "
            f"parameters between the brackets."
        )
    named = repr(part) if isinstance(part, PLAIN) else where_defined(part)
    if not isinstance(part, base):
        raise InputError(f"{named} cannot be the {word}: its class must be derived from {name_of_base}.")
    for name, inside in _inside(part):
        inner = ROLES.get(name)
        if inner is not None and (ours(part) or not isinstance(inside, PLAIN)):
            check_part(inner, inside)
        elif isinstance(inside, type) and is_dataclass(inside):
            raise InputError(
                f"{named}: {name} is the class {where_defined(inside)} itself; make one of it: {name}={inside.__name__}(...)."
            )
    if isinstance(part, ServerRule):
        _check_words(part, named)
    if isinstance(part, ServerRule | SGD):
        _check_metrics(word, part, named)


def parts_of(part: Any) -> Iterator[Any]:
    """A part and those inside it."""
    yield part
    for _, inside in _inside(part):
        if is_dataclass(inside) and not isinstance(inside, type):
            yield from parts_of(inside)


def theirs(part: Any) -> bool:
    """Whether a part, or one inside it, is not ours."""
    return not all(ours(one) for one in parts_of(part))


def full_name(part: Any) -> str:
    """A part's name and place, and for one of ours those of the foreign parts inside it: `Grouped with Mine (rules.py:3)`."""
    inside = [where_defined(one) for one in parts_of(part) if one is not part and not ours(one)] if ours(part) else []
    return f"{where_defined(part)} with {' and '.join(inside)}" if inside else where_defined(part)


def _inside(part: Any) -> list[tuple[str, Any]]:
    """(name, value) of the fields of a part."""
    return [(field.name, getattr(part, field.name, None)) for field in fields(part)] if is_dataclass(part) else []


def _check_metrics(word: str, rule: ServerRule | SGD, named: str) -> None:
    names, method = (rule.reports(), "reports") if isinstance(rule, SGD) else (rule.wants(), "wants")
    if not isinstance(names, set | frozenset) or not all(isinstance(name, str) for name in names):
        raise InputError(f"the {word} {named}: '{method}' gave {names!r}; it gives a frozenset of the names of metrics.")


def _check_words(rule: ServerRule, named: str) -> None:
    for name, said, words in (("needs", rule.needs, ("sum", "all")), ("yields", rule.yields, get_args(Yields))):
        if said not in words:
            raise InputError(f"the server rule {named}: {name} must be one of {', '.join(map(repr, words))}, not {said!r}.")
