"""Units: done once, gone on with after any stop, never overwritten, shared between names."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fedgsp
from fedgsp.core.errors import InputError
from fedgsp.cost import FLEETS, run_cost
from fedgsp.run import lifecycle
from fedgsp.run.build import RunBuilder
from fedgsp.run.config import DataSection, ModelSection, RunConfig, RunSection
from fedgsp.run.flops import flops_per_sample
from fedgsp.run.reader import read_log
from fedgsp.study.units import computed_unit, key_of, trace_unit
from tests.support import tiny

DATA = tiny.federation()
OBJECTS = RunBuilder(data=DATA)


def config(rounds: int = 4, seed: int = 0, lr: float = 0.05, workers: int = 0) -> RunConfig:
    return RunConfig(
        run=RunSection(rounds=rounds, seed=seed, workers=workers),
        data=DataSection("memory"),
        model=ModelSection(tiny.LINEAR),
        method=tiny.chains(lr),
    )


class StopAfter(fedgsp.Callback):
    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def on_round_end(self, entry: dict[str, Any]) -> None:
        if entry["round"] == self.rounds:
            raise KeyboardInterrupt


def figures(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in entry.items() if key != "timings"} for entry in history]


def test_a_finished_unit_is_only_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = trace_unit(config(), tmp_path / "u", OBJECTS)
    monkeypatch.setattr(lifecycle, "start", None)
    monkeypatch.setattr(lifecycle, "resume", None)
    again = trace_unit(config(), tmp_path / "u", OBJECTS)
    assert again == first
    fewer = trace_unit(config(rounds=2), tmp_path / "u", OBJECTS)
    assert fewer.history == first.history[:2]
    assert fewer.seconds["paper"] == first.seconds["paper"][:2]


def test_a_stopped_unit_goes_on_to_the_same_figures(tmp_path: Path) -> None:
    whole = trace_unit(config(), tmp_path / "whole", OBJECTS)
    with pytest.raises(KeyboardInterrupt):
        trace_unit(config(), tmp_path / "u", OBJECTS, [StopAfter(2)])
    assert figures(trace_unit(config(), tmp_path / "u", OBJECTS).history) == figures(whole.history)


def test_stops_on_the_way_change_nothing(tmp_path: Path) -> None:
    whole = trace_unit(config(), tmp_path / "whole", OBJECTS)
    in_parts = trace_unit(config(), tmp_path / "parts", OBJECTS, stops=[1, 3])
    assert figures(in_parts.history) == figures(whole.history)
    ends = [line["round"] for line in read_log(tmp_path / "parts", "events") if line["event"] == "finished"]
    assert ends == [1, 3, 4]


def test_a_unit_that_was_killed_beyond_a_stop_goes_on(tmp_path: Path) -> None:
    """Stops depend on the speed of the machine, so they are others the next time."""
    whole = trace_unit(config(), tmp_path / "whole", OBJECTS)
    for name, asked, stops in (("u", 4, [1, 2]), ("fewer", 2, [])):
        with pytest.raises(KeyboardInterrupt):
            trace_unit(config(), tmp_path / name, OBJECTS, [StopAfter(3)], stops=[1])
        (tmp_path / name / "result.json").unlink()
        assert figures(trace_unit(config(asked), tmp_path / name, OBJECTS, stops=stops).history) == figures(
            whole.history[:asked]
        )


def test_data_that_moved_and_parts_of_another_name(tmp_path: Path) -> None:
    """The folder is told where the data is now, so that it can go on."""
    with pytest.raises(KeyboardInterrupt):
        trace_unit(config(), tmp_path / "u", OBJECTS, [StopAfter(2)])
    moved = replace(config(), data=DataSection("elsewhere"), method=replace(tiny.chains(0.05), name="other"))
    assert len(trace_unit(moved, tmp_path / "u", OBJECTS).history) == 4
    assert 'source = "elsewhere"' in (tmp_path / "u" / "config.toml").read_text()


def test_seconds_on_fleets_are_those_of_the_cost_model(tmp_path: Path) -> None:
    found = trace_unit(config(), tmp_path / "u", OBJECTS)
    flops = flops_per_sample(OBJECTS.build(config()))
    events = read_log(tmp_path / "u", "events")
    for name, fleet in FLEETS.items():
        for rounds in (1, 4):
            expected = run_cost(events, fleet, flops, 1, rounds)
            assert found.seconds[name][rounds - 1] == pytest.approx(expected.seconds, abs=1e-5)
            assert found.computing[name][rounds - 1] == pytest.approx(expected.computing, abs=1e-5)


def test_without_the_event_log_what_was_kept_is_enough(tmp_path: Path) -> None:
    first = trace_unit(config(), tmp_path / "u", OBJECTS)
    (tmp_path / "u" / "events.jsonl").unlink()
    assert trace_unit(config(), tmp_path / "u", OBJECTS) == first
    (tmp_path / "u" / "times.json").unlink()
    with pytest.raises(InputError, match="has no event log"):
        trace_unit(config(), tmp_path / "u", OBJECTS)


def test_divergence_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = trace_unit(config(lr=1e30), tmp_path / "u", OBJECTS)
    assert "smaller learning rate" in found.diverged
    monkeypatch.setattr(lifecycle, "start", None)
    assert trace_unit(config(lr=1e30), tmp_path / "u", OBJECTS).diverged == found.diverged


def test_what_decides_a_unit() -> None:
    key = key_of(config(), "f")
    assert key_of(config(rounds=9, workers=2), "f") == key
    assert key_of(replace(config(), method=replace(tiny.chains(0.05), name="x"), data=DataSection("y")), "f") == key
    others = [key_of(config(), "g"), key_of(config(seed=1), "f"), key_of(config(lr=0.1), "f")]
    others.append(key_of(replace(config(), data=DataSection("memory", validation=0.2)), "f"))
    others.append(key_of(replace(config(), run=replace(config().run, holdout_clients=1)), "f"))
    assert len({key, *others}) == 6


def test_computing_is_done_once_and_again_if_it_was_cut_short(tmp_path: Path) -> None:
    calls = []

    def work() -> dict[str, int]:
        calls.append(1)
        return {"answer": 42}

    assert [computed_unit(tmp_path / "c", work) for _ in range(2)] == [{"answer": 42}] * 2
    assert len(calls) == 1
    (tmp_path / "c" / "unit.json").write_text('{"schema": 1, "resu')
    assert computed_unit(tmp_path / "c", work) == {"answer": 42}
    (tmp_path / "c" / "unit.json").write_text(json.dumps({"schema": 99, "result": 0}))
    assert computed_unit(tmp_path / "c", work) == {"answer": 42}
    assert len(calls) == 3
