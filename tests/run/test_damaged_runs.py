"""Whatever a run directory has in it: everything that reads one says a sentence, or shows the run as damaged."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest

import fedgsp
from fedgsp.core.errors import FedgspError
from fedgsp.cost import FLEETS
from fedgsp.deploy.status import run_status
from fedgsp.report.build import read_runs
from fedgsp.report.live.feed import LiveRuns
from fedgsp.report.page import build
from fedgsp.report.payload import payload
from fedgsp.report.run_costs import cost_of_run
from fedgsp.run.reader import RunReader
from fedgsp.study.finished import read_finished
from tests.support import damage

STATUSES = ("damaged", "finished", "stopped", "target", "paused", "interrupted", "failed")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rounds of a small run on glyphs."""
    out = tmp_path_factory.mktemp("runs") / "run"
    fedgsp.train("fedgsp", "glyphs:clients=6,seed=1", "small_cnn", rounds=2, workers=0, out=out)
    return out


def read_by_all(path: Path, whole: Path) -> None:
    """Everything that only reads."""
    reader = RunReader(path)
    reader.read()
    assert reader.status in STATUSES
    assert (reader.status == "damaged") == bool(reader.damage)
    runs = read_runs([path, whole]) if (path / "config.toml").is_file() else read_runs([whole])
    page = payload(runs)
    build(page, "made")
    assert page["runs"][-1]["status"] == "finished"
    live = LiveRuns([path.parent])
    json.dumps(live.updates({}, 0), allow_nan=False).encode()
    told = run_status(path)
    assert told.status == reader.status
    json.dumps(told.cause)


def refused_or_read(path: Path) -> None:
    """Everything that needs a run whole: the command that compares, and the one that says what a run would cost."""
    for ask in (lambda: read_finished([path]), lambda: cost_of_run(path, FLEETS["paper"], None)):
        with suppress(FedgspError):
            ask()


def check(run: Path, place: Path, seed: int, each: int) -> int:
    count = 0
    for what, path in damage.mutants(run, place, seed, each):
        count += 1
        try:
            read_by_all(path, run)
            refused_or_read(path)
        except Exception as error:
            raise AssertionError(f"seed {seed}, {what}") from error
    return count


def test_no_damage_ends_in_a_traceback(run: Path, tmp_path: Path) -> None:
    assert check(run, tmp_path, seed=0, each=12) > 200


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(1, 6))
def test_no_damage_ends_in_a_traceback_however_it_is_drawn(run: Path, tmp_path: Path, seed: int) -> None:
    check(run, tmp_path, seed, each=60)


@pytest.mark.parametrize(
    "file", ["journal.jsonl", "plans.jsonl", "scores.jsonl", "events.jsonl", "result.json", "clients.safetensors"]
)
def test_one_damaged_run_is_shown_as_damaged_and_the_others_as_ever(run: Path, tmp_path: Path, file: str) -> None:
    _, bad = next(pair for pair in damage.mutants(run, tmp_path, 0, 0) if pair[0].startswith(f"{file}: junk b'[[["))
    page = payload(read_runs([bad, run]))
    assert [body["status"] for body in page["runs"]] == ["damaged", "finished"]
    assert str(bad / file) in page["runs"][0]["cause"]
    assert page["runs"][1] == {**payload(read_runs([run]))["runs"][0], "epoch": page["runs"][1]["epoch"]}
    assert any("is damaged" in sentence["text"] for sentence in page["summary"])


def test_a_damaged_journal_is_not_resumed(run: Path, tmp_path: Path) -> None:
    _, bad = next(pair for pair in damage.mutants(run, tmp_path, 0, 0) if pair[0] == "journal.jsonl: all lines twice")
    text = (bad / "journal.jsonl").read_text()
    (bad / "journal.jsonl").write_text(text.replace('"round":1,', '"round":"x",'))
    with pytest.raises(fedgsp.InputError, match=r"journal\.jsonl is damaged: line 1 has an odd 'round'"):
        fedgsp.resume(bad, rounds=3, workers=0)
