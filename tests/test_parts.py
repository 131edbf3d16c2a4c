from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from fedgsp.client import (
    MMD,
    SGD,
    UGA,
    Cosine,
    Decay,
    Distill,
    Dyn,
    Fusion,
    Moon,
    PerFedAvg,
    Piecewise,
    Prox,
    Scaffold,
    Steady,
    UpdateNoise,
    Warmup,
)
from fedgsp.client.attacks import Gaussian, InnerProduct, LabelFlip, Scaled, SignFlip
from fedgsp.core.errors import InputError
from fedgsp.parts import PARTS as LISTED
from fedgsp.parts import checked, decode, encode, kind_of, kinds
from fedgsp.plan import (
    ICG,
    Balanced,
    Constant,
    Exp,
    Fixed,
    GreedyKL,
    Grouped,
    HandOver,
    Linear,
    Log,
    Mediators,
    OfLength,
    OneChain,
    Proportional,
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
    Averaged,
    CentredClipping,
    ClippedMean,
    Clustered,
    DistillServer,
    DynServer,
    FedExP,
    FusionServer,
    GeometricMedian,
    Krum,
    Mean,
    Median,
    Meta,
    ModelRotation,
    Momentum,
    Nova,
    Private,
    ScaffoldServer,
    TrimmedMean,
    WarmStart,
    Yogi,
)

MODULE = """
from dataclasses import dataclass
from fedgsp.client import SGD

@dataclass(frozen=True, kw_only=True)
class Mine(SGD):
    strength: float = 1.0
    layers: tuple[int, ...] = (1, 2)
    pair: tuple[str, float] = ("a", 0.5)

    def __post_init__(self):
        super().__post_init__()
        if self.strength > 10:
            raise ValueError("strength is at most 10")

class Plain:
    pass

@dataclass(frozen=True)
class Needy:
    size: int

def function():
    pass
"""


