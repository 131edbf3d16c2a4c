"""Methods as text and back: every part of a method is a frozen dataclass, and a config file can spell any combination.

A part is a table with its `kind` and its parameters, e.g. `{kind = "log", alpha = 2.0, beta = 10}`. The name of the field that
a part sits in (`growth`, `grouper`, `local`, ...) says which kinds fit there. A part of the user's own is spelled
`kind = "package.module:Class"`.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from fedgsp.client import MMD, SGD, UGA, Cosine, Decay, Distill, Dyn, Fusion, Moon, PerFedAvg, Prox, Scaffold, Steady
from fedgsp.core.errors import InputError, did_you_mean
from fedgsp.core.fields import UNSAID
from fedgsp.core.imports import import_named
from fedgsp.core.where import where_defined
from fedgsp.plan import (
    ICG,
    Balanced,
    Constant,
    Exp,
    Fixed,
    GreedyKL,
    Grouped,
    Linear,
    Log,
    Mediators,
    OneChain,
    Random,
    Singletons,
    Stratified,
    Superclients,
    Switch,
    WithPool,
)
from fedgsp.prepare import AugmentMean, AugmentZScore, FAugGAN, FAugOversample, MetaSet, PoolData, ShareData
from fedgsp.server import (
    IDA,
    Adagrad,
    Adam,
    Clustered,
    Controls,
    DynMean,
    ExP,
    Fused,
    HandOn,
    Mean,
    Meta,
    Momentum,
    Nova,
    Tables,
    Yogi,
)

KINDS: Mapping[str, Mapping[str, type]] = {
    "planner": {
        "grouped": Grouped,
        "mediators": Mediators,
        "superclients": Superclients,
        "one-chain": OneChain,
        "switch": Switch,
        "with-pool": WithPool,
    },
    "growth": {"linear": Linear, "log": Log, "exp": Exp, "constant": Constant, "singletons": Singletons},
    "grouper": {
        "random": Random,
        "icg": ICG,
        "balanced": Balanced,
        "greedy-kl": GreedyKL,
        "stratified": Stratified,
        "fixed": Fixed,
    },
    "local": {
        "sgd": SGD,
        "prox": Prox,
        "mmd": MMD,
        "fusion": Fusion,
        "scaffold": Scaffold,
        "dyn": Dyn,
        "moon": Moon,
        "uga": UGA,
        "per-fedavg": PerFedAvg,
        "distill": Distill,
    },
    "schedule": {"steady": Steady, "decay": Decay, "cosine": Cosine},
    "server": {
        "mean": Mean,
        "momentum": Momentum,
        "adagrad": Adagrad,
        "adam": Adam,
        "yogi": Yogi,
        "ida": IDA,
        "fused": Fused,
        "scaffold": Controls,
        "dyn": DynMean,
        "nova": Nova,
        "exp": ExP,
        "hand-on": HandOn,
        "clustered": Clustered,
        "distill": Tables,
        "meta": Meta,
    },
    "preparation": {
        "augment-mean": AugmentMean,
        "augment-zscore": AugmentZScore,
        "share-data": ShareData,
        "pool-data": PoolData,
        "faug-gan": FAugGAN,
        "faug-oversample": FAugOversample,
        "meta-set": MetaSet,
    },
}
UNSPELLED = ("n_groups", "random_state", "longest_chain", "bench")
"""Fields of groupers for use on their own (in a method the planner gives the first two), and what a run gives a server rule."""


def kind_of(part: Any) -> str:
    """The word a part goes by in a config file."""
    for kinds in KINDS.values():
        for word, known in kinds.items():
            if type(part) is known:
                return word
    return f"{type(part).__module__}:{type(part).__qualname__}"


def encode(part: Any, *, complete: bool = False) -> dict[str, Any]:
    """A part as plain data: its kind and every parameter, but for those of later versions that are as they always were.

    With `complete` also these.
    """
    if not is_dataclass(part):
        raise InputError(f"the part {kind_of(part)} is not a dataclass, so its parameters cannot be recorded; make it one.")
    table: dict[str, Any] = {"kind": kind_of(part)}
    hints = typing.get_type_hints(type(part))
    for field in fields(part):
        value = getattr(part, field.name)
        unsaid = not complete and field.metadata.get(UNSAID) and value == field.default
        if field.name in UNSPELLED or value is None or unsaid:
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
    hints = typing.get_type_hints(cls)
    known = {field.name: field for field in fields(cls) if field.name not in UNSPELLED}
    values: dict[str, Any] = {}
    for name, value in table.items():
        if name == "kind":
            continue
        if name not in known:
            raise InputError(f"{where} (kind '{table['kind']}') has no parameter '{name}': {did_you_mean(name, known)}")
        if name in KINDS or (isinstance(value, dict) and "kind" in value):
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


def _kinds(role: str) -> Mapping[str, type]:
    return KINDS[role] if role in KINDS else {word: cls for kinds in KINDS.values() for word, cls in kinds.items()}


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
