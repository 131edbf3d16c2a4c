"""Following a run that another process drives shows what that process would have shown."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import tiny
from rich.console import Console

import fedgsp
from fedgsp.cli.display import LiveDisplay, PlainLines
from fedgsp.cli.follow import Follower
from fedgsp.run.observers import Observer


class Looking(Observer):
    """Looks at the directory after every hop and round, as a follower beside the run would."""

    def __init__(self, follower: Follower, live: LiveDisplay | None = None) -> None:
        self._follower, self._live = follower, live
        self.seen: list[str] = []

    def event(self, event: object) -> None:
        self._look()

    def round_done(self, entry: object) -> None:
        self._look()

    def _look(self) -> None:
        self._follower.look()
        if self._live is not None:
            console = Console(file=io.StringIO(), width=100)
            console.print(self._live._view())
            assert isinstance(console.file, io.StringIO)
            self.seen.append(console.file.getvalue())


def test_plain_lines_are_those_of_the_run_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    follower = Follower(tmp_path / "run", PlainLines())
    fedgsp.train(
        tiny.chains(), tiny.federation(), tiny.linear, rounds=3, workers=0, out=tmp_path / "run", observers=[Looking(follower)]
    )
    follower.close()
    followed = capsys.readouterr().out.splitlines()
    fedgsp.train(tiny.chains(), tiny.federation(), tiny.linear, rounds=3, workers=0, observers=[PlainLines()])
    itself = capsys.readouterr().out.splitlines()
    assert followed[0].startswith("tiny-gsp: 3 rounds, 8 clients")
    cut = [line.rpartition("  ")[0] for line in itself[1:]]  # seconds differ
    assert [line.rpartition("  ")[0] for line in followed[1:]] == cut
    assert len(cut) == 3


def test_the_live_view_advances_with_the_chains(tmp_path: Path) -> None:
    live = LiveDisplay(Console(file=io.StringIO(), width=100, force_terminal=True))
    follower = Follower(tmp_path / "run", live)
    looking = Looking(follower, live)
    fedgsp.train(tiny.chains(), tiny.federation(), tiny.linear, rounds=2, workers=0, out=tmp_path / "run", observers=[looking])
    follower.close()
    assert any("1/4" in text for text in looking.seen)  # the first chain of four clients has advanced by one
    assert "2/2" in looking.seen[-1]
    assert "accuracy 0." in looking.seen[-1]


def test_faults_are_told_by_the_clients_names_and_old_ones_not_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    run = tmp_path / "run"
    fedgsp.train(tiny.chains(), tiny.federation(), tiny.linear, rounds=1, workers=0, out=run)

    def happen(**facts: object) -> None:
        with (run / "events.jsonl").open("a") as log:
            log.write(json.dumps(facts) + "\n")

    happen(event="skipped", round=1, chain=0, hop=1, client=3, cause="an old one")
    happen(event="resumed", at=0.0, round=1)
    follower = Follower(run, PlainLines())
    follower.look()
    happen(event="skipped", round=2, chain=0, hop=1, client=5, cause="late")
    follower.look()
    follower.look()
    follower.close()
    said = capsys.readouterr().out
    assert "going on after round 1" in said
    assert "an old one" not in said
    assert said.count("round 2: site-05 skipped: late") == 1


def test_before_the_run_has_begun_there_is_nothing_to_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    follower = Follower(tmp_path / "none", PlainLines())
    follower.look()
    follower.close()
    assert capsys.readouterr().out == ""
