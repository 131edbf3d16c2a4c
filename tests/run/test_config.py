from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedgsp
from fedgsp.client import SGD, Cosine, Decay, Steady
from fedgsp.core.errors import InputError
from fedgsp.method import Method
from fedgsp.methods import METHODS, named
from fedgsp.plan import ICG, Constant, Exp, Fixed, Grouped, Linear, Log, Random, Singletons
from fedgsp.run.config import (
    DataSection,
    EngineSection,
    ModelSection,
    RunConfig,
    RunSection,
    from_dict,
    parse_toml,
    read_config,
)
from fedgsp.server import Mean
from tests.support import tiny

shares = st.floats(0.01, 1.0)
growths = st.one_of(
    st.builds(Log, shares, st.integers(1, 50)), st.builds(Linear, shares, st.integers(1, 50)),
    st.builds(Exp, shares, st.integers(1, 50)), st.builds(Constant, st.integers(1, 50)), st.just(Singletons()),
)  # fmt: skip
plain_groupers: st.SearchStrategy[Any] = st.one_of(
    st.just(Random()), st.builds(ICG, tau=st.integers(1, 99), distance=st.sampled_from(["squared", "euclid"]))
)
groupers: st.SearchStrategy[Any] = st.one_of(plain_groupers, plain_groupers.map(Fixed))
schedules = st.one_of(
    st.just(Steady()), st.builds(Decay, shares, st.integers(1, 9), shares), st.builds(Cosine, st.integers(1, 999), shares)
)
locals_ = st.builds(
    SGD, lr=st.floats(1e-6, 10), batch_size=st.integers(1, 999), epochs=st.integers(1, 9),
    momentum=st.floats(0, 0.99), weight_decay=st.floats(0, 1), schedule=schedules,
)  # fmt: skip
planners = st.builds(Grouped, growths, groupers, shares, st.sampled_from(["shuffled", "fixed"]))
texts = st.text(min_size=1, max_size=20)
methods = st.builds(Method, planners, locals_, st.builds(Mean, st.sampled_from(["samples", "uniform"])), texts)
seeds = st.integers(0, 2**32 - 1)
targets = st.floats(0.001, 1.0)
runs = st.builds(
    RunSection, rounds=st.integers(1, 10**6), seed=seeds, workers=st.integers(0, 64) | st.just("auto"), device=texts,
    eval_every=st.integers(1, 100), target_accuracy=st.none() | targets, holdout_clients=st.integers(0, 99),
)  # fmt: skip
configs = st.builds(
    RunConfig,
    runs,
    st.builds(DataSection, texts, seeds, st.none() | st.integers(1, 9999), st.floats(0, 0.99)),
    st.builds(ModelSection, texts, st.none() | texts),
    methods,
)


@settings(max_examples=60, deadline=None)
@given(configs)
def test_a_configuration_survives_its_file(config: RunConfig) -> None:
    text = config.to_toml()
    read = parse_toml(text, "config.toml")
    assert read == config
    assert read.to_toml() == text
    assert read.identity("f") == config.identity("f")


def refused(text: str) -> str:
    with pytest.raises(InputError) as caught:
        parse_toml(text, "my.toml")
    return str(caught.value)


def test_an_empty_file_is_the_default_run() -> None:
    assert parse_toml("", "my.toml") == RunConfig()
    assert RunConfig().method == named("fedgsp")
    assert RunConfig().model.name == "small_cnn"
    assert RunConfig().data.source == "glyphs"


