"""Following a run that another process drives shows what that process would have shown."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path

import pytest
from rich.console import Console

import fedgsp
from fedgsp.cli.display import LiveDisplay, PlainLines
from fedgsp.cli.follow import Follower, show_status
from fedgsp.deploy.status import RunStatus, Status
from fedgsp.run.callbacks import Callback
from tests.support import tiny


class Looking(Callback):
    """Looks at the directory after every hop and round, as a follower beside the run would."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower

    def on_hop_end(self, hop: object) -> None:
        self._follower.look()

    def on_round_end(self, entry: object) -> None:
        self._follower.look()


def view_of(live: LiveDisplay) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(live._view())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def append(run: Path, event: dict[str, object]) -> None:
    with (run / "events.jsonl").open("a") as log:
        log.write(json.dumps(event) + "\n")


def test_plain_lines_are_those_of_the_run_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    follower = Follower(tmp_path / "run", PlainLines())
    fedgsp.train(
        tiny.chains(), tiny.federation(), tiny.linear, rounds=3, workers=0, out=tmp_path / "run", callbacks=[Looking(follower)]
    )
    follower.close()
    followed = capsys.readouterr().out.splitlines()
    fedgsp.train(tiny.chains(), tiny.federation(), tiny.linear, rounds=3, workers=0, callbacks=[PlainLines()])
    itself = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("note: ")]
    assert followed[0].startswith("tiny-gsp: 3 rounds, 8 clients")
    cut = [line.rpartition("  ")[0] for line in itself[1:]]  # seconds differ
    assert [line.rpartition("  ")[0] for line in followed[1:]] == cut
    assert len(cut) == 3


def test_the_live_view_advances_with_the_chains(tmp_path: Path) -> None:
    """A deployment's event log says how long the chains of a round under way are."""
    live = LiveDisplay(Console(file=io.StringIO(), width=100, force_terminal=True))
    run = tmp_path / "run"
    fedgsp.train(tiny.chains(), tiny.federation(), tiny.linear, rounds=1, workers=0, out=run)
    follower = Follower(run, live)
    follower.look()
    for event in (
        {"event": "round", "round": 2, "chains": 2, "hops": [5, 3]},
        {"event": "hop", "round": 2, "chain": 0, "hop": 0, "client": 4, "samples": 9, "down": 1, "up": 1},
        {"event": "skipped", "round": 2, "chain": 1, "hop": 1, "client": 7, "cause": "late"},
    ):
        append(run, event)
    follower.look()
    seen = view_of(live)
    follower.close()
    assert "1/5" in seen
    assert "2/3" in seen
    assert "1/1" in seen  # the round that was done before
    assert "accuracy 0." in seen


def test_faults_are_told_by_the_clients_names_and_old_ones_not_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    run = tmp_path / "run"
    fedgsp.train(tiny.chains(), tiny.federation(), tiny.linear, rounds=1, workers=0, out=run)

    append(run, {"event": "skipped", "round": 1, "chain": 0, "hop": 1, "client": 3, "cause": "an old one"})
    append(run, {"event": "resumed", "at": 0.0, "round": 1})
    member = {"number": 8, "name": "site-new", "version": "1", "train": 9, "validation": 0, "test": 1, "counts": None}
    follower = Follower(run, PlainLines())
    follower.look()
    append(run, {"event": "skipped", "round": 2, "chain": 0, "hop": 1, "client": 5, "cause": "late"})
    append(run, {"event": "sites", "members": [member], "left": [2]})
    append(run, {"event": "skipped", "round": 3, "chain": 0, "hop": 0, "client": 8, "cause": "gone"})
    follower.look()
    follower.look()
    follower.close()
    said = capsys.readouterr().out
    assert "going on after round 1" in said
    assert "an old one" not in said
    assert said.count("round 2: site-05 skipped: late") == 1
    assert "site-02 has left" in said
    assert "site-new has joined" in said
    assert "round 3: site-new skipped: gone" in said


def test_before_the_run_has_begun_there_is_nothing_to_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    follower = Follower(tmp_path / "none", PlainLines())
    follower.look()
    follower.close()
    assert capsys.readouterr().out == ""


def test_a_deployments_status_says_what_every_group_manager_does(capsys: pytest.CaptureFixture[str]) -> None:
    group = {"group": 0, "state": "training", "client": "north", "hop": 1, "hops": 3, "skipped": 0, "since": time.time() - 5}
    waiting = {**group, "group": 1, "state": "waiting", "hop": 0, "hops": 2, "skipped": 1}
    done = {**group, "group": 2, "state": "done", "hop": 2, "hops": 2}
    run = RunStatus(Path("runs/one"), "fedgsp", "running", 3, 9, None, None, "", {}, managers=(4, [group, waiting, done]))
    show_status(Status(local=False, processes=[], nodes=None, trouble="no answer", run=run), Path("fed"))
    shown = " ".join(capsys.readouterr().out.split())
    assert "round 4, group 0 hop 2 of 3: north has the model, training for 5" in shown
    assert "round 4, group 1 hop 1 of 2: waiting for 5" in shown
    assert ", 1 skipped round 4, group 2 done for 5" in shown
