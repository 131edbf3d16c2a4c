"""The door that every part of a method comes in by: has it what will be asked of it?

What parts give when they are asked is tried on the run's own data, in `run/trial.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_args

from fedgsp.client import SGD
from fedgsp.core.errors import InputError
from fedgsp.core.state import Yields
from fedgsp.core.where import ours, where_defined
from fedgsp.plan import Mediators

PLAIN = (str, bytes, int, float, tuple, list, dict, type(None))


@dataclass(frozen=True)
class Form:
    """What a role asks of a part: the word for it, the methods it must have, and where to have them from."""

    word: str
    members: tuple[str, ...]
    base: str


FORMS = {
    "planner": Form("planner", ("plan", "schedule"), "write both, as fedgsp.plan.Planner says"),
    "growth": Form("growth function", ("wanted", "groups"), "write both, as fedgsp.plan.Growth says"),
    "grouper": Form("grouper", ("assign", "drawn_in", "shape"), "derive it from fedgsp.plan.GroupEstimator"),
    "filler": Form("grouper", ("fill",), "use GreedyKL or Random, or write it"),
    "local": Form("local rule", (), "derive it from fedgsp.client.SGD"),
    "schedule": Form("schedule of learning rates", ("factor",), "use Steady, Decay or Cosine, or write it"),
    "server": Form(
        "server rule", ("init", "start", "route", "views", "wants"), "derive it from fedgsp.server.ServerRule, Mean or Combine"
    ),
    "preparation": Form("preparation", ("prepare",), "write it, as fedgsp.prepare.Preparation says"),
}
ROLES = {**{role: role for role in FORMS}, "first": "planner", "then": "planner"}
"""The role of a part that stands in a field of that name of another part."""


def check_part(role: str, part: Any) -> None:
    """Refuse a part that is a class or lacks a method, and those inside it likewise."""
    form = FORMS[role]
    if isinstance(part, type):
        raise InputError(
            f"the {form.word} is the class {where_defined(part)} itself; make one of it: {part.__name__}(...), with its "
            f"parameters between the brackets."
        )
    named = repr(part) if isinstance(part, PLAIN) else where_defined(part)
    if role == "local" and not isinstance(part, SGD):
        raise InputError(f"{named} cannot be the local rule, which is called by the hooks of SGD; {form.base}.")
    missing = [name for name in form.members if not callable(getattr(part, name, None))]
    if missing:
        raise InputError(f"the {form.word} {named} has no method '{missing[0]}'; {form.base}.")
    for name, inside in _inside(part):
        inner = "filler" if isinstance(part, Mediators) and name == "grouper" else ROLES.get(name)
        if inner is not None and (ours(part) or not isinstance(inside, PLAIN)):
            check_part(inner, inside)
        elif isinstance(inside, type) and is_dataclass(inside):
            raise InputError(
                f"{named}: {name} is the class {where_defined(inside)} itself; make one of it: {name}={inside.__name__}(...)."
            )
    if role == "server":
        _check_words(part, named)
    if role in ("server", "local"):
        _check_metrics(form.word, part, named, "wants" if role == "server" else "reports")


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


def _check_metrics(word: str, rule: Any, named: str, method: str) -> None:
    names = getattr(rule, method)()
    if not isinstance(names, set | frozenset) or not all(isinstance(name, str) for name in names):
        raise InputError(f"the {word} {named}: '{method}' gave {names!r}; it gives a frozenset of the names of metrics.")


def _check_words(rule: Any, named: str) -> None:
    for name, words in (("needs", ("sum", "all")), ("yields", get_args(Yields))):
        said = getattr(rule, name, None)
        if said not in words:
            raise InputError(f"the server rule {named}: {name} must be one of {', '.join(map(repr, words))}, not {said!r}.")
