"""How a deployment's run ended is said in a sentence that names the cause and what to type next."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support import tiny

pytest.importorskip("flwr")

import fedgsp
from fedgsp.core.errors import InputError, RunFailed
from fedgsp.deploy import conduct
from fedgsp.deploy.conduct import Outcome, new_run, run_to_resume
from fedgsp.deploy.layout import Deployment
from fedgsp.deploy.local import started_run, submission
from fedgsp.deploy.status import run_status
from fedgsp.deploy.superlink import FlowerRun


@pytest.fixture
def place(tmp_path: Path) -> Deployment:
    return Deployment(tmp_path, "127.0.0.1:1", "127.0.0.1:1", one_machine=True)


def trained(place: Deployment, name: str = "first") -> Path:
    run = place.runs / name
    fedgsp.train(tiny.chains(), tiny.federation(), tiny.linear, rounds=2, workers=0, out=run)
    return run


def ending(run: Path, kind: str, cause: str | None) -> None:
    with (run / "events.jsonl").open("a") as log:
        log.write(json.dumps({"event": kind, "at": 0.0, "round": 2, "cause": cause}) + "\n")


def outcome(run: Path, flower: FlowerRun | None = None) -> Outcome:
    return Outcome(run_status(run), flower, run)


def test_a_run_that_came_to_its_end_needs_no_words(place: Deployment) -> None:
    run = trained(place)
    outcome(run).explained(place.root)
    with pytest.raises(InputError, match="has come to its end"):
        run_to_resume(place)


@pytest.mark.parametrize(("kind", "words"), [("paused", "paused after 2 of 2"), ("failed", "ended after 2 of 2")])
def test_a_run_that_stopped_names_the_cause_and_how_to_go_on(place: Deployment, kind: str, words: str) -> None:
    run = trained(place)
    ending(run, kind, "only 3 of 90 samples were trained")
    with pytest.raises(RunFailed, match=f"{words}.*only 3 of 90 samples.*fedgsp deploy resume {place.root}"):
        outcome(run).explained(place.root)
    assert run_to_resume(place) == run


def test_a_killed_app_leaves_no_words_of_its_own(place: Deployment) -> None:
    run = trained(place)
    ending(run, "resumed", None)  # begun again, and then silent
    with pytest.raises(RunFailed, match="the server's app was stopped; go on with"):
        outcome(run).explained(place.root)
    said = FlowerRun(1, "finished", "failed", "No heartbeat received.", 0, 0)
    with pytest.raises(RunFailed, match="No heartbeat received"):
        outcome(run, said).explained(place.root)


def test_a_run_that_never_began(place: Deployment) -> None:
    said = FlowerRun(1, "finished", "failed", "ServerApp failed: no such model", 0, 0)
    with pytest.raises(RunFailed, match="did not begin: ServerApp failed: no such model"):
        Outcome(None, said, place.runs / "none").explained(place.root)


def test_there_must_be_a_run_to_go_on_with(place: Deployment) -> None:
    with pytest.raises(InputError, match="no run to go on with"):
        run_to_resume(place)


def test_names_of_runs_do_not_collide(place: Deployment) -> None:
    first = new_run(place, "fedgsp+prox")
    first.mkdir(parents=True)
    assert new_run(place, "fedgsp+prox") != first
    assert first.parent == place.runs


def test_what_is_submitted_and_what_the_answer_means(place: Deployment) -> None:
    command = submission(place, place.runs / "x", True)
    assert command[1:3] == ["run", str(place.app)]
    assert "resume=true" in command[-1]
    assert f'run-dir="{place.runs / "x"}"' in command[-1]
    assert started_run('note\n{"success": true, "run-id": "17"}\n') == 17
    with pytest.raises(RunFailed, match="did not start the run: no such place"):
        started_run('{"success": false, "error-message": "no such place"}')
    with pytest.raises(RunFailed, match="Connection refused"):
        started_run("Connection refused")


@pytest.mark.parametrize("known", [True, False])
def test_a_run_of_a_superlink_that_was_killed_is_waited_for_until_its_app_lets_go(
    place: Deployment, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:  # fmt: skip
    run = trained(place)
    ending(run, "failed", "it cannot reach the SuperLink")
    (place.root / "submitted.json").write_text(json.dumps({"schema": 1, "run": str(run), "number": 7}))
    looks = iter([True, True, True])
    monkeypatch.setattr(conduct, "is_held", lambda path: next(looks, False))
    going_on = FlowerRun(7, "running", "", "", 0, 0) if known else None
    monkeypatch.setattr(conduct, "control", lambda place: SimpleNamespace(run=lambda number: going_on))
    monkeypatch.setattr(conduct, "LOOK_SECONDS", 0.0)
    run_to_resume(place, 2)
    assert len(list(looks)) == (2 if known else 0)
