"""Epsilon: the library's own figures, in the journal, in a forecast and as a budget; and what would make a promise void."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import dp_accounting
import pytest
from dp_accounting import rdp
from matplotlib.figure import Figure

import fedgsp
from fedgsp.client import UpdateNoise
from fedgsp.core.errors import InputError
from fedgsp.method import Method
from fedgsp.methods import decode_method, named
from fedgsp.plan import OneChain, Switch
from fedgsp.report.build import read_runs
from fedgsp.report.lane_figure import draw_rounds, group_counts
from fedgsp.report.page import build
from fedgsp.report.payload import payload
from fedgsp.run.accounting import ORDERS, Ledger, Ledgers, RoundCost
from fedgsp.run.reader import read_log
from fedgsp.server import Mean, Private, ScaffoldServer
from tests.support import tiny

PRIVATE = Private(Mean(), clip=0.5, noise=2.0)


def method(**changes: Any) -> Method:
    base = named("fedavg")
    return replace(base, server=replace(PRIVATE, **changes), local=replace(base.local, lr=0.05, batch_size=3))


def theirs(groups: int, chains: int, noise: float, rounds: int, delta: float = 1e-5) -> float:
    """The library asked with all its orders."""
    accountant = rdp.RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
    gaussian = dp_accounting.GaussianDpEvent(noise)
    event = gaussian if chains == groups else dp_accounting.SampledWithoutReplacementDpEvent(groups, chains, gaussian)
    accountant.compose(event, rounds)
    return float(accountant.get_epsilon(delta))


def test_a_hundred_rounds_against_the_librarys_own_figure() -> None:
    """100 of 1,000 clients, deviation of 4 clips: 2 times the 2 clips that other samples of a client can change the sum by."""
    ledger = Ledger("epsilon", Private(Mean(), noise=4.0), sampled=True)
    epsilon = ledger.forecast([RoundCost(1000, 100, 1)] * 100)
    assert epsilon == pytest.approx(theirs(1000, 100, 2.0, 100), abs=2e-4)
    assert epsilon == 5.3791  # as dp-accounting 0.6.0 has it


class TestPoisson:
    """Each client trains with a probability, whatever becomes of the others."""

    @staticmethod
    def method(kappa: float = 0.3, **changes: Any) -> Method:
        base = method(**changes)
        return replace(base, planner=replace(base.planner, sampling="poisson", kappa=kappa))  # type: ignore[type-var]

    def test_the_librarys_own_published_divergences(self) -> None:
        """50 rounds, share 0.01, deviation 2.5: dp-accounting's test_compute_rdp_poisson_sampled_gaussian has these."""
        published = {5: 2.18075656e-03, 50: 2.38460375e-02}
        accountant = rdp.RdpAccountant(list(published), dp_accounting.NeighboringRelation.REPLACE_SPECIAL)
        ledger = Ledger("epsilon", Private(Mean(), noise=2.5), sampled=True, poisson=True)
        ledger._composed(accountant, RoundCost(1000, 7, 1, 0.01), 50)
        assert accountant._rdp.tolist() == pytest.approx(list(published.values()), rel=1e-6)

    def test_a_hundred_rounds_against_the_librarys_own_figure(self) -> None:
        """Each of 1,000 clients with probability 0.1, deviation of 1 clip."""
        ledger = Ledger("epsilon", Private(Mean(), noise=1.0), sampled=True, poisson=True)
        epsilon = ledger.forecast([RoundCost(1000, 93, 1, 0.1)] * 100)
        accountant = rdp.RdpAccountant()  # all its orders, and a client that is there or not
        accountant.compose(dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(1.0)), 100)
        theirs = float(accountant.get_epsilon(1e-5))
        assert theirs <= epsilon <= theirs * 1.02  # of fewer orders the best is a little worse
        assert ledger.forecast([RoundCost(1000, 0, 1, 0.1)] * 100) == epsilon  # who came does not matter

    def test_a_run_also_through_rounds_in_which_nobody_trains(self, tmp_path: Path) -> None:
        chosen, out = self.method(kappa=0.15), tmp_path / "run"
        result = fedgsp.train(chosen, tiny.federation(), tiny.linear, rounds=8, workers=0, out=out)
        trained = [entry["sampled"] for entry in result.history]
        assert 0 in trained
        assert len(set(trained)) > 2
        assert {entry["share"] for entry in result.history} == {0.15}
        ledger = Ledger("epsilon", PRIVATE, sampled=True, poisson=True)
        assert result.history[-1]["epsilon"] == ledger.forecast([RoundCost(8, 1, 1, 0.15)] * 8)
        assert any(f"epsilon {result.history[-1]['epsilon']:g} after 8 rounds" in note for note in result.run.notes)
        assert fedgsp.replay(out, workers=0, data=tiny.federation(), model=tiny.linear).differs is None
        states = [entry["state"] for entry in result.history]
        assert len(set(states)) == 8, "noise is added in every round, whoever trains"
        (view,) = read_runs([out])
        assert (view.status, view.damage) == ("finished", [])
        nobody = next(plan for plan in view.plans if not plan["chains"])
        view.plans = [nobody, *view.plans, nobody]
        build(payload([view]), "made")
        draw_rounds(Figure(), [nobody], None, None)
        assert group_counts(view, nobody).shape == (0, tiny.CLASSES)
        cut = tmp_path / "cut"
        fedgsp.train(chosen, tiny.federation(), tiny.linear, rounds=4, workers=0, out=cut)
        again = fedgsp.resume(cut, rounds=8, workers=0, data=tiny.federation(), model=tiny.linear)
        assert [entry["state"] for entry in again.history] == states
        assert again.history[-1]["epsilon"] == result.history[-1]["epsilon"]

    def test_where_it_would_not_be_worth_what_it_says_it_is_refused(self) -> None:
        chained = replace(named("stp-random"), server=PRIVATE)
        chained = replace(chained, planner=replace(chained.planner, sampling="poisson"))  # type: ignore[type-var]
        plain = replace(self.method(), server=Mean())
        mixed = replace(self.method(), planner=Switch(OneChain(), self.method().planner))
        for chosen, sentence in ((chained, "chains of one client"), (plain, "for the server rule"), (mixed, "in all rounds")):
            with pytest.raises(InputError, match=sentence):
                fedgsp.train(chosen, tiny.federation(12), tiny.linear, rounds=1, workers=0)
        with pytest.raises(InputError, match="leave out chains"):
            replace(self.method().planner, chains=3)  # type: ignore[type-var]


