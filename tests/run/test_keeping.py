"""Client state over whole runs: exact resume, crashes at every write, pruning, replay, and the room it needs."""

from __future__ import annotations

import json
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import fedgsp
from fedgsp.client import Dyn, LocalContext
from fedgsp.core.errors import InputError, RunFailed
from fedgsp.method import Method
from fedgsp.plan import Planner
from fedgsp.run.reader import latest_checkpoint
from fedgsp.server import DynServer
from tests.support import tiny
from tests.support.failing_writes import Killed, NthWrite, outcome
from tests.support.faulty_rules import die_once

ROUNDS = 3


def method(rule: Dyn | None = None) -> Method:
    """Chains whose clients remember; half of the groups train in a round."""
    base = tiny.chains(rule=rule or Dyn(lr=0.05, batch_size=3, alpha=0.1))
    return replace(base, server=DynServer(), planner=replace(base.planner, kappa=0.5))  # type: ignore[type-var]


def run(out: Path | None, rounds: int = ROUNDS, workers: int = 0, rule: Dyn | None = None) -> fedgsp.RunResult:
    return fedgsp.train(method(rule), tiny.federation(12), tiny.linear, rounds=rounds, workers=workers, out=out, seed=3)


def resume(out: Path, **options: Any) -> fedgsp.RunResult:
    return fedgsp.resume(out, data=tiny.federation(12), model=tiny.linear, workers=0, **options)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    run(out)
    return out


def states(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (out / "clients").iterdir()}


def test_a_run_remembers(undisturbed: Path) -> None:
    """The state matters: a client that trains again in a later round trains otherwise than one that forgot."""

    @dataclass(frozen=True, kw_only=True)
    class Forgets(Dyn):
        def begin(self, ctx: LocalContext) -> None:
            ctx.state = self.initial_client_state(ctx.model)
            super().begin(ctx)

    forgetful = run(None, rule=Forgets(lr=0.05, batch_size=3, alpha=0.1))
    whole = latest_checkpoint(undisturbed)
    assert whole is not None
    assert tiny.bits(forgetful.state.model) != tiny.bits(whole[0].model)


def test_only_what_the_last_two_checkpoints_need_is_kept(undisturbed: Path) -> None:
    newest, before = (latest_checkpoint(undisturbed, previous=previous) for previous in (False, True))
    assert newest is not None
    assert before is not None
    named = {f"{k:06d}-{mark}.safetensors" for found in (newest, before) for k, mark in found[0].client_versions.items()}
    assert set(states(undisturbed)) == named
    assert len(named) > len(newest[0].client_versions), "clients that trained in the last round have two versions"


@pytest.mark.parametrize("workers", [0, 2])
def test_resumed_to_the_same_bits(tmp_path: Path, undisturbed: Path, workers: int) -> None:
    run(tmp_path / "run", rounds=2, workers=workers)
    fedgsp.resume(tmp_path / "run", rounds=ROUNDS, data=tiny.federation(12), model=tiny.linear, workers=workers)
    assert outcome(tmp_path / "run") == outcome(undisturbed)
    assert states(tmp_path / "run") == states(undisturbed)


def test_the_previous_checkpoint_still_has_its_states(tmp_path: Path, undisturbed: Path) -> None:
    out = tmp_path / "run"
    run(out, rounds=2)
    resume(out, previous=True)
    resume(out, previous=True, rounds=ROUNDS)
    assert outcome(out) == outcome(undisturbed)


@pytest.mark.parametrize(
    "part", [pytest.param(False, marks=pytest.mark.slow, id="nothing written"), pytest.param(True, id="cut short")]
)
def test_killed_at_every_write_in_turn(tmp_path: Path, undisturbed: Path, part: bool) -> None:
    count, hit = 0, True
    while hit:
        out = tmp_path / f"{count}"
        with pytest.MonkeyPatch.context() as patch:
            writes = NthWrite(patch, count, Killed, part)
            with suppress(Killed):
                run(out)
            hit = writes.hit
        resume(out) if (out / "config.toml").exists() else run(out)
        assert outcome(out) == outcome(undisturbed), f"killed at write {count}"
        assert states(out) == states(undisturbed), f"killed at write {count}"
        shutil.rmtree(out)
        count += 1
    assert count > 40


def test_a_worker_that_dies_in_a_chain_leaves_no_half_updated_state(tmp_path: Path, undisturbed: Path) -> None:
    rule = DiesOnce(lr=0.05, batch_size=3, alpha=0.1, once=str(tmp_path / "died"), at=5)
    out = tmp_path / "run"
    run(out, workers=2, rule=rule)
    assert (tmp_path / "died").exists()
    assert any(json.loads(line)["event"] == "lost" for line in (out / "events.jsonl").read_text().splitlines())
    assert states(out) == states(undisturbed)
    assert outcome(out)["model"] == outcome(undisturbed)["model"]


@dataclass(frozen=True, kw_only=True)
class DiesOnce(Dyn):
    """Its process is killed once, when one client has trained and its state is about to be written."""

    at: int = 0
    once: str = ""

    def finish(self, ctx: LocalContext) -> dict[str, float]:
        metrics = super().finish(ctx)
        if ctx.client == self.at:
            die_once(self.once)
        return metrics


