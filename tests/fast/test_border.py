"""Models of a user's own that 0.1.0 trained as something else without a word (REVIEW A): now declined, in words."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import fedgsp
from fedgsp.client import MMD, SGD
from fedgsp.client.batching import Batching
from fedgsp.client.train import Trainer
from fedgsp.core.errors import Diverged, InputError
from fedgsp.core.native import Library
from fedgsp.core.seeds import Seeds
from fedgsp.data import FederatedData
from fedgsp.data.arrays import from_arrays
from fedgsp.fast.build import library
from fedgsp.models import classification
from fedgsp.run.run import Run
from tests.support import tiny

needs_compiler = pytest.mark.skipif(not isinstance(library(), Library), reason="there is no C compiler here")


def images(scale: float = 1.0, clients: int = 4, each: int = 11) -> FederatedData:
    rng = np.random.default_rng(0)
    x = (scale * rng.normal(size=(clients * each, 8, 8))).astype(np.float32)
    owner = np.repeat(np.arange(clients), each)
    return from_arrays(x, rng.integers(0, 3, len(x)), owner, [f"c{k}" for k in range(clients)], classes=3, test_fraction=0.2)


class Net(nn.Module):
    """Features and a classifier, and room for whatever a user puts between or before."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.features = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
            self.classifier = nn.Linear(64, 3)

    def prepare(self, x: torch.Tensor) -> torch.Tensor:
        return x.unsqueeze(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.classifier(self.between(self.features(self.prepare(x)))))

    def between(self, z: torch.Tensor) -> torch.Tensor:
        return z


class Dropped(Net):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def between(self, z: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.drop(z))


class DroppedByFunction(Net):
    def between(self, z: torch.Tensor) -> torch.Tensor:
        return functional.dropout(z, 0.5, self.training)


class FlippedInTraining(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.flip(-1) if self.training else x)


class Clamped(Net):
    def prepare(self, x: torch.Tensor) -> torch.Tensor:
        return x.clamp(-1, 1).unsqueeze(1)


def hooked_forward() -> nn.Module:
    model = Net()
    model.classifier.register_forward_hook(lambda module, inputs, output: 2 * output if module.training else output)
    return model


def hooked_gradient() -> nn.Module:
    model = Net()
    model.classifier.weight.register_hook(lambda g: g.clamp(-1e-3, 1e-3))  # type: ignore[no-untyped-call]
    return model


def frozen_by_hook() -> nn.Module:
    model = Net()
    model.classifier.weight.register_hook(torch.zeros_like)  # type: ignore[no-untyped-call]
    return model


def channels_last_with_a_zero_end() -> nn.Module:
    class Coloured(Net):
        def __init__(self) -> None:
            super().__init__()
            self.features[0] = nn.Conv2d(2, 4, 3, padding=1)
            nn.init.zeros_(self.classifier.weight)
            self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

        def prepare(self, x: torch.Tensor) -> torch.Tensor:
            return torch.stack([x, x * x], dim=1)

    return Coloured()


def wide_with_a_gradient_hook() -> nn.Module:
    """What the kernels do not know (LayerNorm), so that only steps put off would be left."""
    model = nn.Sequential(nn.Flatten(), nn.LayerNorm(64), nn.Linear(64, 8000), nn.Tanh(), nn.Linear(8000, 3))
    large: Any = model[2]
    large.weight.register_hook(torch.zeros_like)
    return model


ROWS: dict[str, Any] = {
    "dropout between the halves": (Dropped, "in training"),
    "the same as a function": (DroppedByFunction, "in training"),
    "a flip in training only": (FlippedInTraining, "in training"),
    "a forward hook that acts in training": (hooked_forward, "hook"),
    "a gradient hook that clamps": (hooked_gradient, "hook on its gradient"),
    "a gradient hook that freezes": (frozen_by_hook, "hook on its gradient"),
    "the same where steps would be put off": (wide_with_a_gradient_hook, "hook on its gradient"),
    "channels_last, last layer zero": (channels_last_with_a_zero_end, "does not lie in memory in its own order"),
}


