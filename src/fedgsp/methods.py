"""The table of named methods: a row each, a combination of parts that a reader of the paper recognises at a glance.

A name may also spell a combination: a row, then parts put in place of its own, as in `fedgsp+yogi` or `fedgsp+prox+adam`. A
config file can combine anything, part by part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from fedgsp.client import MMD, SGD, UGA, Distill, Dyn, Fusion, Moon, PerFedAvg, Prox, Scaffold
from fedgsp.core.errors import InputError, did_you_mean
from fedgsp.method import ROLES, Method
from fedgsp.parts import decode
from fedgsp.plan import (
    ICG,
    Balanced,
    Constant,
    Fixed,
    GreedyKL,
    Grouped,
    Log,
    Mediators,
    OneChain,
    Random,
    Singletons,
    Superclients,
    Switch,
    WithPool,
)
from fedgsp.prepare import AugmentMean, AugmentZScore, FAugGAN, FAugOversample, MetaSet, PoolData, Preparation, ShareData
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
    ServerRule,
    Tables,
    Yogi,
)


@dataclass(frozen=True)
class Row:
    """One row of the table: what it is in a sentence, and how it is put together."""

    summary: str
    make: Callable[[], Method]


def _local(kind: type[SGD], **parameters: Any) -> Callable[[Method], Method]:
    """Put a local rule in place of plain SGD, with the same learning rate, batches and epochs."""

    def put(method: Method) -> Method:
        common = {field.name: getattr(method.local, field.name) for field in fields(SGD)}
        return replace(method, local=kind(**{**common, **parameters}))

    return put


def _server(make: Callable[[], ServerRule]) -> Callable[[Method], Method]:
    return lambda method: replace(method, server=make())


def _fusion(operator: str) -> Callable[[Method], Method]:
    """FedFusion is a local rule and, around whatever the server does, its other half."""
    local = _local(Fusion, operator=operator)
    return lambda method: replace(local(method), server=Fused(method.server))


def _intrac(variant: Any) -> Callable[[Method], Method]:
    """INTRAC needs clients that report their training accuracy."""
    return lambda method: replace(method, local=replace(method.local, report_accuracy=True), server=IDA(variant))


def _halves(local: type[SGD], server: Callable[[ServerRule], ServerRule]) -> Callable[[Method], Method]:
    """A local rule and the server rule that is its other half; the latter may go around the method's own."""
    put = _local(local)
    return lambda method: replace(put(method), server=server(method.server))


def _meta(method: Method) -> Method:
    """Meta steps on the server, around whatever it does, on samples that a preparation brings there."""
    return replace(method, server=Meta(method.server), preparation=MetaSet())


def _nova(method: Method) -> Method:
    """FedNova needs clients that report their steps."""
    return replace(method, local=replace(method.local, report_steps=True), server=Nova())


@dataclass(frozen=True)
class Word:
    """A part that a name may put in place of a row's own, the role it takes, and others it takes as well."""

    role: str
    put: Callable[[Method], Method]
    also: tuple[str, ...] = ()


WORDS: Mapping[str, Word] = {
    "adagrad": Word("server", _server(Adagrad)),
    "adam": Word("server", _server(Adam)),
    "yogi": Word("server", _server(Yogi)),
    "momentum": Word("server", _server(Momentum)),
    "ida": Word("server", _server(IDA)),
    "ida-fedavg": Word("server", _server(lambda: IDA("ida_fedavg"))),
    "ida-intrac": Word("server", _intrac("ida_intrac")),
    "ida-intrac-fedavg": Word("server", _intrac("ida_intrac_fedavg")),
    "hand-on": Word("server", _server(HandOn)),
    "prox": Word("local", _local(Prox)),
    "mmd": Word("local", _local(MMD)),
    "fusion": Word("local", _fusion("conv")),
    "fusion-multi": Word("local", _fusion("multi")),
    "fusion-single": Word("local", _fusion("single")),
    "nova": Word("server", _nova),
    "exp": Word("server", _server(ExP)),
    "scaffold": Word("local", _halves(Scaffold, Controls)),
    "dyn": Word("local", _halves(Dyn, lambda _: DynMean()), also=("server",)),
    "moon": Word("local", _local(Moon)),
    "uga": Word("local", _local(UGA)),
    "meta": Word("preparation", _meta),
    "per-fedavg": Word("local", _local(PerFedAvg)),
}
ORDER = ("server", "local", "preparation")
"""Words are put in place in this order, whatever theirs in the name: fusion's server half goes around the server rule."""


