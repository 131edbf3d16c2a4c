"""What a curious server tries: to have noise drawn anew until it averages out, and to read labels off scores."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

import fedgsp
from fedgsp.client import SGD, UpdateNoise
from fedgsp.core.chain import Chain
from fedgsp.core.seeds import Seeds
from fedgsp.engine.base import WorkerSetup
from fedgsp.engine.chain_runner import ChainRunner
from fedgsp.engine.transports.flower.client_app import app
from fedgsp.engine.transports.flower.histogram import LEDGER, margin
from fedgsp.engine.transports.flower.records import heard, pack, say
from fedgsp.engine.transports.flower.run_spec import RunSpec
from fedgsp.models import classification, resolve
from fedgsp.models.catalog import initial_tensors
from tests.support import flower_grid

CLASSES, TRAIN = 10, 300


def write_data(path: Path, order: np.ndarray[Any, Any] | None = None, more: int = 0) -> Path:
    """One client's samples, perhaps in another order, perhaps some more of them."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, CLASSES, 400)
    labels[:CLASSES] = np.arange(CLASSES)
    features = rng.normal(size=(400, 4)).astype(np.float32)
    chosen = np.arange(TRAIN + more) if order is None else order
    np.savez(
        path, features=features[chosen], labels=labels[chosen], client_index=np.zeros(len(chosen), dtype=np.int64),
        clients=np.array(["a"]), classes=np.array(CLASSES),
    )  # fmt: skip
    return path


def site(folder: Path, histogram: str, *allowed: str) -> Path:
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    (path,) = flower_grid.write_sites(folder, f"npz:{write_data(folder / 'data.npz')}", ["a"], histogram=histogram)
    path.write_text(path.read_text() + "".join(f"{line}\n" for line in allowed))
    return path


def run_spec(**changes: Any) -> RunSpec:
    rule = {"kind": "sgd", "lr": 0.05, "batch_size": 10}
    return replace(RunSpec("0" * 16, 0, rule, "tests.support.tiny:linear", CLASSES, (4,)), **changes)


def ask(at: Path, kind: str, content: RecordDict) -> dict[str, Any]:
    return heard(app(Message(content, 1, kind, ttl=9.0), Context(1, 1, {"site": str(at)}, RecordDict(), {})).content)


def hello(at: Path, **changes: Any) -> dict[str, Any]:
    return ask(at, "query.hello", say({"run": run_spec(**changes).encode(), "number": 0}))


def constant(at: Path, label: int, round_: int, **changes: Any) -> dict[str, Any]:
    """Have a model scored that says one class of everything."""
    model = {"weight": torch.zeros(CLASSES, 4), "bias": torch.nn.functional.one_hot(torch.tensor(label), CLASSES).float()}
    spec = run_spec(**changes)
    facts = {
        "run": spec.encode(), "round": round_, "client": 0, "version": hello(at, **changes).get("version"), "state": None,
        "parts": ["validation"], "personal": False,
    }  # fmt: skip
    return ask(at, "evaluate", say(facts, model=pack(model), beside=pack({})))


