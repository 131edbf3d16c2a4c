"""`fedgsp deploy` and `fedgsp site` as an operator meets them, as far as no SuperLink is needed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from .conftest import Cli

pytest.importorskip("flwr")


@pytest.fixture
def place(cli: Cli, here: Path, tiny: str) -> Path:
    """A deployment of three sites with a shard each."""
    outcome = cli("deploy", "init", "fed", "--nodes", 3, "--data", tiny, "--address", "fed.example.org", "--rounds", 2)
    assert outcome.code == 0, outcome.err
    assert "README.md" in outcome.out
    return here / "fed"


@pytest.mark.parametrize(
    "command", [("deploy", "init", "x"), ("deploy", "local", "x"), ("deploy", "status", "x"), ("site", "check")]
)
def test_without_flower_one_sentence_says_what_to_install(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setitem(sys.modules, "flwr", None)
    outcome = cli(*command)
    assert outcome.code == 2
    assert outcome.err.count("\n") == 1
    assert "pip install 'fedgsp[flower]'" in outcome.err


def test_without_prometheus_one_sentence_says_what_to_install(cli: Cli, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("prometheus_client", "prometheus_client.core"):
        monkeypatch.setitem(sys.modules, name, None)
    outcome = cli("deploy", "metrics", place)
    assert outcome.code == 2
    assert "pip install 'fedgsp[metrics]'" in outcome.err


def test_insecure_is_only_by_the_flag_and_warns(cli: Cli, here: Path, tiny: str) -> None:
    outcome = cli("deploy", "init", "open", "--nodes", 2, "--data", tiny, "--insecure")
    assert outcome.code == 0
    assert "warning: INSECURE" in outcome.err
    assert "warning" not in cli("deploy", "init", "closed", "--nodes", 2, "--data", tiny).err


def test_sites_by_name_hold_the_clients_in_order(cli: Cli, here: Path, tiny: str) -> None:
    assert cli("deploy", "init", "fed", "--site", "north", "--site", "south", "--data", tiny).code == 0
    assert 'client = "1"' in (here / "fed/sites/south/site.toml").read_text()
    assert str(here / "tiny.npz") in (here / "fed/sites/south/site.toml").read_text()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--nodes", 0), "at least one node"),
        (("--nodes", 2, "--site", "a"), "not both"),
        (("--site", "a", "--site", "a"), "same name"),
        (("--site", "../a"), "cannot be the name of a site"),
        (("--nodes", 50), "too few for 50 sites"),
        (("--nodes", 2, "--method", "fedgps"), "fedgps"),
        (("--nodes", 2, "--address", "a b"), "--address"),
        (("--nodes", 2, "--config", "none.toml"), "none.toml"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_written(
    cli: Cli, here: Path, tiny: str, options: tuple[object, ...], sentence: str
) -> None:
    outcome = cli("deploy", "init", "fed", "--data", tiny, *options)
    assert outcome.code == 2
    assert sentence in outcome.err
    assert not (here / "fed").exists()


def test_a_configuration_of_ones_own_is_taken_as_it_is(cli: Cli, here: Path, tiny: str) -> None:
    mine = '# mine\nschema = 1\n[run]\nrounds = 3\n[method]\nname = "fedavg"\n[deploy]\n'
    (here / "mine.toml").write_text(mine)
    assert cli("deploy", "init", "fed", "--nodes", 2, "--data", tiny, "--config", "mine.toml").code == 0
    assert (here / "fed/server/fedgsp.toml").read_text() == mine
    both = cli("deploy", "init", "other", "--nodes", 2, "--data", tiny, "--config", "mine.toml", "--rounds", 4)
    assert "cannot both be given" in both.err
    (here / "mine.toml").write_text("[deploy]\nquorumm = 1\n")
    assert "quorumm" in cli("deploy", "init", "other", "--nodes", 2, "--data", tiny, "--config", "mine.toml").err


def test_status_says_that_nobody_answers(cli: Cli, place: Path) -> None:
    outcome = cli("deploy", "status", place)
    assert outcome.code == 0
    assert "nobody answers as a SuperLink at 127.0.0.1:9443" in outcome.unwrapped
    assert "none yet" in outcome.out
    facts = json.loads(cli("deploy", "status", place, "--json").out)
    assert facts["superlink"]["reachable"] is False
    assert facts["run"] is None


def test_commands_that_need_a_server_say_how_to_start_it(cli: Cli, place: Path) -> None:
    assert "start.sh" in cli("deploy", "run", place).err
    assert cli("deploy", "register", place).code == 1
    assert "no run to go on with" in cli("deploy", "resume", place).err
    assert "several machines" in cli("deploy", "local", place).err
    assert "no run was submitted" in cli("deploy", "stop", place).err
    assert "not a deployment" in cli("deploy", "status", "elsewhere").err


def test_a_site_is_checked_offline(cli: Cli, place: Path) -> None:
    outcome = cli("site", "check", place / "sites/site-1", "--offline")
    assert outcome.code == 0, outcome.out
    assert "ready to join" in outcome.out
    assert "9 training and 1 test samples" in outcome.out
    assert "uint8 of shape [8, 8]" in outcome.out


def test_a_site_makes_its_own_key(cli: Cli, place: Path, here: Path) -> None:
    site = place / "sites/site-1"
    assert "exists already" in cli("site", "key", site).err
    for name in ("node.key", "node.pub"):
        (site / name).unlink()
    assert cli("site", "key", site).code == 0
    assert cli("site", "check", site, "--offline").code == 0
