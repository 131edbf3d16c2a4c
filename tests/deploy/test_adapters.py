"""LoRA over real warm nodes: hops carry the adapter's bytes, and the base goes once to the one site that has another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("flwr")
pytest.importorskip("peft")

import fedgsp
from fedgsp.deploy.local import LocalDeployment, ended_run
from fedgsp.deploy.settings import read_deployment
from tests.support import lora
from tests.support.real_deployments import deployment
from tests.support.waiting import until

pytestmark = pytest.mark.slow

ROUNDS = 3
SMALL = 100_000
"""More than the facts of all messages, and far less than the base."""


def test_only_the_adapter_travels_and_the_base_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]), prepend=":")
    place = deployment(tmp_path / "fed", 2, data="glyphs:clients=2", rounds=ROUNDS, model=lora.ADAPTED)
    place.config.write_text(place.config.read_text().replace("eval_every = 1", f"eval_every = {ROUNDS}"))
    for name in place.sites():
        settings = place.site(name) / "site.toml"
        settings.write_text(settings.read_text().replace('# models = ["small_cnn"]', f'models = ["{lora.ADAPTED}"]'))
    start = place.site("site-1") / "start.sh"
    start.write_text(start.read_text().replace("set -eu", f"set -eu; export {lora.OTHER_BASE}=1"))
    run = place.runs / "lora"
    with LocalDeployment(place, print) as processes:
        processes.start_server()
        processes.start_nodes(place.sites())
        number = processes.submit(run, resume=False)
        until(lambda: ended_run(processes.link, number) is not None, 1200, f"{ROUNDS} rounds")
        flower = processes.link.run(number)
    result = json.loads((run / "result.json").read_text())
    assert result["status"] == "finished", result["cause"]

    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert not [event for event in events if event["event"] in ("skipped", "turned_away")]
    hops = [event for event in events if event["event"] == "hop"]
    assert len(hops) == 2 * ROUNDS
    assert {(hop["down"], hop["up"]) for hop in hops} == {(lora.adapter_bytes(), lora.adapter_bytes())}

    assert flower is not None  # what the SuperLink has moved to nodes and from them, by its own count
    down = (len(hops) + 2) * lora.adapter_bytes() + lora.base_bytes()  # both score the last model; one was sent the base
    assert down <= flower.bytes_sent
    assert flower.bytes_sent < down + 2 * lora.adapter_bytes() + SMALL < 2 * lora.base_bytes()
    assert (
        len(hops) * lora.adapter_bytes() <= flower.bytes_received < len(hops) * lora.adapter_bytes() + SMALL < lora.base_bytes()
    )

    config, _ = read_deployment(place.config)
    local = fedgsp.train(
        config.method, "glyphs:clients=2", lora.ADAPTED, rounds=ROUNDS, seed=config.run.seed, eval_every=ROUNDS, workers=0
    )  # fmt: skip
    assert result["model"] == local.facts["model"]