def _fedavg() -> Method:
    return Method(Grouped(Singletons(), Random(), kappa=0.3), SGD(), Mean())


def _with(word: str) -> Callable[[], Method]:
    """FedAvg with one part replaced."""
    return lambda: WORDS[word].put(_fedavg())


def _astraea(preparation: Preparation) -> Method:
    return Method(Mediators(kappa=0.3, gamma=10, passes=2, grouper=GreedyKL()), SGD(), Mean(), preparation=preparation)


METHODS: Mapping[str, Row] = {
    "fedavg": Row("every sampled client trains alone, the models are averaged", _fedavg),
    "fedprox": Row("fedavg with a pull towards the model that was handed over", _with("prox")),
    "fedmmd": Row("fedavg that keeps a client's outputs like those of the frozen global model", _with("mmd")),
    "fedfusion": Row("fedavg that fuses local with frozen global features by a 1x1 convolution", _with("fusion")),
    "fedfusion-multi": Row("fedfusion with one weight a channel", _with("fusion-multi")),
    "fedfusion-single": Row("fedfusion with one weight", _with("fusion-single")),
    "ida": Row("fedavg that weighs models by their inverse distance to the average", _with("ida")),
    "ida-fedavg": Row("ida times the samples", _with("ida-fedavg")),
    "ida-intrac": Row("ida times the inverse training accuracy", _with("ida-intrac")),
    "ida-intrac-fedavg": Row("ida times the inverse training accuracy times the samples", _with("ida-intrac-fedavg")),
    "fedadagrad": Row("fedavg with Adagrad on the server", _with("adagrad")),
    "fedadam": Row("fedavg with Adam on the server", _with("adam")),
    "fedyogi": Row("fedavg with Yogi on the server", _with("yogi")),
    "fedavgm": Row("fedavg with momentum on the server", _with("momentum")),
    "scaffold": Row("fedavg whose steps are corrected by control variates that clients and server keep", _with("scaffold")),
    "fednova": Row("fedavg that averages updates per step, so that many steps do not pull harder", _with("nova")),
    "fedexp": Row("fedavg with a server step that grows with the clients' disagreement", _with("exp")),
    "feddyn": Row("fedavg with a regulariser that every client adapts round by round", _with("dyn")),
    "fedmeta-uga": Row(
        "fedavg of unbiased gradients, with a meta step on a small set that the server holds",
        lambda: _meta(WORDS["uga"].put(_fedavg())),
    ),
    "per-fedavg": Row("a common start that clients make their own by a step or two; judged after these", _with("per-fedavg")),
    "moon": Row("fedavg that draws features to the global model's, away from the client's own last ones", _with("moon")),
    "astraea": Row(
        "rare classes augmented (ICCD 2019), sampled clients in mediators by greedy KL, each walked twice",
        lambda: _astraea(AugmentMean()),
    ),
    "astraea-zscore": Row("astraea with the augmentation by z-score (TPDS 2021)", lambda: _astraea(AugmentZScore())),
    "naive-gsp": Row(
        "clients in a fixed number of random groups, formed once; in a group they train in sequence",
        lambda: Method(Grouped(Constant(10), Fixed(Random()), kappa=0.3), SGD(), Mean()),
    ),
    "naive-gsp-icg": Row(
        "naive-gsp with groups formed once by inter-cluster grouping (ICG)",
        lambda: Method(Grouped(Constant(10), Fixed(ICG()), kappa=0.3), SGD(), Mean()),
    ),
    "fedgsp": Row(
        "ICG anew every round into a growing number of groups: from sequential to parallel (STP)",
        lambda: Method(Grouped(Log(2, 10), ICG(), kappa=0.3), SGD(), Mean()),
    ),
    "fedgsp-balanced": Row(
        "fedgsp with groups balanced by exchange in place of ICG: more alike, and nobody left out",
        lambda: Method(Grouped(Log(2, 10), Balanced(), kappa=0.3), SGD(), Mean()),
    ),
    "stp-random": Row(
        "fedgsp with random groups: STP without ICG", lambda: Method(Grouped(Log(2, 10), Random(), kappa=0.3), SGD(), Mean())
    ),
    "stp-kl": Row(
        "fedgsp with Astraea's greedy KL groups", lambda: Method(Grouped(Log(2, 10), GreedyKL(), kappa=0.3), SGD(), Mean())
    ),
    "fedseq": Row(
        "clients in superclients of unlike ones, formed once; in a superclient they train in sequence",
        lambda: Method(Superclients(), SGD(), Mean()),
    ),
    "fedseq-inter": Row(
        "fedseq whose superclients hand their models on from round to round, averaged every 10",
        lambda: Method(Superclients(), SGD(), HandOn()),
    ),
    "cwt": Row(
        "cyclic weight transfer: one model visits all clients in a fixed order, nothing is averaged",
        lambda: Method(OneChain(kappa=1.0, order="fixed"), SGD(), Mean()),
    ),
    "cyclic-fl": Row(
        "sampled clients train in one sequence for the first 10 rounds, then fedavg",
        lambda: Method(Switch(OneChain(kappa=0.3), _fedavg().planner, rounds=10), SGD(), Mean()),
    ),
    "feddc": Row(
        "daisy chaining: every client's model goes on to another client each round, averaged every 10 rounds",
        lambda: Method(Grouped(Singletons(), Random(), kappa=1.0), SGD(), HandOn("uniform", judge="own")),
    ),
    "data-sharing": Row(
        "fedavg whose clients all hold a share of a class-uniform set, on which the model was warmed up",
        lambda: replace(_fedavg(), preparation=ShareData()),
    ),
    "hybrid-fl": Row(
        "fedavg with a server that trains, like one more client, on data that a few clients uploaded",
        lambda: replace(_fedavg(), planner=WithPool(_fedavg().planner), preparation=PoolData()),
    ),
    "faug": Row(
        "fedavg whose clients fill up the labels they lack from a GAN that the server trained on seed samples",
        lambda: replace(_fedavg(), preparation=FAugGAN()),
    ),
    "faug-oversample": Row(
        "faug with affine copies of the seed samples in place of the GAN",
        lambda: replace(_fedavg(), preparation=FAugOversample()),
    ),
    "fd": Row(
        "federated distillation: clients keep their models and exchange mean logits of each label",
        lambda: Method(Grouped(Singletons(), Random(), kappa=1.0), Distill(), Tables()),
    ),
    "cfl": Row(
        "clustered FL: clients whose updates point apart are split into clusters with models of their own",
        lambda: Method(Grouped(Singletons(), Random(), kappa=1.0), SGD(), Clustered()),
    ),
}


