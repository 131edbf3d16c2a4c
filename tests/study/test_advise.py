from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from fedgsp.core.errors import InputError
from fedgsp.cost import FLEETS, Fleet
from fedgsp.study import advise as module
from fedgsp.study.advise import CANDIDATES, Estimated, RoundCosts, advise, extrapolated
from tests.support.small_federations import images, pairs

RESULTS = Path(__file__).parents[2] / "results"
DATA = images(clients=8, each=20)


def test_the_known_rounds_are_those_in_results() -> None:
    """Means over seeds of the tuned runs, and of ours, to what tuned FedAvg ends with (`study fleets`)."""
    facts = json.loads((RESULTS / "fleets" / "fleets.json").read_text())["facts"]
    assert facts["target"] == module.KNOWN_TARGET
    for candidate in CANDIDATES:
        rounds = [one["rounds"] for one in facts["reached"][candidate.name]]
        assert candidate.known_rounds == pytest.approx(fmean(rounds), abs=0.06), candidate.name


def test_a_power_law_is_followed_and_no_farther_than_it_says_something() -> None:
    halves = [(r, 1 - 0.5 / r) for r in (1, 2, 4, 8)]
    rounds, far = extrapolated(halves, 1 - 0.5 / 32)  # type: ignore[str-unpack]
    assert (rounds, far) == pytest.approx((32.0, 4.0))
    assert extrapolated(halves, 1 - 0.5 / 1000) == "the target is more than 20 times the pilot away"
    assert extrapolated([(1, 0.1), (2, 0.1), (3, 0.1), (4, 0.1)], 0.9) == "it hardly learns in the pilot"
    assert extrapolated([(1, 0.1)], 0.9) == "the pilot is too short to say"


def test_without_a_pilot_it_says_that_it_is_not_sure_and_why() -> None:
    found = advise(DATA, "phone-4g")
    assert not found.sure
    assert found.target == module.KNOWN_TARGET
    assert any("a pilot on your data says more" in doubt for doubt in found.doubts)
    assert any("there 368 clients train, here 8" in doubt for doubt in found.doubts)
    assert any("label skew" in doubt for doubt in found.doubts)
    assert len(found.best) == 5
    assert [one.seconds for one in found.best] == sorted(one.seconds for one in found.best)
    costs = RoundCosts(DATA, "small_cnn")
    for one in found.best:
        method = next(c.method() for c in CANDIDATES if c.name == one.name)
        assert (one.seconds, one.bytes) == costs.until(method, one.rounds, FLEETS["phone-4g"])
    assert json.loads(json.dumps(found.as_dict()))["best"][0]["name"] == found.best[0].name


def test_what_would_change_the_answer_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where computing and sending cost nothing but latency, who has the fewest hops in a row is first."""
    slow = Fleet(1e18, 1e15, 1e15, 1.0)
    found = advise(DATA, slow)
    hops = {}
    for candidate in CANDIDATES:
        rounds = -(-candidate.known_rounds // 1)
        planner = candidate.method().planner
        hops[candidate.name] = sum(planner.schedule(r, 8).longest for r in range(1, int(rounds) + 1))
    assert hops[found.best[0].name] == min(hops.values())
    assert found.best[0].seconds == pytest.approx(2.0 * min(hops.values()), rel=1e-3)


def test_near_estimates_are_not_told_apart() -> None:
    first, near, far = (Estimated(name, "", 1, seconds, 1.0, "") for name, seconds in (("a", 10.0), ("b", 11.0), ("c", 20.0)))
    assert module._doubts([first, near, far], 368, 0.0, True) == [
        "b would take at most 15 % longer than a, which is within the error"
    ]
    assert module._doubts([first, far], 368, 0.0, True) == []


def test_a_pilot_measures_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CANDIDATES", tuple(c for c in CANDIDATES if c.name in ("fedavg", "chains-then-adam")))
    lines: list[str] = []
    found = advise(DATA, "paper", target=0.3, pilot=3, told=lines.append)
    assert lines == ["trying fedavg for 3 rounds", "trying chains-then-adam for 3 rounds"]
    assert {one.name for one in found.best} | {line.split(":")[0] for line in found.left_out} == {"fedavg", "chains-then-adam"}
    assert all(one.basis != "as on femnist-368" for one in found.best)
    assert not any("femnist-368" in doubt for doubt in found.doubts)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [({"target": 1.5}, "between 0 and 1"), ({"pilot": -1}, "pilot must be a whole number of at least 0")],
)
def test_refusals(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        advise(DATA, **options)


def test_data_without_classes() -> None:
    with pytest.raises(InputError, match="has no classes"):
        advise(pairs([(1.0, 2.0)], [(2.0, 1.0)]))
