"""What a person sees while a run goes on."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

import fedgsp
from fedgsp.cli.display import LiveDisplay, PlainLines, show_summary, size, sparkline
from fedgsp.engine import HopDone, WorkerLost
from fedgsp.progress import duration
from tests.support import tiny


class Snapshots(LiveDisplay):
    """Keeps what the live view looked like after every hop and round."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.seen: list[str] = []

    def on_hop_end(self, hop: HopDone) -> None:
        super().on_hop_end(hop)
        self.snap()

    def on_round_end(self, entry: dict[str, object]) -> None:
        super().on_round_end(entry)
        self.snap()

    def snap(self) -> None:
        console = Console(file=io.StringIO(), width=100)
        console.print(self._view())
        file = console.file
        assert isinstance(file, io.StringIO)
        self.seen.append(file.getvalue())


def test_the_live_view_shows_rounds_chains_and_a_sparkline() -> None:
    view = Snapshots(Console(file=io.StringIO(), width=100, force_terminal=True))
    fedgsp.train(tiny.chains(), tiny.federation(), tiny.linear, rounds=3, workers=0, callbacks=[view])
    assert "0/3" in view.seen[0]
    assert "chain 1" in view.seen[0]
    assert any("1/4" in text for text in view.seen)  # the first chain of four clients has advanced by one
    last = view.seen[-1]
    assert "3/3" in last
    assert "accuracy 0." in last
    assert any(bar in last for bar in "▁▂▃▄▅▆▇█")


def test_many_chains_share_one_bar() -> None:
    view = Snapshots(Console(file=io.StringIO(), width=100, force_terminal=True))
    fedgsp.train(tiny.static(14), tiny.federation(clients=14), tiny.linear, rounds=1, workers=0, callbacks=[view])
    assert "14 chains" in view.seen[0]
    assert "1/14" in view.seen[0]


def test_plain_lines_for_pipes(capsys: pytest.CaptureFixture[str]) -> None:
    lines = PlainLines()
    fedgsp.train(tiny.chains(), tiny.federation(), tiny.linear, rounds=2, workers=0, callbacks=[lines])
    lines.on_failure(WorkerLost(1, 0, 4, "its worker was killed"))
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("tiny-gsp: 2 rounds, 8 clients")
    assert printed[1].startswith("round    1/2  groups    2")
    assert "accuracy 0." in printed[1]
    assert printed[-1] == "round 1: chain 0 is run again: its worker was killed"


def test_a_capped_schedule_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    fedgsp.train("fedgsp", tiny.federation(), tiny.linear, rounds=2, workers=0, callbacks=[PlainLines()])
    assert "asks for 10 groups in round 1, and 8 clients train; --growth length" in capsys.readouterr().out


def test_the_summary_says_what_where_and_what_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    result = fedgsp.train(
        tiny.chains(), tiny.federation(), tiny.linear, rounds=3, workers=0, out=out, target_accuracy=0.2
    )  # fmt: skip
    show_summary(result)
    text = capsys.readouterr().out
    for expected in ("finished after 3 rounds", "(round 3), last round ", "target 0.2", "handed on", "peak memory"):
        assert expected in text
    assert f"fedgsp resume {out}" in text


def test_figures_as_a_person_says_them() -> None:
    assert [duration(s) for s in (0.44, 59.9, 61, 3700)] == ["0.4 s", "59 s", "1 min 01 s", "1 h 01 min"]
    assert [size(n) for n in (999, 26_414_840, 2.6e12)] == ["999 B", "26.4 MB", "2.6 TB"]
    assert sparkline([0.0, 0.5, 1.0]) == "▁▄█"
    assert sparkline([]) == ""
    assert len(sparkline([1.0] * 100)) == 40
