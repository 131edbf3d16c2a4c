"""Checkpoints that are kept, and runs that go back to one of them: to the same bits as a run that never went further."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fedgsp
from fedgsp.client import Dyn
from fedgsp.method import Method
from fedgsp.run.checkpoint import keeps, most_kept
from fedgsp.run.going_back import kept_rounds
from fedgsp.run.reader import RunReader, read_log
from fedgsp.server import DynServer
from tests.support import tiny
from tests.support.failing_writes import Killed, NthWrite, outcome

ROUNDS = 9


def method() -> Method:
    """Chains whose clients keep states."""
    return replace(tiny.chains(rule=Dyn(lr=0.05, batch_size=3, alpha=0.1)), server=DynServer())


def run(out: Path, rounds: int = ROUNDS) -> None:
    fedgsp.train(method(), tiny.federation(), tiny.linear, rounds=rounds, workers=0, out=out, seed=3)


def resume(out: Path, **options: Any) -> fedgsp.RunResult:
    return fedgsp.resume(out, data=tiny.federation(), model=tiny.linear, workers=0, **options)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "run"
    run(out)
    return out


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def kept_of(newest: int, every: int | None = None) -> list[int]:
    """The rule over a whole run, as it drops checkpoints one commit after the other."""
    kept: list[int] = []
    for round_ in range(newest + 1):
        kept = [r for r in [*kept, round_] if keeps(r, round_, every)]
        assert len(kept) <= most_kept(newest, every)
    return kept


def test_which_checkpoints_are_kept() -> None:
    assert kept_of(1) == [0, 1]
    assert kept_of(9) == [0, 4, 6, 8, 9]
    assert kept_of(100) == [0, 64, 80, 88, 96, 98, 99, 100]
    assert kept_of(9, every=3) == [0, 3, 6, 8, 9]
    assert kept_of(9, every=0) == [8, 9]


@pytest.mark.parametrize("newest", [5, 37, 64, 500])
def test_one_can_go_back_by_every_power_of_two(newest: int) -> None:
    back = [newest - r for r in kept_of(newest)]
    power = 1
    while power <= newest:
        assert any(power <= rounds < 2 * power for rounds in back)
        power *= 2


def test_a_run_keeps_them_with_their_clients_states(finished: Path) -> None:
    assert kept_rounds(finished) == [0, 4, 6, 8, 9]
    assert [entry["round"] for entry in read_log(finished, "journal")] == list(range(1, ROUNDS + 1))


@pytest.mark.parametrize("back", [0, 4, 6, 8, 9])
def test_a_run_that_went_back_ends_as_if_it_had_not(copy: Path, finished: Path, back: int) -> None:
    resume(copy, round=back)
    assert outcome(copy) == outcome(finished)
    assert {p.name for p in (copy / "clients").iterdir()} == {p.name for p in (finished / "clients").iterdir()}
    assert fedgsp.replay(copy, workers=0, data=tiny.federation(), model=tiny.linear).differs is None


def test_all_that_came_after_is_gone(copy: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        NthWrite(patch, 12, Killed, part=False)
        with suppress(Killed):
            resume(copy, round=4)
    reader = RunReader(copy)
    reader.read()
    assert reader.status == "stopped"
    rounds = [event["round"] for event in read_log(copy, "events") if event["event"] == "round"]
    assert rounds == sorted(rounds)
    assert max(rounds) < ROUNDS
    assert max(kept_rounds(copy)) < ROUNDS


def test_killed_at_every_write_while_going_back(finished: Path, tmp_path: Path) -> None:
    count, hit = 0, True
    while hit:
        out = Path(shutil.copytree(finished, tmp_path / str(count)))
        with pytest.MonkeyPatch.context() as patch:
            writes = NthWrite(patch, count, Killed, part=True)
            with suppress(Killed):
                resume(out, round=8)
            hit = writes.hit
        resume(out)  # without saying the round again
        assert outcome(out) == outcome(finished), f"killed at write {count}"
        rounds = [event["round"] for event in read_log(out, "events") if event["event"] == "round"]
        assert rounds == sorted(rounds)
        shutil.rmtree(out)
        count += 1
    assert count > 8


def test_a_kill_between_dropping_checkpoints_and_cutting_the_log_changes_nothing(
    copy: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedgsp.run import directory

    def killed(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(directory, "LineLog", killed)
        with pytest.raises(Killed):
            resume(copy, round=4)
    assert kept_rounds(copy) == [0, 4]
    resume(copy)
    assert outcome(copy) == outcome(finished)
    rounds = [event["round"] for event in read_log(copy, "events") if event["event"] == "round"]
    assert rounds == list(range(1, ROUNDS + 1))


def test_rounds_that_were_not_kept_are_refused_with_those_that_were(copy: Path) -> None:
    before = (copy / "journal.jsonl").read_bytes()
    with pytest.raises(fedgsp.InputError, match=r"no checkpoint of round 5; there are those of the rounds: 0, 4, 6, 8, 9\."):
        resume(copy, round=5)
    with pytest.raises(fedgsp.InputError, match="either `previous=True` or `round=`"):
        resume(copy, round=4, previous=True)
    assert (copy / "journal.jsonl").read_bytes() == before


def test_every_nth_by_the_configuration(tmp_path: Path) -> None:
    from fedgsp.run import lifecycle
    from fedgsp.run.build import RunBuilder
    from fedgsp.run.config import ModelSection, RunConfig, RunSection

    config = RunConfig(run=RunSection(rounds=7, workers=0, checkpoint_every=3), model=ModelSection("custom"), method=method())
    builder = RunBuilder(data=tiny.federation(), model=tiny.linear)
    lifecycle.start(builder.build(config), tmp_path / "run")
    assert kept_rounds(tmp_path / "run") == [0, 3, 6, 7]
    lifecycle.resume(tmp_path / "run", builder=builder, round_=3, rounds=8)
    assert kept_rounds(tmp_path / "run") == [0, 3, 6, 7, 8]


def test_a_checkpoint_of_an_earlier_version_leaves_the_event_log_whole(copy: Path) -> None:
    from tests.support.hostile_runs import with_facts

    for path in (copy / "checkpoint").iterdir():
        with_facts(path, lambda facts: facts.pop("events_bytes"))
    resume(copy, round=4)
    rounds = [event["round"] for event in read_log(copy, "events") if event["event"] == "round"]
    assert rounds == [*range(1, ROUNDS + 1), *range(5, ROUNDS + 1)]
    assert json.loads((copy / "result.json").read_text())["rounds"] == ROUNDS
