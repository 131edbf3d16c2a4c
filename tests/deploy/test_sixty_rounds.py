"""The demo's sixty rounds over six warm nodes: nothing is skipped, repeated or joined twice, and the bits are a local run's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("flwr")

import fedgsp
from fedgsp.deploy import guardian
from fedgsp.deploy.local import LocalDeployment, ended_run
from fedgsp.deploy.settings import read_deployment
from tests.support.real_deployments import deployment
from tests.support.waiting import until

pytestmark = pytest.mark.slow

NODES, ROUNDS = 6, 60
HICCUPS = ("skipped", "below_quorum", "waiting", "resumed", "turned_away", "not_judged")


def test_sixty_rounds_without_a_hiccup(tmp_path: Path) -> None:
    place = deployment(tmp_path / "fed", NODES, data=f"glyphs:clients={NODES}", rounds=ROUNDS)
    patient = place.config.read_text().replace("eval_every = 1", "eval_every = 10")
    patient = patient.replace("# hop_seconds_floor = 60.0", "hop_seconds_floor = 600.0")
    patient = patient.replace("# silent_seconds = 7.0", "silent_seconds = 300.0")  # machines that run tests are busy
    place.config.write_text(patient)
    run = place.runs / "sixty"
    with LocalDeployment(place, print) as processes:
        processes.start_server()
        processes.start_nodes(place.sites())
        number = processes.submit(run, resume=False)
        until(lambda: ended_run(processes.link, number) is not None, 3600, f"{ROUNDS} rounds")
        assert processes.trouble() == []
    assert guardian.marked(processes.supervisor.mark) == {}

    result = json.loads((run / "result.json").read_text())
    assert result["status"] == "finished", result["cause"]
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert [event for event in events if event["event"] in HICCUPS] == []
    assert [event["round"] for event in events if event["event"] == "round"] == list(range(1, ROUNDS + 1))
    for name in place.sites():
        assert (place.root / "logs" / f"node-{name}.log").read_text().count("connected to") == 1

    config, _ = read_deployment(place.config)
    local = fedgsp.train(
        config.method, f"glyphs:clients={NODES}", config.model.name, rounds=ROUNDS, seed=config.run.seed, eval_every=10,
        workers=0,
    )  # fmt: skip
    assert result["model"] == local.facts["model"]
