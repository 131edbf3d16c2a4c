from __future__ import annotations

import pytest

import fedgsp
from fedgsp.client import SGD
from fedgsp.core.errors import InputError
from fedgsp.core.state import Setting
from fedgsp.core.tensors import digest
from fedgsp.methods import named
from fedgsp.server import Adam, Averaged, DynServer, Mean, Momentum, ScaffoldServer, WarmStart, Yogi
from fedgsp.server.adaptive import FIRST, SECOND, STEPS
from tests.support.hand_computed import START, THREE, slope, trained
from tests.support.small_federations import aggregate, images, vector


def test_plain_means_first_then_fresh_moments_on_paper() -> None:
    """Means 4 and 6; then Delta = 2 with m = 0, v = tau^2: m = 1, v = 1/2 + 2, w = 6 + 1 / (sqrt 2.5 + 1)."""
    rule = WarmStart(Adam(lr=1.0, beta1=0.5, beta2=0.5, tau=1.0), rounds=2)
    state = rule.init(vector(0.0), Setting(clients=1))
    for value in (4.0, 6.0):
        state = aggregate(rule, state, [vector(value)], [1])
        assert state.model["w"].item() == value
        assert state.slots[FIRST]["w"].item() == 0.0
        assert state.slots[SECOND]["w"].item() == 1.0
    state = aggregate(rule, state, [vector(8.0)], [1])
    assert state.model["w"].item() == pytest.approx(6 + 1 / (2.5**0.5 + 1))
    assert state.extra[STEPS] == 1


def test_moments_may_see_the_plain_rounds_on_paper() -> None:
    """Delta = 4 and a plain mean: m = 2, v = 1/2 + 8 = 8.5. Then Delta = 2: m = 2, v = 6.25, w = 4 + 2 / (2.5 + 1)."""
    rule = WarmStart(Adam(lr=1.0, beta1=0.5, beta2=0.5, tau=1.0), fresh=False)
    state = aggregate(rule, rule.init(vector(0.0), Setting(clients=1)), [vector(4.0)], [1])
    assert (state.model["w"].item(), state.slots[FIRST]["w"].item(), state.slots[SECOND]["w"].item()) == (4.0, 2.0, 8.5)
    state = aggregate(rule, state, [vector(6.0)], [1])
    assert state.model["w"].item() == pytest.approx(4 + 2 / 3.5)
    assert state.extra[STEPS] == 2


def test_the_first_update_stays_out_of_v() -> None:
    """A first update of 10, then ones of 0.1: FedAdam's v is about 1 for long, with a warm start it is about 1e-4."""
    plain, warm = Adam(beta1=0.0, beta2=0.99), WarmStart(Adam(beta1=0.0, beta2=0.99))
    seen = {}
    for name, rule in (("plain", plain), ("warm", warm)):
        state = rule.init(vector(0.0), Setting(clients=1))
        state = aggregate(rule, state, [vector(state.model["w"].item() + 10.0)], [1])
        for _ in range(5):
            state = aggregate(rule, state, [vector(state.model["w"].item() + 0.1)], [1])
        seen[name] = state.slots[SECOND]["w"].item()
    assert seen["plain"] == pytest.approx(0.95, abs=0.06)
    assert seen["warm"] == pytest.approx(5e-4, rel=0.1)


def test_weights_of_the_plain_rounds() -> None:
    models, samples = [vector(0.0), vector(4.0)], [3, 1]
    for weights, mean in (("samples", 1.0), ("uniform", 2.0)):
        rule = WarmStart(Adam(), weights=weights)  # type: ignore[arg-type]
        state = aggregate(rule, rule.init(vector(0.0), Setting(clients=2)), models, samples)
        assert state.model["w"].item() == mean


def test_rounds_against_the_algorithm_written_out() -> None:
    lr, w, m, v = 0.1, START, 0.0, 0.0
    for round_ in range(4):
        moves = []
        for x, y, n in THREE:
            one = w
            for _ in range(n):
                one -= lr * slope(x, y, one)
            moves.append((one - w, n))
        delta = sum(move * n for move, n in moves) / sum(n for _, n in moves)
        if round_ < 2:
            w, m, v = w + delta, 0.0, 0.01
            continue
        m, v = 0.7 * m + 0.3 * delta, 0.9 * v + 0.1 * delta * delta
        w += 0.05 * m / (v**0.5 + 0.1)
    rule = WarmStart(Adam(lr=0.05, beta1=0.7, beta2=0.9, tau=0.1), rounds=2)
    assert trained(SGD(lr=lr, batch_size=1), rule, rounds=4) == pytest.approx(w, abs=1e-5)


def test_a_rule_that_copies_the_model_begins_with_the_warm_one() -> None:
    """FedExP keeps the mean of the last two models: after the start it is that of the warm model, not of the initial one."""
    rule = WarmStart(named("fedexp").server)
    state = aggregate(rule, rule.init(vector(0.0), Setting(clients=1)), [vector(8.0)], [1])
    assert state.slots["mean of the last two"]["w"].item() == 8.0


def test_what_goes_around_it_keeps_what_it_has() -> None:
    rule = Averaged(WarmStart(Adam(), rounds=2), decay=0.5)
    state = rule.init(vector(0.0), Setting(clients=1))
    for value in (8.0, 2.0):
        state = aggregate(rule, state, [vector(value)], [1])
    assert state.slots["average of models"]["w"].item() == pytest.approx((4 + 2) / 1.5)


def test_all_rounds_plain_is_the_mean_and_none_is_the_rule_inside() -> None:
    data = images(clients=6)

    def model(server: object) -> str:
        method = fedgsp.named("fedavg")
        return digest(fedgsp.train(fedgsp.Method(method.planner, SGD(lr=0.05), server), data, rounds=2, workers=0).state.model)  # type: ignore[arg-type]

    assert model(WarmStart(Adam(), rounds=9)) == model(Mean())
    assert model(WarmStart(Adam(), rounds=0)) == model(Adam())
    assert len({model(WarmStart(Yogi())), model(Yogi()), model(Mean())}) == 3


def test_a_run_that_is_resumed_in_the_start_ends_alike(tmp_path: object) -> None:
    data, method = images(clients=6), named("fedadam+warm")
    straight = fedgsp.train(method, data, rounds=3, workers=0)
    fedgsp.train(method, data, rounds=1, workers=0, out=f"{tmp_path}/run")
    longer = fedgsp.resume(f"{tmp_path}/run", rounds=3, data=data, method=method)
    assert longer.state.digest() == straight.state.digest()


def test_names() -> None:
    assert named("fedadam+warm").server == WarmStart(Adam())
    assert named("fedyogi+warm+averaged").server == Averaged(WarmStart(Yogi()))
    assert named("fedavgm+averaged+warm").server == WarmStart(Averaged(Momentum())), "the last one is outside"
    assert named("fedadam+warm+scaffold").server == ScaffoldServer(WarmStart(Adam()))


def test_refusals() -> None:
    with pytest.raises(InputError, match="rounds must be a whole number of at least 0"):
        WarmStart(rounds=-1)
    with pytest.raises(InputError, match="weights must be"):
        WarmStart(weights="size")  # type: ignore[arg-type]
    for half in (ScaffoldServer(), DynServer()):
        with pytest.raises(InputError, match="half of a method"):
            WarmStart(half)