def test_a_journal_that_does_not_say_what_was_spent_is_not_gone_on_from() -> None:
    for odd in ({}, {"groups": 8, "sampled": "2", "visits": 1}, {"groups": 8, "sampled": 2, "visits": 1, "share": 7}):
        with pytest.raises(InputError, match="does not say what round 1 cost"):
            Ledgers(method(), [{"round": 1, **odd}])


def test_without_sampling_it_is_the_gaussian_mechanism_whose_cost_is_known() -> None:
    """RDP of a Gaussian: a / 2 s^2 at order a; T of them: T a / 2 s^2 (Mironov 2017). Its conversion bounds epsilon."""
    rounds, noise, delta = 10, 8.0, 1e-5
    rho = rounds / (2 * (noise / 2) ** 2)
    classic = min(a * rho + math.log(1 / delta) / (a - 1) for a in ORDERS)
    for sampled in (True, False):
        rule = Private(Mean(), noise=noise, delta=delta) if sampled else UpdateNoise(noise=noise, delta=delta)
        epsilon = Ledger("epsilon", rule, sampled=sampled).forecast([RoundCost(5, 5, 1)] * rounds)
        assert 0.7 * classic < epsilon <= classic
    twice = Ledger("epsilon", UpdateNoise(noise=noise), sampled=False).forecast([RoundCost(5, 5, 2)] * (rounds // 2))
    assert twice == epsilon  # passes count


def test_the_journal_has_what_is_spent_and_resuming_goes_on_from_it(tmp_path: Path) -> None:
    whole = fedgsp.train(method(), tiny.federation(), tiny.linear, rounds=3, workers=0, out=tmp_path / "whole")
    spent = [entry["epsilon"] for entry in whole.history]
    assert spent == sorted(spent)
    assert spent[-1] == pytest.approx(theirs(8, 2, 1.0, 3), abs=2e-4)
    assert any(f"epsilon {spent[-1]:g} after 3 rounds" in note for note in whole.run.notes)
    out = tmp_path / "cut"
    fedgsp.train(method(), tiny.federation(), tiny.linear, rounds=2, workers=0, out=out)
    fedgsp.resume(out, rounds=3, workers=0, data=tiny.federation(), model=tiny.linear)
    assert [entry["epsilon"] for entry in read_log(out, "journal")] == spent
    assert fedgsp.replay(out, workers=0, data=tiny.federation(), model=tiny.linear).differs is None


def test_a_secret_key_replays_and_resumes(tmp_path: Path) -> None:
    out = tmp_path / "run"
    fedgsp.train(method(secret=True), tiny.federation(), tiny.linear, rounds=1, workers=0, out=out)
    fedgsp.resume(out, rounds=2, workers=0, data=tiny.federation(), model=tiny.linear)
    assert fedgsp.replay(out, workers=0, data=tiny.federation(), model=tiny.linear).differs is None
    again = fedgsp.train(method(secret=True), tiny.federation(), tiny.linear, rounds=2, workers=0)
    assert again.state.digest() != fedgsp.resume(out, workers=0, data=tiny.federation(), model=tiny.linear).state.digest()


def test_with_a_secret_key_nobody_can_compute_who_is_drawn(tmp_path: Path) -> None:
    """Eight rounds of 2 of 8 clients: the same seed draws the same clients, secret keys draw others each time."""
    drawn = []
    for number, secret in enumerate((False, False, True, True)):
        out = tmp_path / str(number)
        fedgsp.train(method(secret=secret), tiny.federation(), tiny.linear, rounds=8, workers=0, out=out, eval_every=8)
        drawn.append([line["chains"] for line in read_log(out, "plans") if "chains" in line])
    assert drawn[0] == drawn[1]
    assert drawn[2] != drawn[3] != drawn[0] != drawn[2]


def test_a_run_stops_with_a_sentence_when_its_budget_is_spent(tmp_path: Path) -> None:
    two, three = (Ledger("epsilon", PRIVATE, sampled=True).forecast([RoundCost(8, 2, 1)] * n) for n in (2, 3))
    rule = method(budget=(two + three) / 2)
    result = fedgsp.train(rule, tiny.federation(), tiny.linear, rounds=5, workers=0, out=tmp_path / "run")
    assert (result.status, result.rounds) == ("paused", 2)
    assert f"the privacy budget is spent: epsilon is {two:g} after 2 rounds" in result.facts["cause"]
    assert any("ends the run after round 2" in note for note in result.run.notes)
    again = fedgsp.resume(tmp_path / "run", workers=0, data=tiny.federation(), model=tiny.linear)
    assert (again.status, again.rounds) == ("paused", 2)


def test_local_noise_counts_every_round_a_client_may_train() -> None:
    chosen = tiny.chains()
    chosen = replace(chosen, local=replace(chosen.local, privacy=UpdateNoise(noise=4.0)))
    result = fedgsp.train(chosen, tiny.federation(), tiny.linear, rounds=2, workers=0)
    assert result.history[-1]["epsilon_local"] == pytest.approx(theirs(1, 1, 2.0, 2), abs=2e-4)


def test_another_attempt_at_a_round_costs_clients_who_noise_themselves_another_time() -> None:
    for rule, sampled in ((PRIVATE, True), (UpdateNoise(noise=4.0), False)):
        ledger = Ledger("epsilon", rule, sampled=sampled)
        ledger.plan(1, RoundCost(8, 2, 1))
        ledger.plan(2, RoundCost(8, 2, 1))
        first = ledger.after(2)
        ledger.plan(2, RoundCost(8, 2, 2))
        assert (ledger.after(2) == first) == sampled
        assert ledger.after(2) == ledger.forecast([RoundCost(8, 2, 1), RoundCost(8, 2, 2)])


@pytest.mark.parametrize(
    ("server", "base", "sentence"),
    [
        (PRIVATE, "fedgsp", "needs chains that do not depend on the clients' samples"),
        (PRIVATE, "fedseq", "needs chains that do not depend on the clients' samples"),
        (PRIVATE, "data-sharing", "shows samples of clients to others"),
        (ScaffoldServer(PRIVATE), "scaffold", "must be the outermost"),
    ],
)
def test_what_would_make_the_promise_void_is_refused(server: Any, base: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        fedgsp.train(replace(named(base), server=server), "glyphs:clients=6,seed=1", rounds=1, workers=0)


def test_chains_of_random_groups_are_accounted_by_their_groups() -> None:
    rule = replace(named("stp-random"), server=PRIVATE)
    result = fedgsp.train(rule, tiny.federation(12), tiny.linear, rounds=2, workers=0)
    sizes = [RoundCost(entry["groups"], entry["sampled"], entry["visits"]) for entry in result.history]
    assert result.history[-1]["epsilon"] == Ledger("epsilon", PRIVATE, sampled=True).forecast(sizes)


def test_a_run_without_mechanisms_has_no_ledger_and_needs_no_library() -> None:
    assert Ledgers(named("fedgsp")).all == []


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(InputError, match=r"pip install 'fedgsp\[privacy\]'"):
        fedgsp.train(method(), tiny.federation(), tiny.linear, rounds=1, workers=0)


def test_both_are_spelled_in_a_config_file() -> None:
    table = {
        "name": "fedavg",
        "server": {"kind": "private", "clip": 0.5, "noise": 2.0, "server": {"kind": "adam"}},
        "local": {"kind": "prox", "privacy": {"kind": "update-noise", "noise": 3.0}},
    }
    made = decode_method(table)
    assert isinstance(made.server, Private)
    assert made.local.privacy == UpdateNoise(noise=3.0)
    assert decode_method(made.encode()) == made
    assert isinstance(named("fedavg+adam+private").server, Private)
