"""Counts of a round, worked out by hand."""

import pytest

from fedgsp.core.chain import Chain, ChainResult, HopReport
from fedgsp.core.errors import RunFailed
from fedgsp.engine.messages import HopSkipped
from fedgsp.run.round_totals import RoundTotals


def hop(client: int, place: int, samples: int, steps: int, loss: float) -> HopReport:
    return HopReport(client, place, samples, samples, steps, 10, 20, 0.0, {"loss": loss})


def results() -> list[ChainResult]:
    return [
        ChainResult(0, Chain((4, 5)), {}, (hop(4, 0, 3, 1, 1.0), hop(5, 1, 1, 1, 5.0))),
        ChainResult(1, Chain((6,)), {}, (hop(6, 0, 4, 3, 2.0),)),
    ]


def test_sums_and_the_longest_chain() -> None:
    totals = RoundTotals()
    for result in results():
        totals.add(result)
    assert (totals.chains, totals.clients, totals.samples, totals.steps, totals.serial_steps) == (2, 3, 8, 5, 3)
    assert totals.train_loss() == (3 * 1.0 + 1 * 5.0 + 4 * 2.0) / 8


def test_arrival_does_not_change_the_loss() -> None:
    totals, reverse = RoundTotals(), RoundTotals()
    for result in results():
        totals.add(result)
    for result in results()[::-1]:
        reverse.add(result)
    assert totals.train_loss() == reverse.train_loss()


def test_skipped_clients_in_the_order_of_the_plan() -> None:
    totals = RoundTotals()
    for chain, place, client in ((1, 0, 2), (0, 1, 1), (0, 0, 0)):
        totals.note(HopSkipped(1, chain, place, client, "late", 7))
    assert [one["name"] for one in totals.skipped_clients(["a", "b", "c"])] == ["a", "b", "c"]


def test_two_chains_that_say_what_one_client_keeps_stop_the_run() -> None:
    totals, chain = RoundTotals(), Chain((0,))
    totals.add(ChainResult(0, chain, {}, (hop(0, 0, 1, 1, 0.0),), client_versions={0: "1-a"}))
    with pytest.raises(RunFailed, match="trains in two chains of one round, so the state it keeps would depend on which"):
        totals.add(ChainResult(1, chain, {}, (hop(0, 0, 1, 1, 0.0),), client_versions={0: "1-b"}))
