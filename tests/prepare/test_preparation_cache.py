"""What many runs on the same data have in common is prepared once; anything else is prepared anew."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.torch import load_file

import fedgsp
from fedgsp.data import FederatedData
from fedgsp.methods import named
from fedgsp.prepare import FAugOversample, Once, Prepared
from fedgsp.run.build import RunBuilder
from fedgsp.run.config import DataSection, RunConfig, RunSection
from fedgsp.study.records import Arm, DataFacts
from fedgsp.study.study_runner import StudyRunner
from fedgsp.study.tune import tune
from tests.support.small_federations import bits, images

DATA = images(clients=6)
EVERYBODY: NDArray[np.int64] = np.arange(6)
asked: list[int] = []


@dataclass(frozen=True, kw_only=True)
class Counted(FAugOversample):
    """Says how often it was asked."""

    def prepare(self, data: FederatedData, clients: NDArray[np.int64], data_seed: int) -> Prepared:
        asked.append(data_seed)
        return super().prepare(data, clients, data_seed)


@pytest.fixture(autouse=True)
def nobody_asked() -> None:
    asked.clear()


def test_only_the_same_question_has_the_same_answer() -> None:
    once, rule = Once(), Counted()
    first = once.prepare(rule, DATA, EVERYBODY, 0)
    assert once.prepare(Counted(), replace(DATA), EVERYBODY.copy(), 0) is first, "equal arguments, other builder"
    other_pixels = replace(DATA, features=255 - np.asarray(DATA.features))
    for question in (
        (Counted(seeds=3), DATA, EVERYBODY, 0), (rule, DATA.with_validation(0.2, 0), EVERYBODY, 0),
        (rule, DATA, EVERYBODY[:5], 0), (rule, DATA, EVERYBODY, 1), (rule, other_pixels, EVERYBODY, 0),
    ):  # fmt: skip
        before, fresh = len(asked), question[0].prepare(*question[1:])
        found = once.prepare(*question)
        assert len(asked) == before + 2
        assert found.data.fingerprint == fresh.data.fingerprint


def config() -> RunConfig:
    method = replace(named("faug-oversample"), preparation=Counted())
    return RunConfig(RunSection(rounds=1, workers=0), DataSection("memory"), method=method)


def test_all_points_of_a_grid_share_a_preparation(tmp_path: Path) -> None:
    tune(config(), ["lr=0.001,0.01,0.1"], tmp_path / "t", seeds=(0, 1), builder=RunBuilder(data=DATA))
    assert len(asked) == 1


def test_all_seeds_of_a_series_share_one_and_train_as_they_would_alone(tmp_path: Path) -> None:
    runner = StudyRunner(DATA, DataFacts.of(DATA, "memory"), tmp_path, workers=0)
    method = replace(config().method, name="counted")
    runner.traces("counted", method, Arm("small_cnn", 1, 3))
    assert len(asked) == 1
    units = sorted((tmp_path / "units").glob("counted-*"))
    alone = fedgsp.train(method, DATA, "small_cnn", rounds=1, workers=0, seed=2)
    assert len(units) == 3
    assert bits(alone.state.model) in [bits(load_file(unit / "model.safetensors")) for unit in units]