def test_a_file_says_only_what_differs() -> None:
    read = parse_toml('run.rounds = 7\n[method]\nname = "fedavg"\nlocal = {kind = "sgd", lr = 1}\n', "my.toml")
    assert read.run == RunSection(rounds=7)
    assert read.method == replace(named("fedavg"), local=SGD(lr=1.0))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rounds 5", "my.toml is not valid TOML: "),
        ("schema = 99", "my.toml has schema 99; this version of fedgsp reads schema 1."),
        ("[runs]\nrounds = 5", "my.toml has no section 'runs': did you mean 'run'?"),
        ("run = 5", "my.toml [run] must be a table."),
        ("method = 'fedavg'", "[method] must be a table."),
        ("run.round = 5", "my.toml [run] has no entry 'round': did you mean 'rounds'?"),
        ("data.sauce = 'glyphs'", "my.toml [data] has no entry 'sauce': did you mean 'source'?"),
        ("run.rounds = 'many'", "my.toml [run] rounds must be a whole number, not 'many'."),
        ("run.rounds = 5.0", "my.toml [run] rounds must be a whole number, not 5.0."),
        ("run.rounds = true", "my.toml [run] rounds must be a whole number, not True."),
        ("run.rounds = 0", "rounds must be at least 1, not 0."),
        ("run.rounds = -5", "rounds must be at least 1, not -5."),
        ("run.eval_every = 0", "eval_every must be at least 1, not 0."),
        ("run.holdout_clients = -1", "holdout_clients must be at least 0, not -1."),
        ("run.seed = -1", "the seed must be a whole number from 0 to 4294967295, not -1."),
        ("run.seed = 4294967296", "the seed must be a whole number from 0 to 4294967295, not 4294967296."),
        ("data.seed = -1", "the data seed must be a whole number from 0 to 4294967295, not -1."),
        ("run.workers = 'all'", "workers must be a number or 'auto', not 'all'."),
        ("run.workers = -1", "workers must be at least 0, not -1."),
        ("run.workers = 1.5", "my.toml [run] workers must be a whole number or a text, not 1.5."),
        ("run.target_accuracy = 0", "the target accuracy must be above 0 and at most 1, not 0.0."),
        ("run.target_accuracy = 85", "the target accuracy must be above 0 and at most 1, not 85.0."),
        ("run.target_accuracy = nan", "the target accuracy must be above 0 and at most 1, not nan."),
        ("run.stop_at_target = true", "stop_at_target needs a target_accuracy."),
        ("run.stop_at_target = 1", "my.toml [run] stop_at_target must be true or false, not 1."),
        ("data.validation = 1.0", "validation must be a fraction from 0 up to 1, not 1.0."),
        ("data.validation = nan", "validation must be a fraction from 0 up to 1, not nan."),
        ("data.clients = 0", "clients must be at least 1, not 0."),
        ("model.name = 5", "my.toml [model] name must be a text, not 5."),
        ("method.name = 'fedavgg'", "unknown method 'fedavgg': did you mean 'fedavg'?"),
    ],
)
def test_refused(text: str, told: str) -> None:
    assert refused(text).startswith(told)


@pytest.mark.parametrize("kappa", ["0", "-0.5", "1.01", "nan", "inf"])
def test_kappa_outside_its_range(kappa: str) -> None:
    planner = f'{{kind = "grouped", kappa = {kappa}, growth = {{kind = "singletons"}}, grouper = {{kind = "random"}}}}'
    assert "kappa" in refused(f'method = {{name = "fedavg", planner = {planner}}}')


class TestReading:
    def test_a_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"cannot read the configuration .*none\.toml: No such file or directory\."):
            read_config(tmp_path / "none.toml")

    def test_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"cannot read the configuration .*: it is not a file\."):
            read_config(tmp_path)

    def test_what_is_no_text(self, tmp_path: Path) -> None:
        (tmp_path / "c.toml").write_bytes(b"\xff\xfe\x00")
        with pytest.raises(InputError, match=r"is not a text file in UTF-8\."):
            read_config(tmp_path / "c.toml")

    def test_a_good_one(self, tmp_path: Path) -> None:
        (tmp_path / "c.toml").write_text(RunConfig().to_toml())
        assert read_config(tmp_path / "c.toml") == RunConfig()


BASE = RunConfig()


def run(**changes: Any) -> RunConfig:
    return replace(BASE, run=replace(BASE.run, **changes))


def data(**changes: Any) -> RunConfig:
    return replace(BASE, data=replace(BASE.data, **changes))


def local(**changes: Any) -> RunConfig:
    return replace(BASE, method=replace(BASE.method, local=replace(BASE.method.local, **changes)))


