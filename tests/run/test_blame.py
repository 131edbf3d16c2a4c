"""An exception in a user's code ends in a sentence with its place, with the traceback behind it, wherever the code ran."""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedgsp
from fedgsp.core.errors import InputError, Paused, RemoteTraceback, RunFailed
from fedgsp.method import Method
from fedgsp.plan import Grouped, Linear, Random
from fedgsp.server import Mean, Update
from tests.support import grid_deployments, tiny
from tests.support.user_rules import rule_text

RULES = rule_text('if ctx.client == 4:\n    raise ValueError("no such class")\nreturn None')
PLACE = r"ValueError: no such class \(rules\.py:13, in loss_term\)"


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The user's own `rules.py`."""
    (tmp_path / "rules.py").write_text(RULES)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("rules", None)  # another test's
    yield importlib.import_module("rules")
    del sys.modules["rules"]


def events(out: Path, kind: str) -> list[dict[str, Any]]:
    lines = (out / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def train(method: Method, out: Path | None = None, **more: Any) -> Any:
    common: dict[str, Any] = {"rounds": 1, "workers": 0, "fast": "off", **more}
    return fedgsp.train(method, tiny.federation(), common.pop("model", tiny.linear), out=out, **common)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("fast", ["off", "auto"])
def test_a_rule_that_raises(rules: Any, tmp_path: Path, workers: int, fast: str) -> None:
    out, method = tmp_path / "run", tiny.static(2, rules.Mine(lr=0.05, batch_size=3))
    with pytest.raises(RunFailed, match=rf"^client 'site-04' failed .*in round 1: {PLACE}\. The model of round 0") as failed:
        train(method, out, workers=workers, fast=fast)
    assert str(out / "events.jsonl") in str(failed.value)
    assert "--debug" not in str(failed.value)  # that is the command line's
    cause = failed.value.__cause__
    assert isinstance(cause, RemoteTraceback if workers else ValueError)
    assert 'raise ValueError("no such class")' in shown(failed.value)
    (ending,) = events(out, "failed")
    assert "line 13, in loss_term" in ending["trace"]
    assert "no such class (rules.py:13, in loss_term)" in ending["cause"]
    assert [event["client"] for event in events(out, "lost")] == ([4, 4] if workers else [])


def test_without_a_directory_there_is_no_file_to_name(rules: Any) -> None:
    with pytest.raises(RunFailed, match=rf"{PLACE}\.$"):
        train(tiny.static(2, rules.Mine(lr=0.05, batch_size=3)))


def test_a_rule_that_raises_at_a_site(rules: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The real ClientApp over an in-process Grid: the site is skipped, and the line in the log says why."""
    there = grid_deployments.deployment(
        tmp_path, grid_deployments.chains(2, rules.Mine(lr=0.05, batch_size=3)), rounds=1, sites={"methods": ["rules:Mine"]}
    )  # fmt: skip
    assert there.serve().status == "finished"
    (skipped,) = there.events("skipped")
    assert skipped["client"] == 4
    assert skipped["cause"] == "it failed: ValueError (rules.py:13, in loss_term)"
    assert 'raise ValueError("no such class")' in capfd.readouterr().err


@dataclass(frozen=True)
class BadGrouper(Random):
    """Fails late: what fails at once is refused before anything is written (`run/part_checks.py`)."""

    def assign(self, counts: Any, n_groups: int, rng: np.random.Generator) -> Any:
        return super().assign(counts, n_groups, rng) if n_groups == 2 else np.zeros(3).reshape(2, 2)


@dataclass(frozen=True)
class BadServer(Mean):
    where: str = ""

    def init(self, model: Any, setting: Any = None) -> Any:
        self.fail("init")
        return super().init(model, setting)

    def start(self, state: Any, plan: Any, planned: Any) -> Any:
        self.fail("start")
        update = super().start(state, plan, planned)
        rule = self

        class Failing(Update):
            def add(self, result: Any) -> None:
                rule.fail("add")
                update.add(result)

            def finish(self) -> Any:
                rule.fail("finish")
                return update.finish()

        return Failing()

    def views(self, state: Any) -> Any:
        if state.round:
            self.fail("views")
        return super().views(state)

    def fail(self, at: str) -> None:
        if self.where == at:
            raise LookupError("not here")


def test_a_grouper_that_raises(tmp_path: Path) -> None:
    method = Method(Grouped(Linear(1.0, 2), BadGrouper(), kappa=1.0), tiny.static(2).local, Mean())
    told = r"^the planner .*BadGrouper.* failed .*round 2: ValueError: cannot reshape .* \(test_blame\.py:\d+, in assign\)\. "
    with pytest.raises(RunFailed, match=told) as failed:
        train(method, tmp_path / "run", rounds=3)
    assert isinstance(failed.value.__cause__, ValueError)
    assert "in assign" in events(tmp_path / "run", "failed")[0]["trace"]


@pytest.mark.parametrize("where", ["start", "add", "finish", "views"])
def test_a_server_rule_that_raises(where: str, tmp_path: Path) -> None:
    method = Method(tiny.static(2).planner, tiny.static(2).local, BadServer(where=where))
    told = r"^the server rule BadServer \(.*\) failed.*: LookupError: not here \(test_blame\.py:\d+, in fail\)\. The model"
    with pytest.raises(RunFailed, match=told) as failed:
        train(method, tmp_path / "run")
    assert isinstance(failed.value.__cause__, LookupError)
    assert "not here" in events(tmp_path / "run", "failed")[0]["trace"]


def test_a_server_rule_that_raises_before_anything_is_written(tmp_path: Path) -> None:
    method = Method(tiny.static(2).planner, tiny.static(2).local, BadServer(where="init"))
    told = r"^the server rule BadServer .*failed before round 1: LookupError: not here \(test_blame\.py:\d+, in fail\)\.$"
    with pytest.raises(InputError, match=told):
        train(method, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def failing_net(shape: tuple[int, ...], classes: int) -> torch.nn.Module:
    class Net(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x.reshape(len(x), 7))

    return Net(shape[0], classes)


def test_a_model_that_raises_when_it_is_checked() -> None:
    with pytest.raises(
        InputError, match=r"does not fit the data .*RuntimeError: .*\(test_blame\.py:\d+, in forward\)\.$"
    ) as no:
        train(tiny.static(2), model=failing_net)
    assert isinstance(no.value.__cause__, RuntimeError)


def _odd(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    if len(targets) <= 8:  # the batch that every metric is tried on before anything is written
        return torch.zeros(len(targets))
    raise KeyError("odd")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_metric_that_raises(workers: int, tmp_path: Path) -> None:
    loss = fedgsp.classification().loss
    task = fedgsp.Task("mine", loss, {"odd": _odd})
    told = r"^evaluation failed in round 1: KeyError: 'odd' \(test_blame\.py:\d+, in _odd\)\. The model of round 0"
    with pytest.raises(RunFailed, match=told) as failed:
        train(tiny.static(2), tmp_path / "run", task=task, workers=workers)
    assert "in _odd" in shown(failed.value)
    assert "in _odd" in events(tmp_path / "run", "failed")[0]["trace"]


class BadCallback(fedgsp.Callback):
    def __init__(self, hook: str) -> None:
        def fail(*arguments: Any) -> None:
            raise AttributeError("no plot")

        setattr(self, hook, fail)


@pytest.mark.parametrize("hook", ["on_run_start", "on_round_start", "on_hop_end", "on_evaluate_start", "on_round_end"])
def test_a_callback_that_raises(hook: str, tmp_path: Path) -> None:
    told = rf"^the callback BadCallback \(its '{hook}'\) failed: AttributeError: no plot \(test_blame\.py:\d+, in fail\)\."
    with pytest.raises(RunFailed, match=told):
        train(tiny.static(2), tmp_path / "run", callbacks=[BadCallback(hook)])
    assert "no plot" in events(tmp_path / "run", "failed")[0]["trace"]


def test_a_callback_that_raises_at_the_end_does_not_spoil_the_run(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=r"the callback BadCallback \(its 'on_run_end'\) failed"):
        train(tiny.static(2), tmp_path / "run", callbacks=[BadCallback("on_run_end")])
    assert not events(tmp_path / "run", "failed")
    assert json.loads((tmp_path / "run" / "result.json").read_text())["status"] == "finished"


def test_a_bug_of_ours_is_raised_as_it_is_and_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedgsp.run.round.planned_samples", int)  # called with a plan and data: a TypeError of ours
    with pytest.raises(TypeError):
        train(tiny.static(2), tmp_path / "run")
    (ending,) = events(tmp_path / "run", "failed")
    assert "round.py" in ending["cause"]
    assert "Traceback" in ending["trace"]
    assert json.loads((tmp_path / "run" / "result.json").read_text())["status"] == "failed"


def test_a_sentence_without_a_traceback_says_nothing_of_one(tmp_path: Path) -> None:
    there = grid_deployments.deployment(tmp_path, "fedavg", rounds=1)
    there.grid.fault = lambda node, message: "raises" if message.metadata.message_type == "train" else "ok"
    result = there.serve(wait_seconds=1.0, repeats=0)
    assert result.status == "paused"
    assert "trace" not in there.events("paused")[0]
    assert issubclass(Paused, RunFailed)