class TestRedraw:
    def test_no_way_of_asking_gives_a_second_draw(self, tmp_path: Path) -> None:
        pytest.importorskip("opendp")
        at = site(tmp_path, "noised")
        first = hello(at)
        assert sum(first["counts"]) == first["train"]
        for width in range(CLASSES, CLASSES + 12):  # it was drawn anew for every width
            told = hello(at, classes=width)
            assert told["counts"][:CLASSES] == first["counts"]
            assert told["train"] == first["train"]
        for share, seed in ((0.1, 0), (0.1, 1), (0.3, 5)):  # and a carved part shows the same draw, of fewer samples
            told = hello(at, validation=share, data_seed=seed)
            assert told["train"] + told["validation"] == first["train"]
            expected = np.array(first["counts"]) * told["train"] / first["train"]
            assert np.abs(np.array(told["counts"]) - expected).max() <= 1.5
        write_data(tmp_path / "data.npz", np.random.default_rng(9).permutation(TRAIN))  # another order, another version
        again = hello(at)
        assert again["version"] != first["version"]
        assert (again["counts"], again["train"], again["test"]) == (first["counts"], first["train"], first["test"])
        ledger = json.loads((at.parent / "state" / LEDGER).read_text())
        assert len(ledger["draws"]) == 1

    def test_sizes_are_noised_and_never_above_the_true_ones(self, tmp_path: Path) -> None:
        pytest.importorskip("opendp")
        (tmp_path / "exact").mkdir()
        exact = hello(site(tmp_path / "exact", "exact"))
        told = []
        for k in range(8):
            (tmp_path / str(k)).mkdir()
            told.append(hello(site(tmp_path / str(k), "noised")))
        sizes = {one["train"] for one in told}
        assert len(sizes) > 1
        assert max(sizes) <= exact["train"]
        assert min(sizes) >= exact["train"] - 2 * margin(1.0, 1e-5)

    def test_a_site_trains_and_scores_as_many_samples_as_it_tells(self, tmp_path: Path) -> None:
        pytest.importorskip("opendp")
        at = site(tmp_path, "noised")
        told = hello(at)
        facts = {
            "run": run_spec().encode(), "round": 1, "client": 0, "version": told["version"], "state": None, "hop": 0,
            "repeat": 0, "first": True,
        }  # fmt: skip
        answer = ask(at, "train", say(facts, model=pack({"weight": torch.zeros(CLASSES, 4), "bias": torch.zeros(CLASSES)})))
        assert (answer["samples"], answer["steps"]) == (told["train"], -(-told["train"] // 10))

    def test_epsilons_add_up_over_changed_data_and_end_at_the_limit(self, tmp_path: Path) -> None:
        pytest.importorskip("opendp")
        at = site(tmp_path, "noised")
        at.write_text(at.read_text().replace('"noised"', '"noised"\nepsilon = 2.0\nepsilon_limit = 4.0'))
        for more in (0, 1):
            write_data(tmp_path / "data.npz", more=more)
            assert "refused" not in hello(at)
        write_data(tmp_path / "data.npz", more=2)
        told = hello(at)
        assert "epsilon 4 of 4 is spent" in told["refused"]
        assert told["for_good"] is True
        write_data(tmp_path / "data.npz", more=1)  # what was told before may be told again
        assert "refused" not in hello(at)
        ledger = json.loads((at.parent / "state" / LEDGER).read_text())
        assert [one["epsilon"] for one in ledger["draws"]] == [2.0, 2.0]


class TestOracle:
    def test_a_site_decides_how_much_of_its_training_samples_is_scored(self, tmp_path: Path) -> None:
        at = site(tmp_path, "off")
        assert "at most the share 0.5" in hello(at, validation=0.97)["refused"]
        assert "at most the share 0.5" in constant(at, 0, 1, validation=0.97)["refused"]

    def test_constant_models_are_answered_up_to_the_limits_whatever_round_or_run_is_claimed(self, tmp_path: Path) -> None:
        at = site(tmp_path, "off", "evaluations_in_all = 5")
        answers = [constant(at, label, 1, validation=0.4) for label in range(CLASSES)]
        assert ["refused" in answer for answer in answers] == [False, False] + [True] * 8
        assert "at most 2 models a round" in answers[2]["refused"]
        elsewhere = [constant(at, label, 1 + label, run=f"{label:016x}", validation=0.4) for label in range(2, CLASSES)]
        assert sum("refused" not in answer for answer in elsewhere) == 3
        assert "has scored 5 models" in elsewhere[-1]["refused"]
        assert "refused" not in constant(at, 0, 1, validation=0.4)  # what was told before

    def test_a_part_that_is_too_small_to_hide_a_sample_is_not_scored(self, tmp_path: Path) -> None:
        at = site(tmp_path, "off", "least = 40")
        assert "fewer than 40 samples" in constant(at, 0, 1, validation=0.1)["refused"]
        assert "refused" not in constant(at, 0, 1, validation=0.4)


class TestModels:
    """What a model says of its last client, which no option but noise on updates hides."""

    @staticmethod
    def told(privacy: UpdateNoise | None) -> float:
        """How closely the change of the output biases in one hop follows a client's class counts: mean correlation."""
        data = fedgsp.load("glyphs:clients=12,seed=1")
        model = resolve("small_cnn", data.sample_shape, data.classes)
        rule = SGD(lr=0.03, batch_size=10, privacy=privacy)
        runner, start = ChainRunner.of(WorkerSetup(model, rule, classification(), data, Seeds(5))), initial_tensors(model, 1)
        name = [name for name in start if name.endswith("bias")][-1]
        moved = [runner.run(1, Chain((k,)), start, {})[0][name].numpy() - start[name].numpy() for k in range(len(data))]
        pairs = zip(moved, data.profiles().counts, strict=True)
        return float(np.mean([np.corrcoef(change, counts)[0, 1] for change, counts in pairs]))

    def test_the_output_biases_follow_the_class_counts_unless_updates_are_noised(self) -> None:
        plain, noised = self.told(None), self.told(UpdateNoise(clip=0.5, noise=1.0))
        print(f"correlation {plain:.2f}, with update-noise {noised:.2f}")
        assert plain > 0.8
        assert abs(noised) < 0.2