@pytest.mark.parametrize("row", ROWS)
def test_what_training_does_beyond_the_kernels_is_declined_in_words(row: str) -> None:
    build_model, reason = ROWS[row]
    runs = [fedgsp.train("fedavg", images(), build_model, rounds=2, workers=0, fast=f, lr=0.1) for f in ("auto", "off")]
    assert runs[0].run.worker_setup.kernel.name == "plain"
    assert reason in runs[0].run.worker_setup.kernel.why
    assert runs[0].state.digest() == runs[1].state.digest()
    with pytest.raises(InputError, match=f"`fast='on'`.*{reason}"):
        fedgsp.train("fedavg", images(), build_model, rounds=2, workers=0, fast="on")


@needs_compiler
def test_a_prepare_that_acts_on_rare_values_only_is_left_to_torch() -> None:
    runs = [fedgsp.train("fedavg", images(3.0), Clamped, rounds=2, workers=0, fast=f, lr=0.1) for f in ("auto", "off")]
    auto, off = (run.state.model for run in runs)
    change = max(float((off[n] - t).abs().max()) for n, t in Clamped().state_dict().items())
    assert runs[0].run.worker_setup.kernel.compiled
    assert max(float((auto[n] - off[n]).abs().max()) for n in off) <= 1e-4 * change


@pytest.mark.parametrize("method", ["moon", "fedfusion", "fedavg+mmd"])
@pytest.mark.parametrize("model", [Dropped, DroppedByFunction], ids=["module", "function"])
def test_rules_on_features_refuse_a_model_with_something_between_its_halves(method: str, model: Any) -> None:
    chosen = fedgsp.named(method)
    if method.endswith("mmd"):
        chosen = replace(chosen, local=MMD(on="features"))
    with pytest.raises(InputError, match=r"does something else in forward when it trains"):
        fedgsp.train(chosen, images(), model, rounds=1, workers=0)


@needs_compiler
def test_batches_of_hundreds_of_thousands_do_not_end_the_process(tmp_path: Path) -> None:
    """On 0.1.0: exit code 139, 32 bytes of the stack for every sample of a batch."""
    (tmp_path / "big.py").write_text(
        "import numpy as np, fedgsp\n"
        "from torch import nn\n"
        "n = 400_000\n"
        "x = np.random.default_rng(0).normal(size=(n, 4)).astype(np.float32)\n"
        "data = fedgsp.from_arrays(x, (x[:, 0] > 0).astype(int), np.zeros(n, int), classes=2, test_fraction=0.1)\n"
        "r = fedgsp.train('fedavg', data, lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), rounds=1,\n"
        "                 workers=0, batch_size=n, fast='on')\n"
        "print(r.run.worker_setup.kernel.name, r.history[-1]['serial_steps'])\n"
    )
    done = subprocess.run(
        [sys.executable, "big.py"], cwd=tmp_path, capture_output=True, text=True, check=False, env=tiny.environment()
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert done.stdout.split()[0].startswith("c-")
    assert done.stdout.split()[1] == "1"


@needs_compiler
def test_buffers_are_as_large_as_the_largest_batch_that_occurs() -> None:
    data = images()
    rule = SGD(batch_size=20_000)
    kernel = fedgsp.train("fedavg", data, Net, rounds=1, workers=0, batch_size=20_000).run.worker_setup.kernel
    trainer = Trainer(Net(), rule, classification(), data, torch.device("cpu"), Seeds(0), kernel)
    assert trainer.fused is not None
    assert trainer.fused.largest_batch == int(data.train.sizes.max())


@needs_compiler
def test_too_little_memory_means_plain_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedgsp.fast.choose.memory_bytes", lambda: 10_000)
    run = fedgsp.train("fedavg", images(), Net, rounds=1, workers=0)
    assert run.run.worker_setup.kernel.name == "plain"
    assert "not enough memory" in run.run.worker_setup.kernel.why


@needs_compiler
@pytest.mark.parametrize("fast", ["auto", "off"])
def test_a_nan_that_came_in_unchecked_is_seen_behind_a_max_pool(fast: Any) -> None:
    data = images()
    spoilt = np.array(data.features)
    spoilt[[rows[0] for rows in data.train], 3, 3] = np.nan
    with pytest.raises(Diverged, match="not finite"):
        fedgsp.train("fedavg", replace(data, features=spoilt), Net, rounds=1, workers=0, fast=fast)


@needs_compiler
@pytest.mark.parametrize("place", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_a_max_pool_passes_a_nan_on_wherever_it_is_in_its_window(place: tuple[int, int]) -> None:
    from tests.support.hops import compiled

    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 3))
    x = np.random.default_rng(0).random((6, 1, 4, 4), dtype=np.float32)
    data = from_arrays(x, np.arange(6) % 3, np.zeros(6, int), ["a"], classes=3, test_fraction=0.0)
    twin = compiled(model, SGD(), data).fused(model, torch.from_numpy(x[:1]), 5)
    assert twin is not None
    spoilt = torch.from_numpy(x.copy())
    spoilt[2, 0, place[0], place[1]] = torch.nan
    with torch.no_grad():
        assert torch.equal(twin(spoilt).isnan(), model(spoilt).isnan())
        assert bool(twin(spoilt)[2].isnan().all())


