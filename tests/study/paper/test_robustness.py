"""The robustness study: who attacks, what is recommended, and what its tables say of runs."""

from __future__ import annotations

from typing import Any

import pytest

from fedgsp.client.attacks import Attack
from fedgsp.methods import named
from fedgsp.parts import kinds
from fedgsp.study.paper.robustness import ATTACKS, NOBODY, RULES, RobustRuns, attacked, attackers_of
from fedgsp.study.paper.robustness_tables import _lost
from fedgsp.study.records import Trace


def run(accuracy: float | None) -> Trace:
    if accuracy is None:
        return Trace("", [], {}, {}, "ran away")
    return Trace("", [{"round": 1, "accuracy": accuracy, "loss": 1.0}], {}, {})


def test_every_attacker_and_every_robust_rule_is_in_it() -> None:
    assert {attack.kind for attack in ATTACKS.values()} == {
        kind for kind, cls in kinds("local").items() if issubclass(cls, Attack)
    }
    assert {rule.kind for rule in RULES.values()} == {
        "mean", "median", "trimmed-mean", "krum", "geometric-median", "clipped-mean", "centred-clipping"
    }  # fmt: skip


def test_attackers_are_those_of_the_seed() -> None:
    assert attackers_of(0.1, 20, 0) == attackers_of(0.1, 20, 0)
    assert attackers_of(0.1, 20, 0) != attackers_of(0.1, 20, 1)
    assert attackers_of(0.0, 20, 0) == ()
    assert all(0 <= client < 20 for client in attackers_of(0.4, 20, 3))


def test_an_attacked_method_differs_in_its_local_rule_only() -> None:
    method = named("fedgsp")
    made = attacked(method, "scaled", (1, 2))
    assert isinstance(made.local, Attack)
    assert (made.local.attackers, made.local.scale, made.local.lr) == ((1, 2), 10.0, method.local.lr)
    assert (made.planner, made.server) == (method.planner, method.server)
    assert attacked(method, NOBODY, (1, 2)) is method
    assert attacked(method, "scaled", ()) is method


def found(sites: dict[tuple[str, str, str], list[Trace]]) -> RobustRuns:
    return RobustRuns({}, "median", sites, {}, {}, {})


@pytest.mark.parametrize(("after", "lost"), [([0.75, 0.85], 0.05), ([0.8, 0.9], 0.0), ([0.8, None], None)])
def test_what_is_lost_is_paired_over_seeds(after: list[float | None], lost: float | None) -> None:
    runs: dict[Any, list[Trace]] = {
        ("fedavg", "mean", NOBODY): [run(0.8), run(0.9)], ("fedavg", "median", "x"): [run(one) for one in after]
    }  # fmt: skip
    told = _lost(found(runs), "fedavg", "x")
    assert (told if told is None else told.mean) == (lost if lost is None else pytest.approx(lost))
