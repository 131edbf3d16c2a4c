"""The planner `hand-over` over a Grid: the bits of a local run, and clients that skipped others would make neighbours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fedgsp.client import Prox
from fedgsp.core.errors import InputError
from fedgsp.deploy.strategy import FedGSP
from fedgsp.plan import HandOver
from tests.support.grid_deployments import chains, deployment

APART = ((0, 1), (2, 5))


@pytest.mark.parametrize("wire", ["float32", "float16"])
def test_a_deployment_has_the_bits_of_a_local_run_and_replays(wire: str, tmp_path: Path) -> None:
    base = chains(2, Prox(lr=0.05, batch_size=3, mu=0.1))
    method = replace(base, planner=HandOver(base.planner, APART, 2))
    there = deployment(tmp_path, method, clients=6, rounds=2, settings={"wire": wire})
    result = there.serve()
    assert result.status == "finished"
    assert not there.events("skipped")
    assert there.replay().differs is None
    if wire == "float32":
        assert [entry["state"] for entry in result.history] == [entry["state"] for entry in there.local().history]


@pytest.mark.parametrize("least", [1, 2])
def test_who_would_become_a_neighbour_since_others_were_skipped_is_skipped_too(least: int, tmp_path: Path) -> None:
    """Only 3, 2, 1, 0 and its reverse are right, and 2 fails."""
    base = chains(1)
    method = replace(base, planner=HandOver(base.planner, ((0, 3), (1, 3), (0, 2)), least))
    there = deployment(tmp_path, method, clients=4, rounds=1, settings={"quorum": 0.1})
    there.grid.fault = lambda node, message: (
        "raises" if (node.number, message.metadata.message_type) == (102, "train") else "ok"
    )
    result = there.serve()
    assert result.status == "finished"
    causes = {event["client"]: event["cause"] for event in there.events("skipped")}
    handed_on = [event["client"] for event in there.events("hop")]
    assert 2 in causes
    for first, second in zip(handed_on[least - 1 :], handed_on[least:], strict=False):
        assert frozenset((first, second)) not in {frozenset(pair) for pair in ((0, 3), (1, 3), (0, 2))}
    if least == 1:
        assert "it must not be handed the model of client" in causes[next(client for client in causes if client != 2)]
    assert there.replay().differs is None


def test_a_strategy_over_clients_of_ones_own_refuses_it() -> None:
    base = chains(2)
    with pytest.raises(InputError, match="needs clients of fedgsp's own"):
        FedGSP(method=replace(base, planner=HandOver(base.planner, APART)))._method()
