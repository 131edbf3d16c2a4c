"""The cost model: the paper's arithmetic (docs/methods-reference.md), and runs on a fleet worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fedgsp
from fedgsp.core.errors import InputError
from fedgsp.cost import FLEETS, PAPER, Fleet, costs_by_round, fleet_named, paper_costs, planned_cost, run_cost
from fedgsp.plan import Log, RoundSizes, Singletons
from fedgsp.run.build import RunBuilder
from fedgsp.run.config import DataSection, ModelSection, RunConfig
from fedgsp.run.flops import flops_per_sample
from tests.support import tiny

FEDGSP = paper_costs(Log(2, 10), 368, 34, 0.3)
FEDAVG = paper_costs(Singletons(), 368, 470, 0.3)


def test_the_papers_arithmetic_to_80_percent() -> None:
    assert pytest.approx(2669, abs=0.5) == FEDGSP.communication
    assert pytest.approx(36898, abs=1) == FEDAVG.communication
    assert pytest.approx(189.2e9, rel=5e-4) == FEDGSP.traffic
    assert pytest.approx(2615.2e9, rel=5e-5) == FEDAVG.traffic
    assert (FEDGSP.training, FEDGSP.aggregation) == pytest.approx((10.184, 0.006), abs=5e-4)
    assert (FEDAVG.training, FEDAVG.aggregation) == pytest.approx((17.984, 0.571), abs=5e-4)
    assert (FEDGSP.computing, FEDAVG.computing) == pytest.approx((10.19, 18.56), abs=0.006)


def test_the_papers_93_percent_is_the_ratio_of_rounds() -> None:
    assert 1 - FEDGSP.communication / FEDAVG.communication == pytest.approx(0.9277, abs=5e-5)
    assert 1 - FEDGSP.total / FEDAVG.total == pytest.approx(0.9274, abs=5e-5)
    assert pytest.approx(FEDGSP.traffic / FEDAVG.traffic) == 34 / 470


def test_at_equal_rounds_the_order_turns() -> None:
    assert paper_costs(Log(2, 10), 368, 500, 0.3).computing == pytest.approx(69.1, abs=0.05)
    assert paper_costs(Singletons(), 368, 500, 0.3).computing == pytest.approx(19.7, abs=0.05)


def test_kappa_hardly_touches_computing_and_scales_communication() -> None:
    small, large = (paper_costs(Log(2, 10), 368, 500, kappa) for kappa in (0.1, 1.0))
    assert large.computing / small.computing == pytest.approx(1, abs=0.02)
    assert large.communication / small.communication == pytest.approx(10)


def hop(round_: int, chain: int, number: int, samples: int) -> dict[str, Any]:
    return {"event": "hop", "round": round_, "chain": chain, "hop": number, "samples": samples, "down": 1000, "up": 500}


EVENTS: list[dict[str, Any]] = [
    {"event": "started"},
    {"event": "round", "round": 1},
    hop(1, 0, 0, 99),  # an attempt that was cut short
    {"event": "round", "round": 1},
    hop(1, 0, 0, 10),
    hop(1, 1, 0, 40),
    hop(1, 0, 1, 20),
    hop(1, 0, 0, 10),  # walked again after a worker died
    hop(1, 0, 1, 20),
    {"event": "round", "round": 2},
    hop(2, 0, 0, 5),
]
SLOW = Fleet(device_flops=100.0, down_bits=8000.0, up_bits=2000.0, latency=0.5)


def test_a_run_takes_as_long_as_its_longest_chains() -> None:
    cost = run_cost(EVENTS, SLOW, flops_per_sample=10.0, epochs=2, rounds=2)
    # a hop moves 1 s down and 2 s up, and waits 1 s; chain 0 of round 1 trains 30 samples (6 s), chain 1 trains 40 (8 s)
    assert cost.chains == pytest.approx(max(6 + 2 * 4, 8 + 4) + (1 + 4))
    assert cost.computing == pytest.approx(6 + 1)
    assert cost.seconds == cost.chains
    assert (cost.rounds, cost.visits, cost.traffic) == (2, 4, 4 * 1500)


def test_a_narrow_server_link_is_shared_by_all_chains() -> None:
    narrow = Fleet(100.0, 8000.0, 2000.0, 0.5, server_bits=1200.0)
    cost = run_cost(EVENTS, narrow, 10.0, 2, rounds=1)
    assert cost.seconds == pytest.approx(3 * 1500 * 8 / 1200)
    assert cost.chains == pytest.approx(14)


def test_device_to_device_moves_a_model_once_between_clients() -> None:
    direct = Fleet(100.0, 8000.0, 2000.0, 0.5, relay="direct")
    cost = run_cost(EVENTS, direct, 10.0, 2, rounds=1)
    # chain 0: down 1 s, one hand-over of 500 bytes at 2000 bit/s (2 s), up 2 s, three waits; chain 1: 8 + 1 + 2 + 2 waits
    assert cost.chains == pytest.approx(max(6 + 1 + 2 + 2 + 1.5, 8 + 1 + 2 + 1))
    assert cost.traffic == (1000 + 500) * 2


def test_rounds_are_also_told_one_by_one() -> None:
    by_round = costs_by_round(EVENTS, SLOW, 10.0, 2, rounds=2)
    assert {r: cost.chains for r, cost in by_round.items()} == pytest.approx({1: 14, 2: 5})
    assert {r: (cost.rounds, cost.visits) for r, cost in by_round.items()} == {1: (1, 3), 2: (1, 1)}


class TestPlanned:
    """Two chains of at most three clients, five clients in all, walked twice; ten samples a client, a model of 1,000 bytes."""

    ROW = RoundSizes(round=1, wanted=2, groups=2, shortest=2, longest=3, grouped=5, sampled=2, trained=5, passes=2)

    def test_the_longest_chain_is_walked_as_often_as_said(self) -> None:
        cost = planned_cost([self.ROW, self.ROW], SLOW, 10.0, 1, 10.0, 1000)
        # six hops a round: 1 s of computing, 1 s down, 4 s up and 1 s of waiting each
        assert cost.chains == pytest.approx(2 * 6 * 7)
        assert cost.computing == pytest.approx(2 * 6)
        assert (cost.rounds, cost.visits, cost.traffic) == (2, 20, 20 * 2000)

    def test_a_shared_link_and_device_to_device(self) -> None:
        shared = planned_cost([self.ROW], Fleet(100.0, 8000.0, 2000.0, 0.5, server_bits=100.0), 10.0, 1, 10.0, 1000)
        assert shared.seconds == pytest.approx(10 * 2000 * 8 / 100)
        direct = planned_cost([self.ROW], Fleet(100.0, 8000.0, 2000.0, 0.5, relay="direct"), 10.0, 1, 10.0, 1000)
        assert direct.traffic == 2 * 2000  # down once and up once for each chain


def test_a_fleet_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "ward.toml"
    file.write_text('device_flops = 1e9\ndown_bits = 2e6\nup_bits = 1e6\nrelay = "direct"\n')
    assert fleet_named(str(file)) == Fleet(1e9, 2e6, 1e6, 0.0, relay="direct")
    for text, words in {
        "device_flops = 1e9": "does not say 'down_bits'",
        "device_flop = 1": "did you mean 'device_flops'",
        'device_flops = "fast"': "must be a number, not 'fast'",
        "device_flops = = 1": "not valid TOML",
    }.items():
        file.write_text(text)
        with pytest.raises(InputError, match=words):
            fleet_named(str(file))
    with pytest.raises(InputError, match="cannot read the fleet"):
        fleet_named(str(tmp_path / "none.toml"))


def test_bad_fleets_and_old_logs_are_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'phone-4g'"):
        fleet_named("phone-5g")
    with pytest.raises(InputError, match="device_flops must be positive"):
        Fleet(0, 1, 1, 0)
    with pytest.raises(InputError, match="latency must not be negative"):
        Fleet(1, 1, 1, -1)
    with pytest.raises(InputError, match="relay must be"):
        Fleet(1, 1, 1, 0, relay="pigeon")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="without the bytes"):
        run_cost([{"event": "round", "round": 1}, {"event": "hop", "round": 1, "chain": 0, "hop": 0}], SLOW, 1, 1, 1)


def test_the_paper_fleet_has_the_papers_figures() -> None:
    assert FLEETS["paper"].device_flops == PAPER.device_flops
    assert FLEETS["paper"].server_bits == PAPER.bits_in


def test_torch_counts_leafs_cnn_as_specs_does() -> None:
    run = RunBuilder().build(RunConfig(data=DataSection("glyphs:clients=2"), model=ModelSection("leaf_cnn")))
    assert flops_per_sample(run) == 3 * 34_423_808


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from fedgsp.cli.main import main

    source = str(tiny.write_npz(tmp_path / "data.npz"))
    for method in ("fedgsp", "fedavg"):
        fedgsp.train(method, source, "tests.support.tiny:linear", rounds=2, workers=0, out=tmp_path / method)
    arguments = [
        "cost",
        str(tmp_path / "fedgsp"),
        str(tmp_path / "fedavg"),
        "--fleet",
        "phone-4g",
        "--server-mbps",
        "0",
        "--json",
    ]
    monkeypatch.setattr("sys.argv", ["fedgsp", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    told = json.loads(capsys.readouterr().out)
    assert told["fleet"]["server_bits"] is None
    assert [run["rounds"] for run in told["runs"]] == [2, 2]
    history = [json.loads(line) for line in (tmp_path / "fedgsp" / "journal.jsonl").read_text().splitlines()]
    assert told["runs"][0]["traffic"] == history[-1]["bytes_total"]
    assert told["runs"][0]["paper"]["traffic"] == pytest.approx(2 * 0.3 * 8 * 25.2e6 * 2)
    monkeypatch.setattr("sys.argv", ["fedgsp", *arguments[:-1]])
    with pytest.raises(SystemExit):
        main()
    assert "through the server" in capsys.readouterr().out
