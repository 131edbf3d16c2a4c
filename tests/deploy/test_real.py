"""A real SuperLink and six real nodes, with TLS and node keys: the same bits as in one process, and every kind of death.

Nodes are warm, but for one of Flower's own among them where that is what is tested.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w

pytest.importorskip("flwr")

from fedgsp.core.errors import InputError
from fedgsp.deploy import guardian
from fedgsp.deploy.layout import read_deployment
from fedgsp.deploy.local import LocalDeployment
from fedgsp.deploy.replay import replay
from fedgsp.deploy.superlink import SuperLink
from tests.support.real_deployments import children, deployment, marked_with
from tests.support.waiting import until

pytestmark = pytest.mark.slow

NODES = 6
DATA = f"glyphs:clients={NODES}"
FEDGSP = [sys.executable, "-c", "from fedgsp.cli.main import main; main()"]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def in_one_process(text: str, folder: Path, data: str = DATA) -> dict[str, Any]:
    """What `fedgsp run` makes of the same configuration, without its section for deployments, and the same data."""
    table = tomllib.loads(text)
    del table["deploy"]
    (folder / "config.toml").write_text(tomli_w.dumps(table))
    command = [*FEDGSP, "run", str(folder / "config.toml"), "--data", data, "--out", str(folder / "here"), "--json"]
    made = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert made.returncode == 0, made.stderr
    facts: dict[str, Any] = json.loads(made.stdout)
    return facts


def patient_config(folder: Path, nodes: int, **options: Any) -> str:
    """What `fedgsp deploy local` would write, but judged once only, and patient: machines that run tests are busy."""
    written = deployment(folder / "pattern", nodes, data=f"glyphs:clients={nodes}", rounds=2, **options).config.read_text()
    changed = written.replace("eval_every = 1", "eval_every = 2")
    changed = changed.replace("# hop_seconds_floor = 60.0", "hop_seconds_floor = 300.0")
    assert changed.count("eval_every = 2") == changed.count("\nhop_seconds_floor") == 1
    return changed


def make_stock(site: Path) -> None:
    """Let a site start Flower's own SuperNode."""
    script = site / "start.sh"
    changed = script.read_text().replace("NODE:-warm", "NODE:-stock")
    assert changed.count("NODE:-stock") == 1
    script.write_text(changed)


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalDeployment]:
    """A SuperLink, five warm nodes and a stock one, up for all tests of same bits."""
    place = deployment(tmp_path_factory.mktemp("real") / "fed", NODES, data=DATA, rounds=2)
    make_stock(place.site("site-0"))
    with LocalDeployment(place, print) as processes:
        processes.start_server()
        processes.start_nodes(place.sites())
        yield processes
    assert guardian.marked(processes.supervisor.mark) == {}


@pytest.mark.parametrize("method", ["fedgsp", "fedavg", "scaffold"])
def test_same_bits_as_in_one_process(federation: LocalDeployment, tmp_path: Path, method: str) -> None:
    """Warm and stock nodes under TLS and keys train together the model that one process trains, to the bit."""
    place = federation.place
    config = patient_config(tmp_path, NODES, method=method)
    place.config.write_text(config)
    run = place.runs / method
    number = federation.submit(run, resume=False)
    until(lambda: _over(federation.link, number), 900, f"{method} to end")
    result = json.loads((run / "result.json").read_text())
    assert result["status"] == "finished", result["cause"]
    here = in_one_process(config, tmp_path)
    assert result["model"] == here["model"]
    ours, theirs = lines(run / "journal.jsonl"), lines(tmp_path / "here" / "journal.jsonl")
    for key in ("round", "groups", "chains", "clients", "samples", "steps", "bytes", "train_loss", "accuracy", "loss", "state"):
        assert [entry.get(key) for entry in ours] == [entry.get(key) for entry in theirs], key


def test_same_bits_over_stock_nodes_alone(tmp_path: Path) -> None:
    """Clients that keep a state, at SuperNodes of Flower's own."""
    place = deployment(tmp_path / "fed", 2, data="glyphs:clients=2", rounds=2, method="scaffold", stock_nodes=True)
    config = place.config.read_text().replace("# hop_seconds_floor = 60.0", "hop_seconds_floor = 300.0")
    place.config.write_text(config)
    with LocalDeployment(place, print) as processes:
        processes.start_server()
        processes.start_nodes(place.sites())
        number = processes.submit(place.runs / "stock", resume=False)
        until(lambda: _over(processes.link, number), 900, "it to end")
    result = json.loads((place.runs / "stock" / "result.json").read_text())
    assert result["status"] == "finished", result["cause"]
    assert result["model"] == in_one_process(config, tmp_path, "glyphs:clients=2")["model"]


def _over(link: SuperLink, number: int) -> bool:
    found = link.run(number)
    return found is not None and found.over


class Command:
    """A `fedgsp deploy` command in a process of its own; interrupted, where a test ends before it does."""

    def __init__(self, log: Path, *arguments: object) -> None:
        self.log = log
        with log.open("ab") as out:
            self.process = subprocess.Popen([*FEDGSP, "deploy", *map(str, arguments)], stdout=out, stderr=out)

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(60)

    def said(self) -> str:
        return self.log.read_text()

    def ended(self, seconds: float) -> int:
        until(lambda: self.process.poll() is not None, seconds, f"the command to end: {self.said()[-2000:]}")
        return int(self.process.wait())