def test_what_a_killed_process_left_is_swept_away(undisturbed: Path, tmp_path: Path) -> None:
    """A file for a round that never counted, and one that was being written: SIGKILL leaves both."""
    out = copy(undisturbed, tmp_path)
    orphan = out / "clients" / f"000003-000009-{'0' * 32}.safetensors"
    for path in (orphan, out / "clients" / f".{orphan.name}.123.tmp"):
        path.write_bytes(b"half")
    resume(out, rounds=ROUNDS + 1)
    assert not orphan.exists()
    assert not list((out / "clients").glob(".*"))


def test_replayed_to_the_same_bits(undisturbed: Path) -> None:
    verdict = fedgsp.replay(undisturbed, data=tiny.federation(12), model=tiny.linear, workers=0)
    assert verdict.differs is None
    assert verdict.rounds == ROUNDS


def copy(run_: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run_, tmp_path / "copy"))


def test_a_missing_state_is_refused_with_a_sentence(undisturbed: Path, tmp_path: Path) -> None:
    out = copy(undisturbed, tmp_path)
    found = latest_checkpoint(out)
    assert found is not None
    client, mark = next(iter(found[0].client_versions.items()))
    (out / "clients" / f"{client:06d}-{mark}.safetensors").unlink()
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file() and path.name != ".lock"}
    with pytest.raises(InputError, match=rf"cannot go on: the client state .*{mark}.* is missing; restore it from a copy"):
        resume(out, rounds=6)
    after = {path: path.read_bytes() for path in out.rglob("*") if path.is_file() and path.name not in (".lock", "config.toml")}
    assert after == {path: content for path, content in before.items() if path.name != "config.toml"}


def test_a_damaged_state_is_refused_with_a_sentence(undisturbed: Path, tmp_path: Path) -> None:
    out = copy(undisturbed, tmp_path)
    for path in (out / "clients").iterdir():
        path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(RunFailed, match=r"the client state .* is damaged: .*restore it from a copy"):
        resume(out, rounds=6)


def test_without_a_run_directory_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    result = run(None)
    assert len(result.state.client_versions) > 4
    assert list(tmp_path.iterdir()) == []


def test_workers_cannot_change_a_bit(undisturbed: Path) -> None:
    found = latest_checkpoint(undisturbed)
    assert found is not None
    assert run(None, workers=2).state.digest() == found[0].digest()


class TestRoom:
    EACH = (tiny.FEATURES + 1) * tiny.CLASSES * 4

    def test_a_dry_run_says_how_much(self, tmp_path: Path) -> None:
        source = str(tiny.write_npz(tmp_path / "data.npz", clients=40))
        options = ["--data", source, "--model", "tests.support.tiny:linear", "--dry-run"]
        shown = tiny.cli("run", *options, "--method", "fedgsp+scaffold")
        assert f"for what clients keep between visits, {self.EACH} B each" in shown.stdout, shown.stderr
        assert f"{self.EACH} B down and up for every client that trains, and {2 * self.EACH} B beside it" in shown.stdout
        told = json.loads(tiny.cli("run", *options, "--method", "fedgsp+dyn", "--json").stdout)
        assert told["state_bytes"] == self.EACH
        assert told["disk"] >= (40 + 2 * 12) * self.EACH

    def test_more_than_there_is_is_refused_before_anything_is_written(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Usage:
            free = 2000

        monkeypatch.setattr("fedgsp.run.keeping.shutil.disk_usage", lambda folder: Usage)
        sentence = r"what clients keep between visits needs up to .* GB below .* for each of 12 clients.*only 0.0 GB are free"
        with pytest.raises(InputError, match=sentence):
            run(tmp_path / "run")
        with pytest.raises(InputError, match=sentence):
            run(None)
        assert not (tmp_path / "run").exists()
        fedgsp.train(tiny.chains(), tiny.federation(12), tiny.linear, rounds=1, workers=0)

    def test_what_is_there_already_counts(self, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        class Usage:
            free = (12 + 3 * 12 + 24) * 1200 - 12 * 150  # the newest, those of earlier checkpoints, those of two rounds

        out = copy(undisturbed, tmp_path)
        monkeypatch.setattr("fedgsp.run.keeping.shutil.disk_usage", lambda folder: Usage)
        resume(out, rounds=ROUNDS + 1)


def test_a_client_in_two_chains_of_a_round_is_refused() -> None:
    @dataclass(frozen=True)
    class Twice(Planner):
        inside: Any

        def plan(self, round_: int, profiles: Any, seeds: Any) -> Any:
            plan = self.inside.plan(round_, profiles, seeds)
            return replace(plan, chains=plan.chains + plan.chains[:1])

        def schedule(self, round_: int, clients: int) -> Any:
            return self.inside.schedule(round_, clients)

    chosen = method()
    with pytest.raises(InputError, match=r"Twice \(.*\) put client 0 into two chains of round 1; where clients keep a state"):
        fedgsp.train(replace(chosen, planner=Twice(chosen.planner)), tiny.federation(12), tiny.linear, rounds=1, workers=0)
