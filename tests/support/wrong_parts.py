"""Parts as users write them by mistake, each wrong in one way, named by `how`; and runs that refuse them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import fedgsp
from fedgsp.client import SGD, GradientTerm, trained
from fedgsp.core.chain import Chain, Plan
from fedgsp.core.errors import FedgspError, InputError, RunFailed
from fedgsp.core.state import GLOBAL, ServerState
from fedgsp.plan import Grouper, GroupShape, Growth, Planner, Random, RoundSizes
from fedgsp.server import Combine, Mean, ServerRule, Update, View
from tests.support import tiny


@dataclass(frozen=True)
class MyGrouper(Grouper):
    """Two groups, by turns."""

    how: str = ""

    def assign(self, counts: Any, n_groups: int, rng: Any) -> Any:
        clients = len(counts)
        right = np.arange(clients) % n_groups
        wrong = {
            "too few": right[:-1], "too many": np.arange(clients + 1) % n_groups, "a table": right[:, None], "nothing": None,
            "floats": right / 1.0, "texts": right.astype(str), "above": right + 1, "below": right - 2, "nobody": right * 0 - 1,
            "empty group": right * 0, "uneven": (np.arange(clients) == 0).astype(np.int64),
        }  # fmt: skip
        if self.how == "raises":
            return right[100]
        return wrong.get(self.how, right)

    def shape(self, clients: int, n_groups: int) -> Any:
        if self.how == "shapeless":
            return clients // n_groups
        if self.how == "odd shape":
            return GroupShape(clients / n_groups, clients, clients)  # type: ignore[arg-type]
        return GroupShape(clients // n_groups, -(-clients // n_groups), clients)

    def drawn_in(self, round_: int) -> int:
        return 0 if self.how == "drawn never" else round_


class BareGrouper:
    """Not derived from anything, and half done."""

    def assign(self, counts: Any, n_groups: int, rng: Any) -> Any:
        return np.arange(len(counts)) % n_groups


@dataclass(frozen=True)
class MyFiller(Random):
    how: str = ""

    def fill(self, counts: Any, sizes: Any, rng: Any, population: Any = None) -> Any:
        return np.zeros(len(counts), dtype=int) if self.how == "all in one" else super().fill(counts, sizes, rng)


@dataclass(frozen=True)
class MyGrowth(Growth):
    how: str = ""

    def wanted(self, round_: int) -> Any:
        return {"wanted float": 2.5}.get(self.how, 2)

    def groups(self, round_: int, clients: int) -> Any:
        if self.how == "late":
            return 2 if round_ < 3 else 0
        return {"float": 2.0, "negative": -1, "zero": 0, "too many": clients + 1, "none": None}.get(self.how, 2)


@dataclass(frozen=True)
class MyPlanner(Planner):
    """All clients in two chains."""

    how: str = ""
    late: bool = False

    def plan(self, round_: int, profiles: Any, seeds: Any) -> Any:
        clients = profiles.clients.tolist()
        half = len(clients) // 2
        half_a_client: Any = 0.5
        right: Any = Plan(round_, (Chain(tuple(clients[:half])), Chain(tuple(clients[half:]))), 2)
        if self.late and round_ == 1:
            return right
        first, second = right.chains
        make: dict[str, Any] = {
            "no plan": lambda: None,
            "a list": lambda: [clients],
            "no chains": lambda: replace(right, chains=()),
            "lists for chains": lambda: replace(right, chains=(clients,)),
            "empty chain": lambda: replace(right, chains=(first, Chain(()))),
            "client that is not": lambda: replace(right, chains=(first, Chain((99,)))),
            "client that is no number": lambda: replace(right, chains=(first, Chain((half_a_client,)))),
            "twice in a chain": lambda: replace(right, chains=(Chain((0, 1, 0)), second)),
            "in two chains": lambda: replace(right, chains=(first, Chain((*second.clients[1:], first.clients[0])))),
            "fewer groups than chains": lambda: replace(right, groups=1),
            "more chains than said": lambda: replace(right, chains=tuple(Chain((k,)) for k in clients), groups=len(clients)),
            "longer chains than said": lambda: replace(right, chains=(Chain(tuple(clients)),)),
            "passes not said": lambda: replace(right, chains=(replace(first, passes=2), second)),
            "another round": lambda: replace(right, round=7),
            "numpy numbers": lambda: replace(
                right, chains=tuple(Chain(tuple(np.array(c.clients))) for c in right.chains), groups=np.int64(2)
            ),
            "raises": lambda: clients[99],
        }  # fmt: skip
        return make.get(self.how, lambda: right)()

    def schedule(self, round_: int, clients: int) -> Any:
        half = clients // 2
        right: Any = RoundSizes(round_, 2, 2, half, clients - half, clients, 2, clients)
        wrong = {"no schedule": None, "float schedule": replace(right, sampled=2.0), "impossible": replace(right, sampled=3)}
        return wrong.get(self.how, right)


class NoSchedule:
    """A planner that only plans."""

    def plan(self, round_: int, profiles: Any, seeds: Any) -> Plan:
        return Plan(round_, (Chain((0,)),), 1)


@dataclass(frozen=True, kw_only=True)
class MyLocal(SGD):
    how: str = ""

    def objective(self, ctx: Any, x: Any, y: Any) -> Any:
        losses = ctx.task.loss(ctx.model(x), y)
        loss = losses.mean()
        wrong = {
            "one value": loss, "three values": (loss, loss, loss), "a list": [loss, loss], "not reduced": (losses, loss),
            "reported not reduced": (loss, losses), "reported float": (loss, loss.item()), "detached": (loss.detach(), loss),
            "nothing": None,
        }  # fmt: skip
        if self.how == "raises":
            return loss.nothing_of_that_name
        return wrong.get(self.how, (loss, loss))

    def finish(self, ctx: Any) -> Any:
        if self.how == "tensor metric":
            return {"extra": torch.zeros(2)}
        if self.how == "metrics forgotten":
            return {}
        return None if self.how == "finish gives nothing" else super().finish(ctx)

    def reports(self) -> Any:
        return ["accuracy"] if self.how == "reports a list" else super().reports()

    def optimizer(self, model: nn.Module, lr: float) -> Any:
        return None if self.how == "no optimizer" else super().optimizer(model, lr)

    def initial_client_state(self, model: nn.Module) -> Any:
        if self.how == "keeps a list":
            return [torch.zeros(2)]
        return {"memory": torch.zeros(2)} if self.how in ("state lost", "initial_client_state") else {}

    def begin(self, ctx: Any) -> None:
        if self.how == "state lost":
            ctx.state = {}

    def upload_spec(self, model: nn.Module) -> Any:
        return {"news": torch.zeros(2)} if self.how in ("nothing sent", "upload_spec") else {}


@dataclass(frozen=True, kw_only=True)
class MyTerm(SGD):
    how: str = ""

    def looks_at(self) -> Any:
        return "outputs" if self.how == "looks elsewhere" else "logits"

    def loss_term(self, ctx: Any, seen: Any, y: Any) -> Any:
        wrong = {"a vector": seen.outputs.sum(1), "a float": 0.5, "detached": seen.outputs.detach().mean()}
        return wrong.get(self.how, seen.outputs.square().mean())

    def gradient_term(self, ctx: Any) -> Any:
        if self.how == "pull of floats":
            return 0.5
        here = trained(ctx.model)
        return GradientTerm(0.1, {name: here[name] for name in list(here)[:1]}) if self.how == "half a pull" else None


class NoRule:
    """A local rule that is not derived from SGD."""


@dataclass(frozen=True)
class MyServer(ServerRule):
    how: str = ""

    needs: ClassVar[Any] = "sum"

    def init(self, model: Any, setting: Any = None) -> Any:
        if self.how == "init gives nothing":
            return None
        if self.how == "init forgets the model":
            return ServerState(0, {GLOBAL: {}})
        return ServerState(5, {GLOBAL: model})

    def route(self, state: Any, plan: Any, seeds: Any) -> Any:
        if self.how == "routes nowhere":
            return replace(plan, chains=tuple(replace(chain, start="elsewhere") for chain in plan.chains))
        return None if self.how == "route gives nothing" else plan

    def start(self, state: Any, plan: Any, planned: Any) -> Any:
        return None if self.how == "start gives nothing" else MyUpdate(state, self.how)

    def views(self, state: Any) -> Any:
        wrong: dict[str, Any] = {"views a name": (GLOBAL,), "views nothing": (), "views what is not": (View("best"),)}
        wrong["views twice"] = (View(), View())
        return wrong.get(self.how, (View(),))


class MyUpdate(Update):
    def __init__(self, state: ServerState, how: str) -> None:
        self.state, self.how, self.last = state, how, dict[str, torch.Tensor]()

    def add(self, result: Any) -> None:
        if self.how == "add raises":
            result.nothing_of_that_name()
        self.last = result.tensors

    def finish(self) -> Any:
        if self.how == "raises":
            return self.last["nothing_of_that_name"]
        model = dict(self.last)
        name = next(iter(model))
        if self.how == "tensor missing":
            del model[name]
        if self.how == "tensor more":
            model["more"] = torch.zeros(1)
        if self.how == "shape":
            model[name] = model[name].flatten()
        if self.how == "type":
            model[name] = model[name].double()
        if self.how == "array":
            model[name] = model[name].numpy()  # type: ignore[assignment]
        if self.how == "elsewhere":
            model[name] = model[name].to("meta")
        after: Any = replace(self.state, models={GLOBAL: model})  # `round` is as it was: the loop counts
        wrong = {
            "a model": model, "nothing": None, "extra tensor": replace(after, extra={"norm": torch.zeros(1)}),
            "extra keys": replace(after, extra={1: 2}), "extra tuple": replace(after, extra={"pair": (1, 2)}),
            "flat slot": replace(after, slots=dict(model)), "no models": replace(after, models={}),
            "odd name": replace(after, models={GLOBAL: model, "a|b": model}), "shared list": replace(after, shared=[1]),
            "round 9": replace(after, round=9), "same memory": replace(after, slots={"copy": model}),
        }  # fmt: skip
        return wrong.get(self.how, after)


class NoServer:
    """A server rule that only starts."""

    def start(self, state: Any, plan: Any, planned: Any) -> Any:
        return None


@dataclass(frozen=True)
class HalfMean(Combine):
    """Forgets to come back with a model."""

    def combine(self, models: Any, weights: Any) -> Any:
        models.mean(weights)


@dataclass(frozen=True)
class Wordy(Mean):
    needs: ClassVar[Any] = "everything"


@dataclass(frozen=True)
class Listing(Mean):
    def wants(self) -> Any:
        return ["accuracy"]


@dataclass(frozen=True)
class Holding(Mean):
    """A part with a parameter that no configuration can spell."""

    inside: Any = field(default_factory=lambda: np.zeros(3))


class MyNet(nn.Module):
    """A linear model that is wrong in one way."""

    def __init__(self, how: str = "") -> None:
        super().__init__()
        self.how, self.layer = how, nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> Any:
        out = self.layer(x)
        wrong = {
            "detached": out.detach(), "classes": out.argmax(1).float(), "tuple": (out, x), "dict": {"logits": out},
            "too wide": torch.cat([out, out], 1), "flat": out.flatten(), "whole": (out * 10).long(), "nothing": None,
        }  # fmt: skip
        return wrong.get(self.how, out)


class NeedyNet(nn.Module):
    """A class that cannot be made without being told something."""

    def __init__(self, hidden: int) -> None:
        super().__init__()


def by_turns(counts: Any, n_groups: int, rng: Any) -> Any:
    return np.arange(len(counts)) % n_groups


def twice(round_: int) -> int:
    return 2 * round_


DATA = tiny.federation()
BASE = tiny.chains()
HERE = r" \(.*wrong_parts\.py:\d+\)"
"""Where all of these stand, for a sentence about them."""


def run(method: Any, out: Path | None = None, **options: Any) -> fedgsp.RunResult:
    """Three rounds on tiny data."""
    return fedgsp.train(method, **{"data": DATA, "model": tiny.linear, "rounds": 3, "workers": 0, "out": out, **options})


def refused(method: Any, out: Path, **options: Any) -> str:
    """The sentence that refuses a method (or a function that makes it) before anything is written."""
    with pytest.raises(InputError) as caught:
        run(method() if callable(method) and not isinstance(method, type) else method, out, **options)
    assert not out.exists()
    return sentence(caught.value)


def failed(method: Any, out: Path, **options: Any) -> str:
    """The sentence that ends a run which had begun."""
    with pytest.raises(RunFailed) as caught:
        run(method, out, **options)
    assert json.loads((out / "result.json").read_text())["status"] == "failed"
    return sentence(caught.value)


def sentence(error: FedgspError) -> str:
    """What is told: one sentence, on one line."""
    text = str(error)
    assert text.endswith(".")
    assert ".." not in text.replace("...", "")
    assert "\n" not in text
    return text