class TestIdentity:
    """A checkpoint may be gone on with exactly if what decides the model's bits is the same."""

    @pytest.mark.parametrize(
        "other",
        [
            run(rounds=500),
            run(workers=4),
            run(eval_every=10),
            run(target_accuracy=0.8),
            run(target_accuracy=0.8, stop_at_target=True),
            replace(BASE, method=replace(BASE.method, name="another name")),
            data(source="npz:/elsewhere/the-same.npz"),  # the data is told by its fingerprint
            data(seed=5),
            data(clients=100),
            data(validation=0.1),
        ],
    )
    def test_what_does_not_decide_bits_does_not_matter(self, other: RunConfig) -> None:
        assert other.identity("data") == BASE.identity("data")

    @pytest.mark.parametrize(
        "other",
        [
            run(seed=1),
            run(device="cuda"),
            run(holdout_clients=3),
            replace(BASE, model=ModelSection("leaf_cnn")),
            replace(BASE, model=ModelSection(init="w.safetensors")),
            local(lr=0.010000001),
            local(batch_size=6),
            local(epochs=2),
            local(momentum=0.1),
            local(weight_decay=1e-9),
            local(schedule=Decay()),
            replace(BASE, method=replace(BASE.method, server=Mean("uniform"))),
            replace(BASE, method=replace(BASE.method, planner=Grouped(Log(2, 10), ICG(), kappa=0.31))),
            replace(BASE, method=replace(BASE.method, planner=Grouped(Log(2, 11), ICG()))),
            replace(BASE, method=replace(BASE.method, planner=Grouped(Log(2, 10), ICG(tau=9)))),
            replace(BASE, method=replace(BASE.method, planner=Grouped(Log(2, 10), ICG(), order="fixed"))),
            *(replace(BASE, method=named(name)) for name in METHODS if name != "fedgsp"),
        ],
    )
    def test_what_decides_bits_matters(self, other: RunConfig) -> None:
        assert other.identity("data") != BASE.identity("data")

    def test_the_data_matters(self) -> None:
        assert BASE.identity("data") != BASE.identity("other data")

    def test_the_data_seed_matters_where_it_draws_the_clients_held_out(self) -> None:
        def held(seed: int) -> RunConfig:
            return replace(run(holdout_clients=3), data=replace(BASE.data, source="glyphs:seed=1", seed=seed))

        assert held(1).identity("data") != held(2).identity("data")


def test_plain_data_has_no_empty_entries() -> None:
    table = BASE.as_dict()
    assert "target_accuracy" not in table["run"]
    assert "clients" not in table["data"]
    assert from_dict(table, "here") == BASE
    assert not math.isnan(table["run"]["rounds"])


class TestLimitOfAHop:
    """[engine] hop_seconds: for every engine, and out of every identity."""

    def test_it_needs_no_cluster_and_decides_nothing(self) -> None:
        limited = RunConfig(engine=EngineSection(hop_seconds=60.0))
        assert limited.identity("x") == RunConfig().identity("x")
        assert "hop_seconds = 60.0" in limited.to_toml()
        assert parse_toml(limited.to_toml(), "here") == limited
        assert "engine" not in RunConfig().as_dict()
        with pytest.raises(InputError, match="for a cluster"):
            RunConfig(engine=EngineSection(address="auto", hop_seconds=60.0))

    def test_it_stays_when_a_run_goes_on_elsewhere(self) -> None:
        there = EngineSection("ray", "auto", hop_seconds=60.0)
        assert there.changed({"name": "local"}) == EngineSection(hop_seconds=60.0)
        assert there.changed({"hop_seconds": 5.0}) == EngineSection("ray", "auto", hop_seconds=5.0)
        assert there.changed({"hop_seconds": None}) == there

    @pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
    def test_it_must_be_some_time(self, seconds: float) -> None:
        with pytest.raises(InputError, match="hop_seconds must be a number of seconds above 0"):
            RunConfig(engine=EngineSection(hop_seconds=seconds))

    def test_python_has_it_too(self) -> None:
        result = fedgsp.train(tiny.static(2), tiny.federation(), tiny.linear, rounds=1, workers=0, hop_seconds=7)
        assert result.run.config.engine.hop_seconds == 7
        result = fedgsp.train(
            tiny.static(2), tiny.federation(), tiny.linear, rounds=1, workers=0, engine={"name": "local", "hop_seconds": 8.0}
        )  # fmt: skip
        assert result.run.config.engine.hop_seconds == 8
