"""The table of named methods: a row each, a combination of parts that a reader of the paper recognises at a glance.

A name may also spell a combination: a row, then parts put in place of its own, as in `fedgsp+yogi` or `fedgsp+prox+adam`. A
config file can combine anything, part by part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from fedgsp.client.distill import Distill
from fedgsp.client.rules import SGD
from fedgsp.client.schedule import Decay
from fedgsp.core.errors import InputError, did_you_mean
from fedgsp.core.tables import html_table
from fedgsp.method import ROLES, Method
from fedgsp.parts import decode, kinds
from fedgsp.plan import (
    ICG,
    Balanced,
    Constant,
    Fixed,
    GreedyKL,
    Grouped,
    Log,
    Mediators,
    OfLength,
    OneChain,
    Random,
    Singletons,
    Superclients,
    Switch,
    WithPool,
)
from fedgsp.prepare import AugmentMean, AugmentZScore, FAugGAN, FAugOversample, PoolData, Preparation, ShareData
from fedgsp.server import (
    Adam,
    Averaged,
    Clustered,
    DistillServer,
    FedExP,
    Mean,
    ModelRotation,
    ServerRule,
    WarmStart,
    Wrapper,
)


@dataclass(frozen=True)
class Row:
    """One row of the table: what it is in a sentence, and how it is put together."""

    summary: str
    make: Callable[[], Method]


Put = Callable[[Method], Method]


@dataclass(frozen=True)
class Word:
    """A part that a name may put in place of a row's own, and the roles whose place it takes."""

    roles: tuple[str, ...]
    put: Put
    place: str = ""


def words() -> dict[str, Word]:
    """The words that a method's name may have after a plus sign: kinds of local and server rules, and their variants.

    A server rule that comes with a local one (FedFusion's, SCAFFOLD's) has no word of its own.
    """
    found: dict[str, Word] = {}
    for cls in kinds("server").values():
        found |= _variants(cls, _server_word)
    for cls in kinds("local").values():
        found |= _variants(cls, _local_word)
        if _companion(cls) != cls.kind:
            found.pop(_companion(cls), None)
    return {word: put for word, put in found.items() if word not in (SGD.kind, Mean.kind)}


def _variants(cls: type[Any], make: Callable[..., Word]) -> dict[str, Word]:
    named = {f"{cls.kind}-{variant}": make(cls, **parameters) for variant, parameters in cls.variants.items()}
    return {cls.kind: make(cls), **named}


def _companion(cls: Any) -> str:
    return str(cls.companion_server or cls.requires_server)


def _local_word(cls: type[SGD], **parameters: Any) -> Word:
    """In place of plain SGD, with the same learning rate, batches and epochs; with the server rule that comes with it."""
    companion: type[Any] | None = kinds("server")[_companion(cls)] if _companion(cls) else None

    def put(method: Method) -> Method:
        common = {field.name: getattr(method.local, field.name) for field in fields(SGD)}
        method = replace(method, local=cls(**{**common, **parameters}))
        if companion is None:
            return method
        return replace(method, server=companion(method.server) if issubclass(companion, Wrapper) else companion())

    return Word(("local",) if companion is None or issubclass(companion, Wrapper) else ("local", "server"), put)


def _server_word(cls: type[Any], **parameters: Any) -> Word:
    """In place of the plain mean, or around whatever the server does; clients report what it weighs them by."""
    wraps, preparation = issubclass(cls, Wrapper), cls.companion_preparation

    def put(method: Method) -> Method:
        server: ServerRule = cls(method.server, **parameters) if wraps else cls(**parameters)
        reports: dict[str, Any] = {f"report_{metric}": True for metric in server.wants()}
        prepared: Any = kinds("preparation")[preparation]() if preparation else method.preparation
        return replace(method, server=server, local=replace(method.local, **reports), preparation=prepared)

    place = AROUND if wraps and cls.inside_local else LAST
    return Word((() if wraps else ("server",)) + (("preparation",) if preparation else ()), put, place)


def combined(method: Method, names: Sequence[str]) -> Method:
    """A method with other parts in place: server rules first, so that what goes around them finds them there.

    Of several that go around it, the one that is named last is outside.
    """
    known = words()
    for word in sorted(names, key=lambda name: ORDER.index((*known[name].roles, known[name].place)[0])):
        method = known[word].put(method)
    return method


AROUND, LAST = "around", ""
"""In place of a role, for what takes nobody's place: it goes around the server rule, or around all that is there."""
ORDER = ("server", AROUND, "local", "preparation", LAST)


def _fedavg() -> Method:
    return Method(Grouped(Singletons(), Random(), kappa=0.3), SGD(), Mean())


def fedavg_with(*names: str) -> Callable[[], Method]:
    """How a row is made that is FedAvg with other parts in place, by their words."""
    return lambda: combined(_fedavg(), names)


def _chains_then_adam() -> Method:
    """X2 of the experiments: chosen on validation samples of femnist-368, seed 0 (docs/methods.md)."""
    return _then_adam(Grouped(OfLength(4), ICG(), chains=6), SGD(lr=0.03, epochs_by_round=((1, 3), (3, 1))))


def _long_chains_then_adam() -> Method:
    """Chains as long as FedGSP's first ones: chosen on validation samples of femnist-368, seeds 0 to 2 (docs/methods.md)."""
    return _then_adam(Grouped(Constant(10), ICG(), chains=2), SGD(lr=0.03))


def _then_adam(chains: Grouped, local: SGD) -> Method:
    """Two rounds of chains and plain means, then single clients and Adam begun afresh; what is evaluated is averaged."""
    alone = Grouped(Singletons(), Random(), kappa=0.2)
    adam = Adam(lr=0.0316, beta1=0.7, beta2=0.99, tau=1e-3)
    server = Averaged(WarmStart(adam, rounds=2), decay=0.7)
    return Method(Switch(chains, alone, rounds=2), replace(local, schedule=Decay(0.98, floor=0.2)), server)


