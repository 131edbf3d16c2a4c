"""Parts as text and back: a part is a frozen dataclass, and a config file can spell any combination of them.

A part is a table with its `kind` and its parameters, e.g. `{kind = "log", alpha = 2.0, beta = 10}`. The name of the field that
a part sits in (`growth`, `grouper`, `local`, ...) says which kinds fit there. A part of the user's own is spelled
`kind = "package.module:Class"`.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import CodeType, FunctionType
from typing import Any

from fedgsp.core.errors import InputError, did_you_mean, ours, where_defined
from fedgsp.core.imports import import_named
from fedgsp.core.params import FROM_RUN, OMITTED, hints_of
from fedgsp.core.part import Part

PARTS: dict[str, tuple[str, ...]] = {
    "planner": (
        "fedgsp.plan.planner:Grouped",
        "fedgsp.plan.mediators:Mediators",
        "fedgsp.plan.superclients:Superclients",
        "fedgsp.plan.sequence:OneChain",
        "fedgsp.plan.sequence:Switch",
        "fedgsp.plan.with_pool:WithPool",
        "fedgsp.plan.hand_over:HandOver",
    ),
    "growth": (
        "fedgsp.plan.growth:Linear",
        "fedgsp.plan.growth:Log",
        "fedgsp.plan.growth:Exp",
        "fedgsp.plan.growth:Constant",
        "fedgsp.plan.growth:Singletons",
        "fedgsp.plan.growth_by_size:OfLength",
        "fedgsp.plan.growth_by_size:Proportional",
    ),
    "grouper": (
        "fedgsp.plan.groupers:Random",
        "fedgsp.plan.icg:ICG",
        "fedgsp.plan.balanced:Balanced",
        "fedgsp.plan.greedy_kl:GreedyKL",
        "fedgsp.plan.stratified:Stratified",
        "fedgsp.plan.groupers:Fixed",
    ),
    "local": (
        "fedgsp.client.rules:SGD",
        "fedgsp.client.prox:Prox",
        "fedgsp.client.mmd:MMD",
        "fedgsp.client.fusion:Fusion",
        "fedgsp.client.scaffold:Scaffold",
        "fedgsp.client.dyn:Dyn",
        "fedgsp.client.moon:Moon",
        "fedgsp.client.uga:UGA",
        "fedgsp.client.per_fedavg:PerFedAvg",
        "fedgsp.client.distill:Distill",
        "fedgsp.client.attacks:SignFlip",
        "fedgsp.client.attacks:Scaled",
        "fedgsp.client.attacks:Gaussian",
        "fedgsp.client.attacks:InnerProduct",
        "fedgsp.client.attacks:LabelFlip",
    ),
    "privacy": ("fedgsp.client.update_noise:UpdateNoise",),
    "schedule": (
        "fedgsp.client.schedule:Steady",
        "fedgsp.client.schedule:Decay",
        "fedgsp.client.schedule:Cosine",
        "fedgsp.client.schedule:Piecewise",
        "fedgsp.client.schedule:Warmup",
    ),
    "server": (
        "fedgsp.server.mean:Mean",
        "fedgsp.server.momentum:Momentum",
        "fedgsp.server.adaptive:Adagrad",
        "fedgsp.server.adaptive:Adam",
        "fedgsp.server.adaptive:Yogi",
        "fedgsp.server.ida:IDA",
        "fedgsp.server.private:Private",
        "fedgsp.server.fusion:FusionServer",
        "fedgsp.server.scaffold:ScaffoldServer",
        "fedgsp.server.dyn:DynServer",
        "fedgsp.server.nova:Nova",
        "fedgsp.server.fedexp:FedExP",
        "fedgsp.server.model_rotation:ModelRotation",
        "fedgsp.server.clustered:Clustered",
        "fedgsp.server.distillation:DistillServer",
        "fedgsp.server.meta:Meta",
        "fedgsp.server.median:Median",
        "fedgsp.server.median:TrimmedMean",
        "fedgsp.server.krum:Krum",
        "fedgsp.server.geometric_median:GeometricMedian",
        "fedgsp.server.clipping:ClippedMean",
        "fedgsp.server.clipping:CentredClipping",
        "fedgsp.server.averaged:Averaged",
        "fedgsp.server.warm_start:WarmStart",
    ),
    "preparation": (
        "fedgsp.prepare.augment:AugmentMean",
        "fedgsp.prepare.augment:AugmentZScore",
        "fedgsp.prepare.data_sharing:ShareData",
        "fedgsp.prepare.pool:PoolData",
        "fedgsp.prepare.faug:FAugGAN",
        "fedgsp.prepare.faug:FAugOversample",
        "fedgsp.prepare.meta:MetaSet",
    ),
}
"""The one list of built-in parts, by role. All else that is known of a part stands in its class (`fedgsp.core.part.Part`)."""


def kinds(role: str) -> Mapping[str, type[Part]]:
    """The built-in parts of a role, by their kinds."""
    return _imported(PARTS[role])


@cache
def _imported(entries: tuple[str, ...]) -> Mapping[str, type[Part]]:
    classes: list[type[Part]] = [import_named(entry, "cannot import the part") for entry in entries]
    return {cls.kind: cls for cls in classes}


def kind_of(part: Any) -> str:
    """The word a part goes by in a config file."""
    cls = type(part)
    if isinstance(part, Part) and any(kinds(role).get(cls.kind) is cls for role in PARTS):
        return part.kind
    return f"{cls.__module__}:{cls.__qualname__}"


def code_of(part: Any) -> list[str]:
    """The code of every class of the user's own in a part or method, so that a changed rule is not taken for the old one.

    The compiled code, since what was typed into a notebook may have no source file.
    """
    found: list[str] = []
    if is_dataclass(part) and not isinstance(part, type):
        theirs = (cls for cls in type(part).__mro__ if cls.__module__ != "builtins" and not ours(cls))
        functions = (value.__code__ for cls in theirs for value in vars(cls).values() if isinstance(value, FunctionType))
        found += [_compiled(code) for code in functions if not code.co_filename.startswith("<string>")]
        for field in fields(part):
            found += code_of(getattr(part, field.name))
    return found


def _compiled(code: CodeType) -> str:
    inside = [_compiled(const) if isinstance(const, CodeType) else repr(const) for const in code.co_consts]
    return f"{code.co_name} {code.co_code.hex()} {code.co_names} {inside}"


def encode(part: Any, *, complete: bool = False) -> dict[str, Any]:
    """A part as plain data: its kind and every parameter, but for those of later versions that are as they always were.

    With `complete` also these.
    """
    if not is_dataclass(part):
        raise InputError(f"the part {kind_of(part)} is not a dataclass, so its parameters cannot be recorded; make it one.")
    table: dict[str, Any] = {"kind": kind_of(part)}
    hints = hints_of(type(part))
    for field in fields(part):
        value = getattr(part, field.name)
        unsaid = not complete and field.metadata.get(OMITTED) and value == field.default
        if field.metadata.get(FROM_RUN) or value is None or unsaid:
            continue
        plain = (
            encode(value, complete=complete) if is_dataclass(value) else checked(value, hints.get(field.name, Any), field.name)
        )
        try:
            json.dumps(plain)
        except (TypeError, ValueError):
            raise InputError(
                f"the part {where_defined(part)}: its parameter '{field.name}' is {type(value).__name__}, which no config file "
                f"can spell; use numbers, texts, lists of these, or another part."
            ) from None
        table[field.name] = plain
    return table


def decode(role: str, table: Any, where: str) -> Any:
    """A part from plain data; `where` names the place in the config for the sentence that refuses it.

    A role that is not in the table (a field of a part of the user's own) takes a part of any kind.
    """
    if not isinstance(table, dict) or not isinstance(table.get("kind"), str):
        raise InputError(f"{where} must be a table with a kind: {', '.join(sorted(_kinds(role)))}.")
    cls = part_class(role, table["kind"], where)
    hints = hints_of(cls)
    known = {field.name: field for field in fields(cls) if not field.metadata.get(FROM_RUN)}
    values: dict[str, Any] = {}
    for name, value in table.items():
        if name == "kind":
            continue
        if name not in known:
            raise InputError(f"{where} (kind '{table['kind']}') has no parameter '{name}': {did_you_mean(name, known)}")
        if name in PARTS or (isinstance(value, dict) and "kind" in value):
            values[name] = decode(name, value, f"{where}.{name}")
        else:
            values[name] = checked(value, hints.get(name, Any), f"{where}.{name}")
    missing = [
        n for n, f in known.items() if n not in values and f.default is MISSING and f.default_factory is MISSING
    ]  # fmt: skip
    if missing:
        raise InputError(f"{where} (kind '{table['kind']}') needs a value for '{missing[0]}'.")
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:  # the checks of a user's own part
        raise InputError(f"{where} (kind '{table['kind']}') cannot be made: {error}.") from error


def _kinds(role: str) -> Mapping[str, type[Part]]:
    roles = (role,) if role in PARTS else tuple(PARTS)
    return {kind: cls for each in roles for kind, cls in kinds(each).items()}


def part_class(role: str, kind: str, where: str) -> type:
    """The class that a kind stands for in a role, ours or the user's own."""
    if ":" not in kind:
        if kind not in _kinds(role):
            raise InputError(f"{where}: unknown kind '{kind}': {did_you_mean(kind, _kinds(role))}")
        return _kinds(role)[kind]
    module, _, attribute = kind.partition(":")
    if module == "__main__" or "<locals>" in attribute:
        raise InputError(
            f"{where}: '{kind}' was defined in a script or notebook and cannot be found from here; "
            f"pass the method in Python: fedgsp.resume(directory, method=...)."
        )
    found = import_named(kind, f"{where}: cannot import")
    if not (isinstance(found, type) and is_dataclass(found)):
        raise InputError(f"{where}: '{kind}' is not a dataclass, so its parameters cannot be read.")
    return found


def checked(value: Any, hint: Any, where: str) -> Any:
    """A plain value that fits a field's type; whole numbers pass for real ones, nothing else is bent."""
    options = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        if value not in options:
            raise InputError(f"{where} must be one of {', '.join(map(repr, options))}, not {value!r}.")
        return value
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, (list, tuple)):  # TOML has lists only
            raise InputError(f"{where} must be a list, not {value!r}.")
        hints = options[:1] * len(value) if options[-1:] == (...,) else options
        if len(hints) != len(value):
            raise InputError(f"{where} must have {len(hints)} values, not {len(value)}.")
        return tuple(checked(item, of, f"{where}[{i}]") for i, (item, of) in enumerate(zip(value, hints, strict=True)))
    wanted = [o for o in (options or (hint,)) if o in (int, float, str, bool)]
    if not wanted:
        return value
    if isinstance(value, bool):
        fits = bool in wanted
    elif isinstance(value, int):
        fits = int in wanted or float in wanted
        value = float(value) if fits and int not in wanted else value
    else:
        fits = type(value) in wanted
    if not fits:
        names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
        raise InputError(f"{where} must be {' or '.join(names[w] for w in wanted)}, not {value!r}.")
    return value
