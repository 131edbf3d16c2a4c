"""Grids: names are found in a method's parts, values are checked before anything runs."""

from __future__ import annotations

import pytest

from fedgsp.core.errors import InputError
from fedgsp.methods import named
from fedgsp.study.grid import find, parse_grid, points


@pytest.mark.parametrize(
    ("method", "name", "path"),
    [
        ("fedadam", "lr", ("local", "lr")),
        ("fedadam", "server_lr", ("server", "lr")),
        ("fedadam", "local_lr", ("local", "lr")),
        ("fedadam", "tau", ("server", "tau")),
        ("fedprox", "mu", ("local", "mu")),
        ("fedgsp", "kappa", ("planner", "kappa")),
        ("fedgsp", "alpha", ("planner", "growth", "alpha")),
        ("fedgsp", "planner.growth.beta", ("planner", "growth", "beta")),
        ("fedgsp+fusion-multi+yogi", "server_lr", ("server", "server", "lr")),
        ("astraea", "alpha", ("preparation", "alpha")),
        ("astraea", "gamma", ("planner", "gamma")),
    ],
)
def test_where_a_name_is(method: str, name: str, path: tuple[str, ...]) -> None:
    assert find(name, named(method).encode()) == path


def test_every_combination_the_last_axis_fastest() -> None:
    method = named("fedgsp+yogi")
    found = list(points(parse_grid(["lr=0.01,0.1", "server_lr=1,0.5"], method), method))
    assert [point.label for point in found] == [
        "lr=0.01,server_lr=1", "lr=0.01,server_lr=0.5", "lr=0.1,server_lr=1", "lr=0.1,server_lr=0.5",
    ]  # fmt: skip
    assert [(p.method.local.lr, p.method.server.lr) for p in found] == [(0.01, 1.0), (0.01, 0.5), (0.1, 1.0), (0.1, 0.5)]  # type: ignore[attr-defined]
    assert all(p.method.planner == method.planner for p in found)


def test_words_and_repeated_values() -> None:
    method = named("fedfusion")
    axes = parse_grid(["operator=conv,multi,conv"], method)
    assert axes[0].values == ("conv", "multi")


@pytest.mark.parametrize(
    ("grid", "sentence"),
    [
        ([], "a grid needs at least one NAME=VALUE"),
        (["lr"], "the grid entry 'lr' is not NAME=VALUE,VALUE"),
        (["lr="], "the grid entry 'lr=' is not NAME=VALUE,VALUE"),
        (["mu=0.1,-1"], "mu must be a number of at least 0, not -1"),
        (["mu=big"], "method.local.mu must be a number, not 'big'"),
        (["server_lr=0.1"], "the method 'fedprox' has no parameter 'server_lr'"),
        (["lr=0.1", "local_lr=0.2"], "the grid names 'local_lr' twice"),
        (["server.inner.lr=1"], "the method has nothing called 'server.inner.lr'"),
    ],
)
def test_what_is_refused(grid: list[str], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        parse_grid(grid, named("fedprox"))