def _fedgsp_capped() -> Method:
    """FedGSP's chains, steps of up to twice the mean update, averaged; its learning rate suits the averaging."""
    server = Averaged(FedExP(cap=2.0, average_last=False), decay=0.5)
    return Method(Grouped(Log(2, 10), ICG(), kappa=0.3), SGD(lr=0.03), server)


def _astraea(preparation: Preparation) -> Method:
    return Method(Mediators(kappa=0.3, gamma=10, passes=2, grouper=GreedyKL()), SGD(), Mean(), preparation=preparation)


_ROWS: Mapping[str, Row] = {
    "fedavg": Row("every sampled client trains alone, the models are averaged", _fedavg),
    "fedprox": Row("fedavg with a pull towards the model that was handed over", fedavg_with("prox")),
    "fedmmd": Row("fedavg that keeps a client's outputs like those of the frozen global model", fedavg_with("mmd")),
    "fedfusion": Row("fedavg that fuses local with frozen global features by a 1x1 convolution", fedavg_with("fusion")),
    "fedfusion-multi": Row("fedfusion with one weight a channel", fedavg_with("fusion-multi")),
    "fedfusion-single": Row("fedfusion with one weight", fedavg_with("fusion-single")),
    "ida": Row("fedavg that weighs models by their inverse distance to the average", fedavg_with("ida")),
    "ida-fedavg": Row("ida times the samples", fedavg_with("ida-fedavg")),
    "ida-intrac": Row("ida times the inverse training accuracy", fedavg_with("ida-intrac")),
    "ida-intrac-fedavg": Row("ida times the inverse training accuracy times the samples", fedavg_with("ida-intrac-fedavg")),
    "fedadagrad": Row("fedavg with Adagrad on the server", fedavg_with("adagrad")),
    "fedadam": Row("fedavg with Adam on the server", fedavg_with("adam")),
    "fedyogi": Row("fedavg with Yogi on the server", fedavg_with("yogi")),
    "fedavgm": Row("fedavg with momentum on the server", fedavg_with("momentum")),
    "scaffold": Row(
        "fedavg whose steps are corrected by control variates that clients and server keep", fedavg_with("scaffold")
    ),
    "fednova": Row("fedavg that averages updates per step, so that many steps do not pull harder", fedavg_with("nova")),
    "fedexp": Row("fedavg with a server step that grows with the clients' disagreement", fedavg_with("exp")),
    "feddyn": Row("fedavg with a regulariser that every client adapts round by round", fedavg_with("dyn")),
    "fedmeta-uga": Row(
        "fedavg of unbiased gradients, with a meta step on a small set that the server holds",
        fedavg_with("uga", "meta"),
    ),
    "per-fedavg": Row("a common start that clients make their own by a step or two, then evaluated", fedavg_with("per-fedavg")),
    "moon": Row("fedavg that draws features to the global model's, away from the client's own last ones", fedavg_with("moon")),
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
    "fedgsp-capped": Row(
        "fedgsp with steps of up to twice the mean update (capped FedExP) and averaged models; ours", _fedgsp_capped
    ),
    "chains-then-adam": Row(
        "two rounds of six chains of four clients, then fedadam begun afresh, with averaged models; ours", _chains_then_adam
    ),
    "long-chains-then-adam": Row(
        "two rounds of two chains of a tenth of the clients each, then fedadam begun afresh, with averaged models; ours",
        _long_chains_then_adam,
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
        lambda: Method(Superclients(), SGD(), ModelRotation()),
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
        lambda: Method(Grouped(Singletons(), Random(), kappa=1.0), SGD(), ModelRotation("uniform", judge="own")),
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
        lambda: Method(Grouped(Singletons(), Random(), kappa=1.0), Distill(), DistillServer()),
    ),
    "cfl": Row(
        "clustered FL: clients whose updates point apart are split into clusters with models of their own",
        lambda: Method(Grouped(Singletons(), Random(), kappa=1.0), SGD(), Clustered()),
    ),
}


class MethodTable(dict[str, Row]):
    """The named methods; it shows names and summaries."""

    def __repr__(self) -> str:
        return f"{len(self)} methods: {', '.join(self)}"

    def _repr_html_(self) -> str:
        return html_table("Methods", ("name", "what it is"), [(name, row.summary) for name, row in self.items()])


METHODS: Mapping[str, Row] = MethodTable(_ROWS)


def named(name: str) -> Method:
    """The method of that name, with the paper's parameters.

    Args:
        name: A row of `METHODS`, or a row with other parts in place: `fedgsp+prox+adam`.

    Returns:
        The method; `dataclasses.replace` changes its parts.

    Raises:
        InputError: If there is no such row or part, or two parts take the same place.
    """
    base, *parts = name.split("+")
    if base not in METHODS:
        raise InputError(f"unknown method '{name}': {did_you_mean(base, METHODS)}")
    method = METHODS[base].make()
    plain = {
        "local": type(method.local) is SGD,
        "server": type(method.server) is Mean,
        "preparation": method.preparation is None,
    }
    known = words()
    for word in parts:
        if word not in known:
            raise InputError(f"unknown part '{word}' in the method '{name}': {did_you_mean(word, known)}")
        for role in known[word].roles:
            if not plain[role]:
                what = "preparations" if role == "preparation" else f"{role} rules"
                raise InputError(
                    f"the method '{name}' has two {what}; put '{word}' on a method whose own is plain, such as fedgsp."
                )
            plain[role] = False
    return replace(combined(method, parts), name=name)


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
