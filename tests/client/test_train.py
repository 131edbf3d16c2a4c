"""The training loop, against plain SGD on softmax regression worked out here in numpy."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from fedgsp.client import SGD, Cosine, Decay, LocalContext, Steady
from fedgsp.client import train as train_module
from fedgsp.client.train import Trainer, load_tensors, model_tensors
from fedgsp.core.chain import Hop, HopReport
from fedgsp.core.errors import Diverged
from fedgsp.core.seeds import Seeds
from fedgsp.core.tensors import Tensors, clone, digest
from fedgsp.data.arrays import from_arrays
from fedgsp.data.federated import FederatedData
from fedgsp.models import classification, regression

FEATURES, CLASSES, SEED = 3, 4, 11


def federation(sizes: tuple[int, ...] = (13, 7)) -> FederatedData:
    rng = np.random.default_rng(1)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    x = rng.normal(size=(len(owner), FEATURES)).astype(np.float32)
    y = rng.integers(0, CLASSES, len(owner))
    return from_arrays(x, y, owner, [f"client-{k}" for k in range(len(sizes))], classes=CLASSES, test_fraction=0)


def start() -> Tensors:
    rng = np.random.default_rng(2)
    weight = rng.normal(size=(CLASSES, FEATURES)).astype(np.float32)
    return {"weight": torch.from_numpy(weight), "bias": torch.linspace(-0.2, 0.3, CLASSES)}


def trainer(rule: SGD, data: FederatedData | None = None, model: nn.Module | None = None) -> Trainer:
    module = nn.Linear(FEATURES, CLASSES) if model is None else model
    return Trainer(module, rule, classification(), data or federation(), torch.device("cpu"), Seeds(SEED))


def visited(rule: SGD, round_: int = 5, hop: Hop = Hop(0, 0, 0)) -> tuple[Tensors, HopReport]:  # noqa: B008
    turn, begin = trainer(rule), start()
    load_tensors(turn.model, begin)
    report = turn.train(round_, hop, begin, {})
    return clone(model_tensors(turn.model)), report


def by_hand(
    rule: SGD, lr: float, round_: int = 5, client: int = 0, visit: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64], float, int]:
    """(weight, bias, mean loss, steps) of softmax regression by plain mini-batch SGD in float64."""
    data = federation()
    rows = data.train[client]
    x, y = data.features[rows].astype(np.float64), data.labels[rows]
    weight, bias = (start()[name].numpy().astype(np.float64) for name in ("weight", "bias"))
    parameters = [weight, bias]
    momenta: list[NDArray[np.float64] | None] = [None, None]
    losses: list[float] = []
    steps = 0
    for epoch in range(rule.epochs):
        order = np.random.default_rng([SEED, 3, round_, client, visit, epoch]).permutation(len(rows))
        for begin in range(0, len(rows), rule.batch_size):
            batch = order[begin : begin + rule.batch_size]
            logits = x[batch] @ parameters[0].T + parameters[1]
            chances = np.exp(logits - logits.max(axis=1, keepdims=True))
            chances /= chances.sum(axis=1, keepdims=True)
            losses += (-np.log(chances[np.arange(len(batch)), y[batch]])).tolist()
            error = (chances - np.eye(CLASSES)[y[batch]]) / len(batch)  # the mean over the batch's real size
            for i, gradient in enumerate((error.T @ x[batch], error.sum(axis=0))):
                decayed = gradient + rule.weight_decay * parameters[i]
                before = momenta[i]
                step = decayed if before is None else rule.momentum * before + decayed
                momenta[i] = step
                parameters[i] = parameters[i] - lr * step
            steps += 1
    return parameters[0], parameters[1], float(np.mean(losses)), steps


@pytest.mark.parametrize(
    ("rule", "lr"),
    [
        (SGD(lr=0.1), 0.1),  # batches of 5, 5 and 3
        (SGD(lr=0.1, batch_size=13), 0.1),
        (SGD(lr=0.1, batch_size=100), 0.1),
        (SGD(lr=0.1, batch_size=1), 0.1),
        (SGD(lr=0.1, batch_size=4, epochs=3), 0.1),
        (SGD(lr=0.05, epochs=2, momentum=0.9), 0.05),
        (SGD(lr=0.1, epochs=2, weight_decay=0.3), 0.1),
        (SGD(lr=0.05, batch_size=3, epochs=2, momentum=0.5, weight_decay=0.1), 0.05),
        (SGD(lr=0.4, schedule=Decay(rate=0.5, every=2)), 0.1),  # round 5: two halvings
        (SGD(lr=0.4, schedule=Cosine(rounds=8)), 0.2),  # round 5: half way
    ],
)
def test_the_loop_is_mini_batch_sgd(rule: SGD, lr: float) -> None:
    tensors, report = visited(rule)
    weight, bias, loss, steps = by_hand(rule, lr)
    np.testing.assert_allclose(tensors["weight"].numpy(), weight, rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(tensors["bias"].numpy(), bias, rtol=2e-5, atol=2e-6)
    assert report.metrics["loss"] == pytest.approx(loss, rel=1e-5)
    assert report.steps == steps


@pytest.mark.parametrize(("round_", "hop"), [(6, Hop(0, 0, 0)), (5, Hop(3, 1, 0)), (5, Hop(2, 0, 1))])
def test_batches_are_drawn_anew_for_every_round_client_and_hop(round_: int, hop: Hop) -> None:
    rule = SGD(lr=0.1)
    tensors, _ = visited(rule, round_, hop)
    weight, _, _, _ = by_hand(rule, 0.1, round_, hop.client, hop.repeat)
    np.testing.assert_allclose(tensors["weight"].numpy(), weight, rtol=2e-5, atol=2e-6)
    assert digest(tensors) != digest(visited(rule)[0])


def test_the_place_in_the_chain_does_not_matter() -> None:
    assert digest(visited(SGD(lr=0.1), hop=Hop(7, 0, 0))[0]) == digest(visited(SGD(lr=0.1), hop=Hop(0, 0, 0))[0])


def test_what_a_report_says() -> None:
    _, report = visited(SGD(epochs=3), hop=Hop(4, 1, 2))
    size = 4 * (CLASSES * FEATURES + CLASSES)
    assert (report.client, report.hop, report.repeat) == (1, 4, 2)
    assert report.samples == 7  # once, whatever the number of epochs
    assert report.steps == 3 * 2
    assert report.bytes_down == report.bytes_up == size
    assert report.seconds > 0


def test_what_the_server_sends_along_is_downloaded_too() -> None:
    turn, begin = trainer(SGD()), start()
    load_tensors(turn.model, begin)
    report = turn.train(1, Hop(0, 0, 0), begin, {"control": torch.zeros(10)})
    assert report.bytes_down == report.bytes_up + 40


def test_gathering_in_blocks_does_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, report = visited(SGD(lr=0.1, batch_size=3))
    monkeypatch.setattr(train_module, "GATHER_ROWS", 7)  # blocks of 6, 6 and 1 rows
    blocks, in_blocks = visited(SGD(lr=0.1, batch_size=3))
    assert digest(blocks) == digest(whole)
    assert in_blocks.steps == report.steps == 5


def test_a_client_without_samples_hands_the_model_on_unchanged() -> None:
    empty = federation().with_validation(0, 0)
    turn = trainer(SGD(), from_arrays(np.zeros((2, FEATURES)), np.zeros(2, int), np.array([0, 1]), classes=CLASSES))
    turn.data = FederatedData(
        empty.features, empty.labels, ("nobody",), empty.test.take([0]), empty.test.take([0]), empty.test.take([0]), CLASSES
    )
    begin = start()
    load_tensors(turn.model, begin)
    report = turn.train(1, Hop(0, 0, 0), begin, {})
    assert (report.samples, report.steps, report.metrics["loss"]) == (0, 0, 0.0)
    assert digest(model_tensors(turn.model)) == digest(begin)


def test_divergence_names_client_round_and_rate() -> None:
    with pytest.raises(Diverged, match=r"diverged at client 'client-1' in round 9: its loss is not finite.*than 1e\+38\.$"):
        visited(SGD(lr=1e38, batch_size=2, epochs=30), round_=9, hop=Hop(0, 1, 0))


def test_a_model_that_breaks_in_the_last_step_is_this_clients_doing() -> None:
    with pytest.raises(Diverged, match=r"client 'client-1' in round 9: its model is not finite"):
        visited(BreaksAtTheEnd(lr=0.1, batch_size=10_000), round_=9, hop=Hop(0, 1, 0))


@dataclass(frozen=True, kw_only=True)
class BreaksAtTheEnd(SGD):
    """Its one batch has a finite loss and a gradient that is not."""

    def adjust(self, ctx: LocalContext) -> None:
        for parameter in ctx.model.parameters():
            assert parameter.grad is not None
            parameter.grad[0] = float("inf")


class TestModelsWithMore:
    def test_batch_norm_keeps_statistics_and_counts_batches(self) -> None:
        model = nn.Sequential(nn.BatchNorm1d(FEATURES, momentum=None), nn.Linear(FEATURES, CLASSES))
        turn = trainer(SGD(batch_size=13), model=model)
        begin = clone(model_tensors(model))
        model.eval()  # as an evaluation leaves it
        turn.train(1, Hop(0, 0, 0), begin, {})
        after = model_tensors(model)
        seen = turn.data.features[turn.data.train[0]]
        assert after["0.num_batches_tracked"].item() == 1
        np.testing.assert_allclose(after["0.running_mean"].numpy(), seen.mean(axis=0), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(after["0.running_var"].numpy(), seen.var(axis=0, ddof=1), rtol=1e-4)

    def test_dropout_depends_on_the_visit_only(self) -> None:
        def run(hop: Hop, noise: int) -> str:
            model = nn.Sequential(nn.Dropout(0.5), nn.Linear(FEATURES, CLASSES))
            turn = trainer(SGD(lr=0.1), model=model)
            load_tensors(model, {f"1.{name}": tensor for name, tensor in start().items()})
            torch.rand(noise)
            turn.train(1, hop, {}, {})
            return digest(model_tensors(model))

        assert run(Hop(0, 0, 0), 0) == run(Hop(0, 0, 0), 5)
        assert run(Hop(0, 0, 0), 0) != run(Hop(0, 0, 1), 0)

    @pytest.mark.parametrize(("round_", "hop"), [(1, Hop(0, 0, 0)), (2, Hop(0, 0, 0)), (1, Hop(0, 1, 0)), (1, Hop(5, 0, 1))])
    def test_torch_is_seeded_by_round_client_and_hop(self, round_: int, hop: Hop) -> None:
        drawn: list[float] = []

        @dataclass(frozen=True, kw_only=True)
        class Draw(SGD):
            def begin(self, ctx: LocalContext) -> None:
                drawn.append(torch.rand(1).item())

        trainer(Draw()).train(round_, hop, {}, {})
        seed = int(np.random.default_rng([SEED, 4, round_, hop.client, hop.repeat]).integers(2**63))
        assert drawn == [torch.rand(1, generator=torch.Generator().manual_seed(seed)).item()]

    def test_frozen_parameters_stay(self) -> None:
        model = nn.Linear(FEATURES, CLASSES)
        model.bias.requires_grad_(False)
        turn = trainer(SGD(lr=0.1, weight_decay=0.1), model=model)
        begin = start()
        load_tensors(model, begin)
        turn.train(1, Hop(0, 0, 0), begin, {})
        assert torch.equal(model.bias, begin["bias"])
        assert not torch.equal(model.weight, begin["weight"])

    def test_regression(self) -> None:
        x = np.linspace(-1, 1, 40, dtype=np.float32)[:, None]
        data = from_arrays(x, 3 * x[:, 0] + 0.5, np.zeros(40, dtype=int), test_fraction=0)
        turn = Trainer(nn.Linear(1, 1), SGD(lr=0.1, epochs=60), regression(), data, torch.device("cpu"), Seeds(0))
        turn.train(1, Hop(0, 0, 0), {}, {})
        weight, bias = model_tensors(turn.model).values()
        assert [weight.item(), bias.item()] == pytest.approx([3, 0.5], abs=0.01)


class TestLoadTensors:
    def test_a_copy_in_place(self) -> None:
        model = nn.Linear(FEATURES, CLASSES)
        place, begin = model.weight.data_ptr(), start()
        load_tensors(model, begin)
        assert model.weight.data_ptr() == place
        assert torch.equal(model.weight, begin["weight"])
        with torch.no_grad():
            model.weight.zero_()
        assert begin["weight"].any()

    def test_other_tensors_are_refused(self) -> None:
        with pytest.raises(ValueError, match=r"other tensors than it was handed: \['bias', 'more'\]"):
            load_tensors(nn.Linear(FEATURES, CLASSES), {"weight": torch.zeros(CLASSES, FEATURES), "more": torch.zeros(1)})


@dataclass(frozen=True, kw_only=True)
class Recording(SGD):
    """A rule that writes down when it is called, pulls towards the handed model and reports a metric."""

    pull: float = 0.0
    calls: list[str] = field(default_factory=list)

    def begin(self, ctx: LocalContext) -> None:
        self.calls.append(f"begin {ctx.round} {ctx.client} {ctx.number}")
        ctx.memo["handed"] = [p.detach().clone() for p in ctx.model.parameters()]

    def objective(self, ctx: LocalContext, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.calls.append(f"objective {len(y)}")
        handed = ctx.memo["handed"]
        away = torch.stack([(p - q).square().sum() for p, q in zip(ctx.model.parameters(), handed, strict=True)]).sum()
        _, loss = super().objective(ctx, x, y)
        return loss + self.pull * away, loss

    def adjust(self, ctx: LocalContext) -> None:
        assert all(p.grad is not None for p in ctx.model.parameters())
        self.calls.append("adjust")

    def finish(self, ctx: LocalContext) -> dict[str, float]:
        self.calls.append("finish")
        return {"drift": 1.5, "lr": ctx.lr}


class TestHooks:
    def test_they_are_called_in_order(self) -> None:
        rule = Recording(lr=0.2, batch_size=8, schedule=Decay(rate=0.5))
        _, report = visited(rule, round_=2, hop=Hop(0, 0, 3))
        assert rule.calls == ["begin 2 0 3", "objective 8", "adjust", "objective 5", "adjust", "finish"]
        assert report.metrics == {"loss": report.metrics["loss"], "drift": 1.5, "lr": 0.1}

    def test_a_rule_that_adds_nothing_is_plain_sgd(self) -> None:
        assert digest(visited(Recording(lr=0.1))[0]) == digest(visited(SGD(lr=0.1))[0])

    def test_the_added_term_is_trained_and_the_plain_loss_reported(self) -> None:
        plain, _ = visited(SGD(lr=0.1, epochs=5))
        near, report = visited(Recording(lr=0.1, epochs=5, pull=3.0))
        begin = start()["weight"]
        assert (near["weight"] - begin).norm() < 0.5 * (plain["weight"] - begin).norm()
        turn = trainer(SGD())
        load_tensors(turn.model, near)
        x, y = turn.data.features[turn.data.train[0]], turn.data.labels[turn.data.train[0]]
        at_end = nn.functional.cross_entropy(turn.model(torch.from_numpy(x)), torch.from_numpy(y)).item()
        assert report.metrics["loss"] == pytest.approx(at_end, rel=0.2)

    def test_every_visit_begins_with_an_empty_memo(self) -> None:
        seen: list[dict[str, Any]] = []

        @dataclass(frozen=True, kw_only=True)
        class Peek(SGD):
            def begin(self, ctx: LocalContext) -> None:
                seen.append(dict(ctx.memo))
                ctx.memo["x"] = 1

        turn = trainer(Peek())
        turn.train(1, Hop(0, 0, 0), {}, {})
        turn.train(1, Hop(1, 1, 0), {}, {})
        assert seen == [{}, {}]

    def test_the_global_model_and_what_is_shared_are_there_to_see(self) -> None:
        seen: list[float] = []

        @dataclass(frozen=True, kw_only=True)
        class Peek(SGD):
            def begin(self, ctx: LocalContext) -> None:
                seen.extend([ctx.global_model["w"].item(), ctx.shared["c"].item()])

        trainer(Peek()).train(1, Hop(0, 0, 0), {"w": torch.tensor(2.0)}, {"c": torch.tensor(3.0)})
        assert seen == [2.0, 3.0]


def test_a_steady_rate_is_the_default() -> None:
    rule = SGD()
    assert (rule.lr, rule.batch_size, rule.epochs, rule.momentum, rule.weight_decay) == (0.01, 5, 1, 0.0, 0.0)
    assert rule.schedule == Steady()
    assert math.isclose(rule.schedule.factor(500), 1.0)