def named(name: str) -> Method:
    """The method of that name with the paper's parameters: a row of the table, or a row with parts put in place."""
    base, *words = name.split("+")
    if base not in METHODS:
        raise InputError(f"unknown method '{name}': {did_you_mean(base, METHODS)}")
    method = METHODS[base].make()
    plain = {
        "local": type(method.local) is SGD,
        "server": type(method.server) is Mean,
        "preparation": method.preparation is None,
    }
    for word in words:
        if word not in WORDS:
            raise InputError(f"unknown part '{word}' in the method '{name}': {did_you_mean(word, WORDS)}")
        for role in (WORDS[word].role, *WORDS[word].also):
            if not plain[role]:
                what = "preparations" if role == "preparation" else f"{role} rules"
                raise InputError(
                    f"the method '{name}' has two {what}; put '{word}' on a method whose own is plain, such as fedgsp."
                )
            plain[role] = False
    for word in sorted(words, key=lambda w: ORDER.index(WORDS[w].role)):
        method = WORDS[word].put(method)
    return replace(method, name=name)


def decode_method(table: Any, where: str = "method") -> Method:
    """From a config file: a known name, whose parts may be replaced one by one, or all parts spelled out."""
    if not isinstance(table, dict):
        raise InputError(f"[{where}] must be a table.")
    entries = ("name", *ROLES, "preparation")
    unknown = sorted(table.keys() - set(entries))
    if unknown:
        raise InputError(f"[{where}] has no entry '{unknown[0]}': {did_you_mean(unknown[0], entries)}")
    name = table.get("name", "custom")
    if not isinstance(name, str):
        raise InputError(f"[{where}] name must be a text, not {name!r}.")
    parts = {role: decode(role, table[role], f"{where}.{role}") for role in (*ROLES, "preparation") if role in table}
    if all(role in parts for role in ROLES):
        return Method(name=name, **parts)
    if "name" not in table or name == "custom":
        raise InputError(f"[{where}] needs a name, or all of planner, local and server.")
    return replace(named(name), **parts)