def mark_of(place: Path) -> str:
    return str(json.loads((place / "processes.json").read_text())["mark"])


def kill_tree(pid: int) -> None:
    for one in [*children(pid), pid]:
        try:
            os.kill(one, signal.SIGKILL)
        except ProcessLookupError:
            continue


def newest(place: Path) -> Path:
    run = read_deployment(place).newest_run()
    assert run is not None
    return run


def happened(place: Path, kind: str, session: int = 1, **facts: object) -> bool:
    """Whether something happened since the run was begun, or taken up, for the so-many-th time."""
    try:
        events = lines(newest(place) / "events.jsonl")
    except (AssertionError, InputError, ValueError):  # nothing there yet, or a line being written
        return False
    begun = [i for i, event in enumerate(events) if event["event"] in ("started", "resumed")]
    return len(begun) == session and any(e["event"] == kind and facts.items() <= e.items() for e in events[begun[-1] :])


def account(run: Path) -> None:
    """Every client of every planned chain either trained or was skipped with a cause, once."""
    plans = {line["round"]: line for line in lines(run / "plans.jsonl") if "round" in line}
    events = lines(run / "events.jsonl")
    for entry in lines(run / "journal.jsonl"):
        r = entry["round"]
        begun = max(i for i, event in enumerate(events) if event["event"] == "round" and event["round"] == r)
        of_round = [event for event in events[begun:] if event.get("round") == r]
        trained = Counter(e["client"] for e in of_round if e["event"] == "hop")
        skipped = Counter(e["client"] for e in of_round if e["event"] == "skipped")
        planned = Counter(client for chain in plans[r]["chains"] for client in chain["clients"])
        assert trained + skipped == planned, r
        assert all(e["cause"] for e in of_round if e["event"] == "skipped")
        assert entry["clients"] == len(trained)
        assert sorted(one["client"] for one in entry.get("skipped", [])) == sorted(skipped)


def test_nodes_app_and_superlink_are_killed_and_the_run_goes_on(tmp_path: Path) -> None:
    place, log, config = tmp_path / "fed", tmp_path / "log", tmp_path / "mine.toml"
    config.write_text(patient_config(tmp_path, NODES))

    with Command(log, "local", place, "--nodes", NODES, "--data", DATA, "--config", config) as first:
        until(lambda: happened(place, "hop", round=1), 600, "the first hop")
        mark, run = mark_of(place), newest(place)
        killed = _not_yet_trained(run, read_deployment(place).sites())[:2]
        for name in killed:
            kill_tree(_pid(place, f"node-{name}"))
        until(lambda: len(lines(run / "journal.jsonl")) == 1, 600, "the round to end without the two")
        until(lambda: any(line.get("round") == 1 for line in lines(run / "plans.jsonl")), 60, "its plan, which is written next")
        [entry] = lines(run / "journal.jsonl")
        assert sorted(one["name"] for one in entry["skipped"]) == sorted(killed)
        account(run)

        until(lambda: happened(place, "hop", round=2), 600, "the second round's first hop")
        [app] = marked_with(mark, "flwr-serverapp")
        os.kill(app, signal.SIGKILL)
        assert first.ended(120) == 1
    assert all(f"the node of {name} has ended" in first.said() for name in killed)
    assert f"fedgsp deploy resume {place}" in first.said()
    assert guardian.marked(mark) == {}
    assert len(lines(run / "journal.jsonl")) == 1

    with Command(log, "resume", place) as second:
        until(lambda: happened(place, "hop", session=2, round=2), 600, "the second round, again")
        mark = mark_of(place)
        [link] = marked_with(mark, "flower-superlink")
        os.kill(link, signal.SIGKILL)
        assert second.ended(120) == 1
    assert guardian.marked(mark) == {}

    with Command(log, "resume", place) as third:
        assert third.ended(900) == 0
    assert newest(place) == run
    assert [entry["round"] for entry in lines(run / "journal.jsonl")] == [1, 2]
    account(run)
    verdict = replay(run, source=DATA, workers=0)
    assert (verdict.rounds, verdict.differs, verdict.why_no_further) == (2, None, None)


def _not_yet_trained(run: Path, sites: list[str]) -> list[str]:
    """Sites that have not trained in this round, those late in their chains first."""
    names = next(line["clients"] for line in lines(run / "plans.jsonl") if "clients" in line)
    done = {names[e["client"]] for e in lines(run / "events.jsonl") if e["event"] == "hop"}
    return [name for name in sites if name not in done]


def _pid(place: Path, name: str) -> int:
    processes = json.loads((place / "processes.json").read_text())["processes"]
    return int(next(p["pid"] for p in processes if p["name"] == name))


def test_ctrl_c_stops_everything(tmp_path: Path) -> None:
    place = tmp_path / "fed"
    with Command(tmp_path / "log", "local", place, "--nodes", 2, "--data", "glyphs:clients=2", "--rounds", 50) as command:
        until(lambda: happened(place, "round", round=1), 600, "the first round")
        mark = mark_of(place)
        assert len(guardian.marked(mark)) >= 5
        command.process.send_signal(signal.SIGINT)
        assert command.ended(60) == 130
    assert guardian.marked(mark) == {}
    assert "everything is stopped" in command.said()
    assert "fedgsp deploy resume" in command.said()