@pytest.fixture
def myparts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "myparts.py").write_text(MODULE)
    (tmp_path / "badparts.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "myparts", raising=False)
    import importlib

    return importlib.import_module("myparts")


def refused(role: str, table: Any) -> str:
    with pytest.raises(InputError) as caught:
        decode(role, table, "method.here")
    return str(caught.value)


PARTS: list[tuple[str, Any]] = [
    ("growth", Linear(0.5, 3)),
    ("growth", Log(2, 10)),
    ("growth", Exp(0.01, 7)),
    ("growth", Constant(12)),
    ("growth", Singletons()),
    ("growth", OfLength(6, halve_every=3)),
    ("growth", Proportional(Exp(0.1, 4), clients=100)),
    ("grouper", Random()),
    ("grouper", ICG(tau=3, distance="euclid")),
    ("grouper", ICG(leftovers="deal")),
    ("grouper", Fixed(ICG())),
    ("grouper", Fixed(Fixed(Random()))),
    ("schedule", Steady()),
    ("schedule", Warmup(3, Cosine(8))),
    ("schedule", Decay(0.9, 5, 0.1)),
    ("schedule", Cosine(100)),
    ("schedule", Piecewise(((3, 0.5), (9, 0.1)))),
    ("local", SGD(epochs_by_round=((1, 3), (4, 1)))),
    ("local", SGD(lr=0.3, batch_size=9, epochs=2, momentum=0.5, weight_decay=0.01, schedule=Cosine(8))),
    ("server", Mean("uniform")),
    ("grouper", GreedyKL(target="uniform")),
    ("grouper", Balanced()),
    ("grouper", Stratified()),
    ("local", Prox(mu=0.5, anchor="global")),
    ("local", MMD(lam=0.2)),
    ("local", Fusion(operator="multi")),
    ("server", Momentum(lr=0.5)),
    ("server", Adagrad(lr=0.1)),
    ("server", Adam(lr=0.01, beta1=0.8)),
    ("server", Yogi(tau=1e-4)),
    ("server", IDA(variant="ida_intrac")),
    ("server", FusionServer(eval_ref="new")),
    ("local", Scaffold(lr=0.2)),
    ("local", Dyn(alpha=0.1)),
    ("local", Moon(mu=5.0, tau=0.4, anchor="global")),
    ("local", UGA(step=0.3, trace=4)),
    ("local", PerFedAvg(alpha=0.02, variant="hf", personal_steps=3)),
    ("server", ScaffoldServer(Adam(lr=0.1))),
    ("server", DynServer()),
    ("server", Nova("uniform")),
    ("server", FedExP(eps=0.1, average_last=False)),
    ("server", Meta(lr=0.3, steps=2)),
    ("preparation", MetaSet(share=0.05, classes="uniform")),
    ("preparation", AugmentMean(alpha=0.5)),
    ("preparation", AugmentZScore(tau_d=3.5)),
    ("planner", Mediators(kappa=0.5, gamma=4)),
    ("preparation", ShareData(alpha=0.2, beta=0.3, donors=0.4, warm_up=2)),
    ("preparation", PoolData(p=0.1)),
    ("preparation", FAugGAN(seeds=3, epochs=7)),
    ("preparation", FAugOversample(redundant=4)),
    ("planner", WithPool(Mediators(gamma=3))),
    ("planner", HandOver(OneChain(), ((0, 3), (2, 1)), 2)),
    ("local", Distill(gamma=0.5, match="mse")),
    ("server", DistillServer()),
    ("planner", OneChain(kappa=0.4, order="fixed")),
    ("planner", Superclients(most_clients=5, least_samples=100)),
    ("planner", Switch(OneChain(kappa=0.2), Mediators(gamma=3), rounds=7)),
    ("server", ModelRotation("uniform", period=4, judge="own")),
    ("server", Clustered(eps1=0.1, eps2=0.2, gamma=0.5, linkage="complete")),
    ("planner", Grouped(Exp(0.5, 2), Fixed(ICG()), kappa=0.7, order="fixed")),
    ("server", Median()),
    ("server", TrimmedMean(share=0.2)),
    ("server", Krum(share=0.3, keep=2)),
    ("server", GeometricMedian(steps=2, weights="samples")),
    ("server", ClippedMean(norm=2.0)),
    ("server", CentredClipping(steps=2)),
    ("server", Averaged(WarmStart(Yogi(), rounds=3, weights="uniform"), decay=0.5, last=4)),
    ("server", WarmStart(Adam(beta1=0.5))),
    ("server", FedExP(cap=2.0)),
    ("server", Private(Adam(), clip=0.5, noise=2.0, adaptive=True)),
    ("privacy", UpdateNoise(clip=0.5, budget=3.0)),
    ("planner", Grouped(OfLength(4), ICG(), chains=6)),
    ("local", SignFlip(attackers=(1, 2), scale=3.0)),
    ("local", Scaled(attackers=(1,))),
    ("local", Gaussian(attackers=(1,), seed=4)),
    ("local", InnerProduct(attackers=(1,))),
    ("local", LabelFlip(attackers=(1,))),
]


@pytest.mark.parametrize(("role", "part"), PARTS)
def test_every_part_is_spelled_and_read_back(role: str, part: Any) -> None:
    table = encode(part)
    assert table["kind"] == kind_of(part) in kinds(role)
    assert decode(role, table, "here") == part


def test_every_known_kind_is_tried_above() -> None:
    assert {(role, kind_of(part)) for role, part in PARTS} == {(role, kind) for role in LISTED for kind in kinds(role)}


def test_a_part_is_spelled_out_completely() -> None:
    assert encode(SGD()) == {
        "kind": "sgd", "lr": 0.01, "batch_size": 5, "epochs": 1, "momentum": 0.0, "weight_decay": 0.0,
        "schedule": {"kind": "steady"}, "report_accuracy": False, "report_steps": False,
    }  # fmt: skip
    assert encode(Fixed(ICG())) == {"kind": "fixed", "grouper": {"kind": "icg", "tau": 10, "distance": "squared"}}


def test_what_the_planner_decides_is_not_spelled() -> None:
    assert encode(ICG(n_groups=5, random_state=1)) == encode(ICG())


def test_what_is_not_said_has_its_default() -> None:
    assert decode("local", {"kind": "sgd", "lr": 1}, "here") == SGD(lr=1.0)


class TestRefused:
    def test_no_table_or_no_kind(self) -> None:
        wanted = "method.here must be a table with a kind: cosine, decay, piecewise, steady, warmup."
        assert refused("schedule", "steady") == wanted
        assert refused("schedule", {"rate": 0.5}) == wanted
        assert refused("schedule", {"kind": 5}) == wanted

    def test_an_unknown_kind(self) -> None:
        assert refused("growth", {"kind": "logg"}) == "method.here: unknown kind 'logg': did you mean 'log'?"
        assert "choose from: balanced, fixed, greedy-kl, icg, random, stratified." in refused("grouper", {"kind": "log"})

    def test_an_unknown_parameter(self) -> None:
        assert refused("local", {"kind": "sgd", "batchsize": 5}) == (
            "method.here (kind 'sgd') has no parameter 'batchsize': did you mean 'batch_size'?"
        )
        assert "there is none to choose from" in refused("growth", {"kind": "singletons", "beta": 5})

    def test_what_a_planner_decides_is_no_parameter(self) -> None:
        assert "has no parameter 'n_groups'" in refused("grouper", {"kind": "icg", "n_groups": 5})

    def test_a_missing_parameter(self) -> None:
        assert refused("growth", {"kind": "linear", "alpha": 1}) == "method.here (kind 'linear') needs a value for 'beta'."

    def test_a_nested_part_says_where_it_is(self) -> None:
        told = refused(
            "planner", {"kind": "grouped", "growth": {"kind": "constant", "cuont": 3}, "grouper": {"kind": "random"}}
        )
        assert told == "method.here.growth (kind 'constant') has no parameter 'cuont': did you mean 'count'?"

    @pytest.mark.parametrize(
        ("name", "value", "told"),
        [
            ("lr", "fast", "method.here.lr must be a number, not 'fast'."),
            ("lr", True, "method.here.lr must be a number, not True."),
            ("lr", [0.1], "method.here.lr must be a number, not [0.1]."),
            ("epochs", 1.5, "method.here.epochs must be a whole number, not 1.5."),
            ("epochs", True, "method.here.epochs must be a whole number, not True."),
            ("lr", -1.0, "the learning rate must be a positive number, not -1.0."),
        ],
    )
    def test_wrong_types_and_values(self, name: str, value: Any, told: str) -> None:
        assert refused("local", {"kind": "sgd", name: value}) == told

    def test_a_word_that_is_none_of_the_choices(self) -> None:
        assert refused("server", {"kind": "mean", "weights": "size"}) == (
            "method.here.weights must be one of 'samples', 'uniform', not 'size'."
        )


class TestOfTheUsersOwn:
    def test_it_is_spelled_by_module_and_class(self, myparts: Any) -> None:
        mine = myparts.Mine(lr=0.1, strength=3.0, layers=(4, 5, 6))
        table = encode(mine)
        assert table["kind"] == "myparts:Mine"
        assert decode("local", table, "here") == mine

    def test_lists_from_toml_become_tuples(self, myparts: Any) -> None:
        read = decode("local", {"kind": "myparts:Mine", "layers": [7, 8], "pair": ["b", 2]}, "here")
        assert read == myparts.Mine(layers=(7, 8), pair=("b", 2.0))

    @pytest.mark.parametrize(
        ("table", "told"),
        [
            ({"kind": "nowhere:Mine"}, "method.here: cannot import 'nowhere:Mine': No module named 'nowhere'."),
            (
                {"kind": "myparts:Yours"},
                "method.here: cannot import 'myparts:Yours': module 'myparts' has no attribute",
            ),
            (
                {"kind": "badparts:Mine"},
                "method.here: cannot import 'badparts:Mine': ZeroDivisionError: division by zero (badparts.py:1, in <module>).",
            ),
            ({"kind": ":Mine"}, "method.here: cannot import ':Mine': "),
            ({"kind": "myparts:Plain"}, "method.here: 'myparts:Plain' is not a dataclass, so its parameters cannot be read."),
            ({"kind": "myparts:function"}, "method.here: 'myparts:function' is not a dataclass"),
            ({"kind": "myparts:Needy"}, "method.here (kind 'myparts:Needy') needs a value for 'size'."),
            ({"kind": "myparts:Mine", "strenght": 1}, "method.here (kind 'myparts:Mine') has no parameter 'strenght': did you"),
            ({"kind": "myparts:Mine", "strength": "a"}, "method.here.strength must be a number, not 'a'."),
            (
                {"kind": "myparts:Mine", "strength": 11.0},
                "method.here (kind 'myparts:Mine') cannot be made: strength is",
            ),
            ({"kind": "myparts:Mine", "layers": [1, "b"]}, "method.here.layers[1] must be a whole number, not 'b'."),
            ({"kind": "myparts:Mine", "layers": 3}, "method.here.layers must be a list, not 3."),
            ({"kind": "myparts:Mine", "pair": ["a"]}, "method.here.pair must have 2 values, not 1."),
        ],
    )
    def test_refused(self, myparts: Any, table: dict[str, Any], told: str) -> None:
        assert refused("local", table).startswith(told)

    @pytest.mark.parametrize("kind", ["__main__:Mine", "myparts:make.<locals>.Mine"])
    def test_one_from_a_script_or_notebook_must_be_given_again(self, kind: str) -> None:
        assert refused("local", {"kind": kind}) == (
            f"method.here: '{kind}' was defined in a script or notebook and cannot be found from here; "
            "pass the method in Python: fedgsp.resume(directory, method=...)."
        )

    def test_one_from_a_script_can_still_be_recorded(self) -> None:
        @dataclass(frozen=True, kw_only=True)
        class Local(SGD):
            strength: float = 2.0

        table = encode(Local())
        assert table["kind"].endswith("<locals>.Local")
        assert table["strength"] == 2.0

    def test_what_is_no_dataclass_cannot_be_recorded(self, myparts: Any) -> None:
        with pytest.raises(InputError, match=r"the part myparts:Plain is not a dataclass, .*; make it one\."):
            encode(myparts.Plain())


@pytest.mark.parametrize(
    ("value", "hint", "found"),
    [
        (3, int, 3),
        (3, float, 3.0),
        (3, int | str, 3),
        ("auto", int | str, "auto"),
        (3, float | None, 3.0),
        (True, bool, True),
        ("a", Literal["a", "b"], "a"),
        ({"free": 1}, Any, {"free": 1}),
        ([1, 2], tuple[float, ...], (1.0, 2.0)),
    ],
)
def test_values_that_fit(value: Any, hint: Any, found: Any) -> None:
    got = checked(value, hint, "x")
    assert got == found
    assert type(got) is type(found)


@pytest.mark.parametrize(
    ("value", "hint", "told"),
    [
        (3.0, int, "x must be a whole number, not 3.0."),
        (1.5, int | str, "x must be a whole number or a text, not 1.5."),
        (1, bool, "x must be true or false, not 1."),
        (1, str, "x must be a text, not 1."),
        ("c", Literal["a", "b"], "x must be one of 'a', 'b', not 'c'."),
        ("much", float | None, "x must be a number, not 'much'."),
    ],
)
def test_values_that_do_not_fit(value: Any, hint: Any, told: str) -> None:
    with pytest.raises(InputError) as caught:
        checked(value, hint, "x")
    assert str(caught.value) == told
