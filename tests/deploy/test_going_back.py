"""A deployment that goes back to an earlier round: the same bits, a log without what was dropped, a replay that agrees."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedgsp.core.errors import InputError
from fedgsp.deploy.server_app import serve
from fedgsp.run.going_back import kept_rounds
from tests.support.grid_deployments import Deployment, chains, deployment


def back(fed: Deployment, round_: int) -> None:
    serve(fed.grid, fed.config, fed.settings, fed.run, resume=True, round_=round_, clock=fed.grid.clock)


def test_a_deployment_goes_back_to_an_earlier_round(tmp_path: Path) -> None:
    fed = deployment(tmp_path, chains(2), clients=4, rounds=5)
    first = fed.serve()
    assert kept_rounds(fed.run) == [0, 2, 4, 5]
    back(fed, 2)
    lines = [event["round"] for event in fed.events("round")]
    assert lines == [1, 2, 3, 4, 5]
    assert len(fed.events("resumed")) == 1
    assert fed.serve(resume=True).state.digest() == first.state.digest()
    assert fed.replay().differs is None


def test_sites_that_keep_states_have_only_the_last_two(tmp_path: Path) -> None:
    fed = deployment(tmp_path, "scaffold", clients=4, rounds=5)
    fed.serve()
    with pytest.raises(InputError, match="sites have only those of the last two rounds"):
        back(fed, 2)
    assert kept_rounds(fed.run) == [0, 2, 4, 5]
    back(fed, 4)
    assert fed.replay().differs is None
