"""Run directories from others: no traceback, nothing written outside of them, however they were made."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import fedgsp
from fedgsp.core.errors import FedgspError
from fedgsp.cost import FLEETS
from fedgsp.report.build import read_runs
from fedgsp.report.live.feed import LiveRuns
from fedgsp.report.page import build
from fedgsp.report.payload import payload
from fedgsp.report.run_costs import cost_of_run
from fedgsp.run.evaluate_run import evaluate_run
from fedgsp.study.finished import read_finished
from tests.support import hostile_runs, tiny


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rounds of SCAFFOLD, whose clients keep states, on a handful of samples."""
    place = tmp_path_factory.mktemp("runs")
    source = str(tiny.write_npz(place / "data.npz", clients=4))
    out = place / "run"
    fedgsp.train("scaffold", source, "tests.support.tiny:linear", rounds=2, workers=0, out=out, fast="off")
    return out


def report(path: Path) -> None:
    build(payload(read_runs([path])), "made")


def watch(path: Path) -> None:
    json.dumps(LiveRuns([path.parent]).updates({}, 0), allow_nan=False).encode()


OPERATIONS: tuple[tuple[str, Callable[[Path], object]], ...] = (
    ("report", report),
    ("watch", watch),
    ("compare", lambda path: read_finished([path], trust=True)),
    ("cost", lambda path: cost_of_run(path, FLEETS["paper"], None, trust=True)),
    ("evaluate", lambda path: evaluate_run(path, None, "test", trust=True)),
    ("replay", lambda path: fedgsp.replay(path, workers=0, trust=True)),
    ("resume", lambda path: fedgsp.resume(path, rounds=3, workers=0, trust=True)),
)


def check(run: Path, place: Path, seed: int, count: int) -> dict[str, int]:
    """Every operation on every mutant; how many of them each did all the same."""
    outside, mutants = place / "outside", place / "mutants"
    for folder in (outside, mutants):
        folder.mkdir(parents=True)
    (outside / "victim.txt").write_text("mine\n")
    done = dict.fromkeys((name for name, _ in OPERATIONS), 0)
    for what, path in hostile_runs.mutants(run, mutants, outside, seed, count):
        before = hostile_runs.tree(place, path)
        for name, operation in OPERATIONS:
            try:
                operation(path)
                done[name] += 1
            except FedgspError:
                pass  # a sentence
            except Exception as error:
                raise AssertionError(f"{name}, seed {seed}, {what}") from error
            assert hostile_runs.tree(place, path) == before, f"{name} wrote outside, seed {seed}, {what}"
    return done


def test_hostile_runs_are_refused_with_a_sentence_and_reach_nothing_outside(run: Path, tmp_path: Path) -> None:
    done = check(run, tmp_path, seed=0, count=24)
    assert done["report"] > 12  # a run that is damaged is shown as damaged
    assert all(count > 0 for count in done.values()), done


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(1, 4))
def test_a_hundred_hostile_runs_however_they_are_drawn(run: Path, tmp_path: Path, seed: int) -> None:
    check(run, tmp_path, seed, count=100)
