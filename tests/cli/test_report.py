"""`fedgsp report`, `run --report`, `run --watch` and the loggers, as a person meets them."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest


def train(cli: Any, tiny: str, out: str, *more: str) -> Any:
    options = ("--data", f"npz:{tiny}", "--rounds", "2", "--workers", "0", "--kappa", "1")
    return cli("run", *options, "--out", out, *more)


def test_a_report_of_one_run_is_inside_it_and_its_place_is_said(cli: Any, tiny: str, here: Path) -> None:
    assert train(cli, tiny, "run", "--quiet").code == 0
    done = cli("report", "run")
    assert done.code == 0
    assert "report: run/report.html" in done.unwrapped
    assert "1 run)" in done.unwrapped
    assert (here / "run" / "report.html").read_text().startswith("<!doctype html>")


def test_a_run_can_end_with_a_report(cli: Any, tiny: str, here: Path) -> None:
    done = train(cli, tiny, "run", "--report")
    assert done.code == 0
    assert done.out.splitlines()[-1] == "report: run/report.html"
    assert (here / "run" / "report.html").exists()


def test_several_runs_make_one_page_and_figures_come_in_both_formats(cli: Any, tiny: str, here: Path) -> None:
    for method in ("fedavg", "fedgsp"):
        assert train(cli, tiny, f"study/{method}", "--quiet", "--method", method).code == 0
    done = cli("report", "study/fedavg", "study/fedgsp", "--out", "page.html", "--figures", "figures", "--title", "Two")
    assert done.code == 0, done.err
    names = {path.stem for path in (here / "figures").iterdir()}
    assert names == {
        "curves-rounds", "curves-steps", "curves-traffic", "curves-time", "lanes", "class-shares", "cpd", "costs", "clients",
    }  # fmt: skip
    for name in names:
        assert (here / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (here / "figures" / f"{name}.svg").read_text()
    assert '<h1 id="title">Two</h1>' in (here / "page.html").read_text()


def test_figures_repeat_to_the_byte(cli: Any, tiny: str, here: Path) -> None:
    train(cli, tiny, "run", "--quiet")
    for folder in ("one", "two"):
        assert cli("report", "run", "--quiet", "--figures", folder).code == 0
    for path in (here / "one").iterdir():
        assert path.read_bytes() == (here / "two" / path.name).read_bytes()


@pytest.mark.parametrize("arguments", [("report", "nowhere"), ("watch", "nowhere")])
def test_what_is_not_there_is_a_sentence(cli: Any, here: Path, arguments: tuple[str, ...]) -> None:
    done = cli(*arguments)
    assert done.code == 2
    assert done.err == (
        "fedgsp: nowhere is not a directory; give the directory of a run, or one that has runs inside.\n"
    )  # fmt: skip


def test_a_run_is_served_while_it_trains(cli: Any, tiny: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedgsp.report.live.server import WatchServer
    from fedgsp.run.lifecycle import start

    seen: list[str] = []
    addresses: list[str] = []
    original = WatchServer.in_background

    def remembered(server: WatchServer) -> Any:
        addresses.append(server.url)
        return original(server)

    def looked_at(*arguments: Any) -> Any:
        result = start(*arguments)
        with urllib.request.urlopen(addresses[0], timeout=600) as answer:
            seen.append(answer.read().decode())
        return result

    monkeypatch.setattr(WatchServer, "in_background", remembered)
    monkeypatch.setattr("fedgsp.run.lifecycle.start", looked_at)
    done = train(cli, tiny, "run", "--watch")
    assert done.code == 0
    assert re.search(r"watching at http://127\.0\.0\.1:\d+/\n", done.out)
    assert '"last":2' in seen[0]


def test_a_run_can_log_to_tensorboard(cli: Any, tiny: str, here: Path) -> None:
    assert train(cli, tiny, "run", "--quiet", "--tensorboard", "board").code == 0
    assert cli("resume", "run", "--rounds", "3", "--quiet", "--tensorboard", "board").code == 0
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(here / "board")).Reload()
    assert [event.step for event in found.Scalars("test/accuracy")] == [1, 2, 3]


def test_an_mlflow_that_cannot_be_used_is_said_before_anything_starts(cli: Any, tiny: str, here: Path) -> None:
    done = train(cli, tiny, "run", "--mlflow", "nonsense://x")
    assert done.code == 2
    assert done.err.startswith("fedgsp: MLflow cannot be used: ")
    assert not (here / "run").exists()
