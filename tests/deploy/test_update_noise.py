"""Noise of sites: from a key of their own, which never leaves them."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from flwr.app import RecordDict

from fedgsp.client import SGD, UpdateNoise
from fedgsp.core.errors import InputError
from fedgsp.engine.transports.flower.noise_key import FILE, noise_key
from fedgsp.engine.transports.flower.registration import introduce
from fedgsp.engine.transports.flower.run_spec import RunSpec
from fedgsp.engine.transports.flower.site import read_site
from fedgsp.engine.transports.flower.site_tasks import train
from fedgsp.engine.transports.flower.wire import Refused
from tests.support import tiny
from tests.support.grid_deployments import Deployment, chains, deployment


def test_a_deployment_whose_sites_noise_their_updates(tmp_path: Path) -> None:
    rule = SGD(lr=0.05, batch_size=3, privacy=UpdateNoise(clip=0.1, noise=0.5))
    fed = deployment(tmp_path, chains(2, rule), clients=3, rounds=1)
    result = fed.serve()
    assert result.history[-1]["epsilon_local"] > 0
    keys = {path.read_text() for path in tmp_path.rglob(FILE)}
    assert len(keys) == 3
    assert result.state.digest() != fed.local().state.digest()  # which draws from the seed that the server knows
    assert not any(key in path.read_text(errors="replace") for key in keys for path in fed.run.rglob("*") if path.is_file())
    with pytest.raises(InputError, match="keys of their own, so this run cannot be replayed"):
        fed.replay()


def test_a_key_is_made_once_and_is_the_owners(tmp_path: Path) -> None:
    key = noise_key(tmp_path / "state")
    assert noise_key(tmp_path / "state") == key
    assert len(key) == 8
    assert stat.S_IMODE((tmp_path / "state" / FILE).stat().st_mode) == 0o600
    (tmp_path / "state" / FILE).write_text("short")
    with pytest.raises(InputError, match="is not a key"):
        noise_key(tmp_path / "state")


def demanding(folder: Path, demand: str, rule: SGD) -> Deployment:
    """Four sites, of which the last has demands."""
    there = deployment(folder, chains(4, rule), clients=4, rounds=1, settings={"sites": 3})
    path = there.sites[3]
    path.write_text(path.read_text().replace("[privacy]", f"[privacy]\n{demand}"))
    return there


@pytest.mark.parametrize(
    ("demand", "privacy", "sentence"),
    [
        ("update_noise = 2.0", None, "noise of at least 2 clips), and this run's local rule adds none"),
        ("update_noise = 2.0", UpdateNoise(clip=0.1, noise=1.5), "noise of at least 2 clips), and this run's adds 1.5"),
        ("update_noise = 2.0\nupdate_clip = 0.05", UpdateNoise(clip=0.1, noise=3.0), "and this run's clip is 0.1"),
        ("update_clip = 0.5", None, "a clip of at most 0.5), and this run's local rule adds none"),
    ],
)
def test_a_site_that_demands_more_noise_than_the_run_adds_stays_away_and_says_why(
    demand: str, privacy: UpdateNoise | None, sentence: str, tmp_path: Path
) -> None:
    there = demanding(tmp_path, demand, SGD(lr=0.05, batch_size=3, privacy=privacy))
    result = there.serve()
    assert (result.status, result.history[0]["present"]) == ("finished", 3)
    (event,) = there.events("turned_away")
    assert event["cause"].startswith("the site 'site-03' trains only with update-noise (")
    assert sentence in event["cause"]


def test_a_site_whose_demands_are_met_trains(tmp_path: Path) -> None:
    rule = SGD(lr=0.05, batch_size=3, privacy=UpdateNoise(clip=0.1, noise=2.0))
    there = demanding(tmp_path, "update_noise = 2.0\nupdate_clip = 0.5", rule)
    assert there.serve(sites=4).history[0]["present"] == 4


def test_a_server_that_asks_without_asking_first_is_refused_too(tmp_path: Path) -> None:
    """A hello is no more than a hello: every message is checked, also for rules that send more than their model."""
    there = demanding(tmp_path, "update_noise = 2.0", SGD(lr=0.05, batch_size=3))
    site = read_site(there.sites[3])
    noised = {"kind": "update-noise", "clip": 0.1, "noise": 4.0}
    for rule, sentence in (
        ({"kind": "sgd", "lr": 0.05}, "adds none"),
        ({"kind": "sgd", "lr": 0.05, "privacy": {**noised, "noise": 0.1}}, "adds 0.1"),
        ({"kind": "scaffold", "lr": 0.05, "privacy": noised}, "sends more than its model"),
    ):
        spec = RunSpec("0" * 16, 0, rule, tiny.LINEAR, tiny.CLASSES, (tiny.FEATURES,))
        hello = introduce(site, {"run": spec.encode(), "number": 3}) if "sends" in sentence else {"version": ""}
        facts = {"run": spec.encode(), "round": 1, "client": 3, "version": hello["version"], "state": None}
        with pytest.raises(Refused, match=sentence):
            train(site, {**facts, "hop": 0, "repeat": 0, "first": True}, RecordDict())


def test_demands_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    there = demanding(tmp_path, "update_noise = -1.0", SGD(lr=0.05, batch_size=3))
    with pytest.raises(InputError, match="update_noise must be above 0"):
        read_site(there.sites[3])
