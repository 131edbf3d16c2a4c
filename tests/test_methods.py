from __future__ import annotations

import tomllib
from dataclasses import replace
from typing import Any

import pytest
import tomli_w

from fedgsp.client import SGD
from fedgsp.core.errors import InputError
from fedgsp.method import Method
from fedgsp.methods import METHODS, decode_method, named
from fedgsp.plan import ICG, Constant, Fixed, Grouped, Log, Random, Singletons
from fedgsp.server import Mean


def refused(table: Any) -> str:
    with pytest.raises(InputError) as caught:
        decode_method(table)
    return str(caught.value)


def test_the_table_is_the_papers() -> None:
    """The paper: E = 1, b = 5, eta = 0.01, kappa = 0.3, f(r) = 10 floor(2 ln r + 1), beta = 10; weighed by samples."""
    local, server = SGD(lr=0.01, batch_size=5, epochs=1), Mean("samples")
    ablation = {
        "fedavg": Method(Grouped(Singletons(), Random(), 0.3, "shuffled"), local, server, "fedavg"),
        "naive-gsp": Method(Grouped(Constant(10), Fixed(Random()), 0.3, "shuffled"), local, server, "naive-gsp"),
        "naive-gsp-icg": Method(Grouped(Constant(10), Fixed(ICG()), 0.3, "shuffled"), local, server, "naive-gsp-icg"),
        "fedgsp": Method(Grouped(Log(2, 10), ICG(), 0.3, "shuffled"), local, server, "fedgsp"),
    }
    assert {name: named(name) for name in ablation} == ablation


@pytest.mark.parametrize("name", METHODS)
def test_every_named_method_survives_a_config_file(name: str) -> None:
    text = tomli_w.dumps(named(name).encode())
    assert decode_method(tomllib.loads(text)) == named(name)


@pytest.mark.parametrize("name", METHODS)
def test_a_name_is_enough(name: str) -> None:
    assert decode_method({"name": name}) == named(name)
    assert METHODS[name].summary


def test_parts_of_a_named_method_are_replaced_one_by_one() -> None:
    read = decode_method({"name": "fedgsp", "server": {"kind": "mean", "weights": "uniform"}})
    assert read == replace(named("fedgsp"), server=Mean("uniform"))
    assert read.planner == named("fedgsp").planner


def test_all_parts_need_no_name() -> None:
    table = named("fedavg").encode()
    del table["name"]
    assert decode_method(table) == replace(named("fedavg"), name="custom")
    assert decode_method({**table, "name": "my own"}).name == "my own"


def test_unknown_names() -> None:
    assert refused({"name": "fedavgg"}) == "unknown method 'fedavgg': did you mean 'fedavg'?"
    with pytest.raises(InputError, match=r"unknown method 'sgd': choose from: astraea, .*fedavg, .*stp-random\."):
        named("sgd")


def test_refused() -> None:
    assert refused("fedavg") == "[method] must be a table."
    assert refused({}) == "[method] needs a name, or all of planner, local and server."
    assert refused({"local": {"kind": "sgd"}}) == "[method] needs a name, or all of planner, local and server."
    assert refused({"name": "fedavg", "lokal": {}}) == "[method] has no entry 'lokal': did you mean 'local'?"
    assert refused({"name": ["fedavg"]}) == "[method] name must be a text, not ['fedavg']."
    assert refused({**named("fedavg").encode(), "name": 5}) == "[method] name must be a text, not 5."
    assert refused({"name": "fedavg", "local": {"kind": "sgdd"}}) == "method.local: unknown kind 'sgdd': did you mean 'sgd'?"