def test_labels_outside_of_the_classes_are_refused() -> None:
    data = images()
    with pytest.raises(InputError, match="training labels from 0 to 2, and classes from 0 to 1"):
        fedgsp.train("fedavg", replace(data, classes=2), Net, rounds=1, workers=0)


class TestBatches:
    """The last, small batch."""

    def test_cut_by_hand(self) -> None:
        assert Batching(5).cut(11) == [(0, 11, 5)]
        assert Batching(5, drop_last=True).cut(11) == [(0, 10, 5)]
        assert Batching(5, drop_last=True).cut(3) == [(0, 3, 5)]  # its only one
        assert Batching(5, merge_last=True).cut(11) == [(0, 5, 5), (5, 11, 6)]
        assert Batching(5, merge_last=True).cut(6) == [(0, 6, 6)]
        assert Batching(5, merge_last=True).cut(12) == [(0, 12, 5)]
        assert Batching(5, merge_last=True).cut(1) == [(0, 1, 5)]
        assert Batching(5, merge_last=True, pairs=True).cut(1) == []

    @pytest.mark.parametrize("drop", [False, True])
    @pytest.mark.parametrize("merge", [False, True])
    @pytest.mark.parametrize("pairs", [False, True])
    def test_steps_are_counted_as_they_are_made(self, drop: bool, merge: bool, pairs: bool) -> None:
        for size in (1, 2, 5):
            batching = Batching(size, drop, merge, pairs)
            for n in range(1, 23):
                cut = batching.cut(n)
                assert int(batching.steps(np.array(n))) == sum(-(-(end - begin) // step) for begin, end, step in cut)
                largest = max((min(end - begin, step) for begin, end, step in cut), default=1)
                assert largest <= batching.largest(n)

    @pytest.mark.parametrize("workers", [0, 2])
    def test_a_batch_norm_gets_no_batch_of_one(self, workers: int) -> None:
        """On 0.1.0 a client with n mod b = 1 ended the run."""
        rng = np.random.default_rng(0)
        owner = np.repeat(np.arange(4), [6, 11, 1, 5])
        x = rng.normal(size=(len(owner), 4)).astype(np.float32)
        data = from_arrays(x, rng.integers(0, 3, len(x)), owner, [*"abcd"], classes=3, test_fraction=0.0)
        run = fedgsp.train("fedavg", data, tiny.normed, rounds=2, workers=workers)
        notes = " ".join(run.run.notes)
        assert "2 client(s) whose last batch would be a single sample add it to the batch before" in notes
        assert "1 client(s) have one training sample" in notes
        assert run.history[0]["steps"] <= 1 + 2 + 0 + 1

    def test_dropping_is_the_same_on_both_paths_and_for_any_number_of_workers(self) -> None:
        method = replace(fedgsp.named("fedavg"), local=SGD(batch_size=4, drop_last=True))
        runs = [fedgsp.train(method, images(), Net, rounds=2, workers=w, fast="auto") for w in (0, 2)]
        assert runs[0].state.digest() == runs[1].state.digest()
        plain = fedgsp.train(method, images(), Net, rounds=2, workers=0, fast="off")
        assert [e["steps"] for e in runs[0].history] == [e["steps"] for e in plain.history]
        assert runs[0].history[-1]["loss"] == pytest.approx(plain.history[-1]["loss"], rel=1e-4)

    def test_on_the_command_line_and_in_a_file(self, tmp_path: Path) -> None:
        source = tiny.write_npz(tmp_path / "tiny.npz")
        done = tiny.cli(
            "run", "--data", f"npz:{source}", "--model", tiny.LINEAR, "--method", "fedavg", "--drop-last", "--batch-size",
            "3", "--rounds", "1", "--workers", "0", "--out", str(tmp_path / "run"), "-q",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "drop_last = true" in (tmp_path / "run" / "config.toml").read_text()

    def test_defaults_are_not_written_down_so_that_digests_stay(self) -> None:
        assert not {"drop_last", "merge_last"} & fedgsp.parts.encode(SGD()).keys()
        assert fedgsp.parts.encode(SGD(drop_last=True))["drop_last"] is True


@needs_compiler
class TestRecordedKernel:
    """A run goes on, and is replayed, with the kernel that it was made with."""

    DATA = images()

    def made(self, folder: Path, monkeypatch: pytest.MonkeyPatch, compiler: bool = True) -> Run:
        """A run of what would be put off without a compiler."""
        if not compiler:
            monkeypatch.setenv("CC", "")
            library.cache_clear()
        run = fedgsp.train("fedavg", self.DATA, wide, rounds=2, workers=0, out=folder).run
        monkeypatch.undo()
        library.cache_clear()
        return run

    def test_without_a_compiler_and_replayed_with_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.made(tmp_path / "run", monkeypatch, compiler=False).worker_setup.kernel.name == "lazy"
        assert fedgsp.train("fedavg", self.DATA, wide, rounds=1, workers=0).run.worker_setup.kernel.compiled
        assert fedgsp.replay(tmp_path / "run", data=self.DATA, model=wide, workers=0).differs is None
        resumed = fedgsp.resume(tmp_path / "run", rounds=3, data=self.DATA, model=wide, workers=0)
        assert resumed.run.worker_setup.kernel.name == "lazy"

    def test_where_it_cannot_be_had_that_is_said(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made(tmp_path / "run", monkeypatch)
        monkeypatch.setenv("CC", "")
        library.cache_clear()
        try:
            for again in (fedgsp.replay, fedgsp.resume):
                with pytest.raises(
                    InputError, match=r"made with the kernel 'c-\w+', which cannot be had here: there is no C compiler"
                ):
                    again(tmp_path / "run", data=self.DATA, model=wide, workers=0)
            differs = fedgsp.replay(tmp_path / "run", data=self.DATA, model=wide, workers=0, other_numerics=True).differs
            assert differs is not None
        finally:
            library.cache_clear()

    def test_another_torch_is_no_difference_of_the_run(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made(tmp_path / "run", monkeypatch)
        monkeypatch.setattr(torch, "__version__", "9.9.9")
        with pytest.raises(InputError, match=r"made with torch .* \(now 9\.9\.9\)"):
            fedgsp.replay(tmp_path / "run", data=self.DATA, model=wide, workers=0)

    def test_the_check_is_part_of_the_checkpoint(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from fedgsp.run.reader import latest_checkpoint

        run = self.made(tmp_path / "run", monkeypatch)
        found = latest_checkpoint(tmp_path / "run")
        assert found is not None
        assert found[1].numerics["kernel_check"] == run.worker_setup.kernel.checked
        assert "away from plain PyTorch" in run.worker_setup.kernel.checked


def wide() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 8000), nn.ReLU(), nn.Linear(8000, 3))


def test_the_first_line_says_why_steps_are_plain(tmp_path: Path) -> None:
    source = tiny.write_npz(tmp_path / "tiny.npz")
    done = tiny.cli(
        "run", "--data", f"npz:{source}", "--model", tiny.NORMED, "--rounds", "1", "--workers", "0", "--out",
        str(tmp_path / "run"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first = done.stdout.splitlines()[0]
    assert "plain PyTorch steps (no fast path: the model is not a list of layers that the kernels know" in first
