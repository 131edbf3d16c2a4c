"""Prometheus metrics: what the newest run's journal and event log say, over real HTTP."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from tests.support import tiny

pytest.importorskip("prometheus_client")

import fedgsp
from fedgsp.core.errors import InputError
from fedgsp.deploy.layout import Deployment
from fedgsp.deploy.metrics import MetricsServer
from fedgsp.deploy.status import run_status


@pytest.fixture
def place(tmp_path: Path) -> Deployment:
    """A deployment with one finished run of three rounds."""
    made = Deployment(tmp_path, "127.0.0.1:1", "127.0.0.1:1")
    fedgsp.train(tiny.chains(), tiny.federation(), tiny.linear, rounds=3, workers=0, out=made.runs / "first")
    return made


def scraped(url: str) -> dict[str, float]:
    with urllib.request.urlopen(url, timeout=300) as answer:
        lines = answer.read().decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def event(run: Path, **facts: object) -> None:
    with (run / "events.jsonl").open("a") as log:
        log.write(json.dumps(facts) + "\n")


def test_figures_are_those_of_the_journal(place: Deployment) -> None:
    run = place.runs / "first"
    history = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
    with MetricsServer(place, "127.0.0.1", 0) as server:
        found = scraped(server.url)
    who = 'method="tiny-gsp",run="first"'
    assert found[f"fedgsp_round{{{who}}}"] == 3
    assert found[f"fedgsp_rounds_planned{{{who}}}"] == 3
    assert found[f"fedgsp_last_accuracy{{{who}}}"] == history[-1]["accuracy"]
    assert found[f"fedgsp_last_train_loss{{{who}}}"] == history[-1]["train_loss"]
    assert found[f'fedgsp_run_status{{{who},status="finished"}}'] == 1
    assert found[f'fedgsp_run_status{{{who},status="running"}}'] == 0
    assert found[f"fedgsp_hops_total{{{who}}}"] == sum(entry["clients"] for entry in history)
    up_and_down = sum(found[f'fedgsp_bytes_total{{direction="{way}",{who}}}'] for way in ("down", "up"))
    assert up_and_down == history[-1]["bytes_total"]


def test_faults_are_counted_by_kind_of_cause_as_they_happen(place: Deployment) -> None:
    run = place.runs / "first"
    who = 'method="tiny-gsp",run="first"'
    with MetricsServer(place, "127.0.0.1", 0) as server:
        assert not any("fedgsp_faults_total" in name for name in scraped(server.url))
        event(run, event="skipped", round=3, chain=0, hop=1, client=2, cause="late: no answer within 31.5 s")
        event(run, event="skipped", round=3, chain=1, hop=0, client=4, cause="late: no answer within 12 s")
        found = scraped(server.url)
        assert found[f'fedgsp_faults_total{{cause="late",kind="skipped",{who}}}'] == 2
        assert scraped(server.url) == {**found, **{k: v for k, v in scraped(server.url).items() if k.startswith("python")}}
    assert run_status(run).faults == {
        "site-02": {"skipped: late: no answer within 31.5 s": 1},
        "site-04": {"skipped: late: no answer within 12 s": 1},
    }


def test_a_newer_run_takes_its_place(place: Deployment) -> None:
    with MetricsServer(place, "127.0.0.1", 0) as server:
        assert any('run="first"' in name for name in scraped(server.url))
        fedgsp.train(tiny.chains(), tiny.federation(), tiny.linear, rounds=1, workers=0, out=place.runs / "second")
        names = scraped(server.url)
        assert any('run="second"' in name for name in names)
        assert not any('run="first"' in name for name in names)


def test_before_there_is_a_run_there_is_nothing(tmp_path: Path) -> None:
    with MetricsServer(Deployment(tmp_path, "127.0.0.1:1", "127.0.0.1:1"), "127.0.0.1", 0) as server:
        assert scraped(server.url) == {}


def test_a_port_in_use_is_a_sentence(place: Deployment) -> None:
    with MetricsServer(place, "127.0.0.1", 0) as server:
        port = int(server.url.split(":")[2].split("/")[0])
        with pytest.raises(InputError, match="cannot serve metrics"):
            MetricsServer(place, "127.0.0.1", port)


def test_status_of_a_run(place: Deployment) -> None:
    found = run_status(place.runs / "first")
    assert (found.status, found.round, found.rounds, found.score, found.resumable) == ("finished", 3, 3, "accuracy", False)
