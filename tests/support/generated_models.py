"""Models and rules as users write them, generated: layers, odd behaviour in training, hooks, buffers, shared weights and more.

A `Recipe` is plain data, so that a failing one prints as something one can read and rebuild.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from fedgsp.client import MMD, SGD, Moon, Prox, Scaffold
from fedgsp.client.context import LocalContext
from fedgsp.data import FederatedData
from fedgsp.data.arrays import from_arrays
from fedgsp.method import Method
from fedgsp.models.split import BatchOutputs, Level
from fedgsp.plan import Constant, Grouped, Random
from fedgsp.server import Mean, ScaffoldServer

CLASSES = 3
ACTIVATIONS: dict[str, Any] = {
    "relu": nn.ReLU,
    "relu in place": lambda: nn.ReLU(inplace=True),
    "tanh": nn.Tanh,
    "none": nn.Identity,
}
NORMS = ("none", "none", "none", "batch", "layer", "group")
BETWEEN = (
    "nothing",
    "nothing",
    "nothing",
    "dropout",
    "functional dropout",
    "flip when training",
    "noise when training",
    "rare flip",
)
PREPARE = (
    "nothing",
    "nothing",
    "nothing",
    "clamp",
    "shift",
    "centre the batch",
    "noise when training",
    "turn",
    "look at values",
)
HOOKS = ("none", "none", "none", "forward", "forward before", "backward", "gradient clamp", "gradient freeze", "post gradient")
ODD = (
    "none", "none", "none", "none", "tied", "frozen", "mask buffer", "counter buffer", "channels_last", "parametrized",
    "loose parameter", "replaced forward", "half of them double", "weight clamped in forward",
)  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    """A model: convolutions as (channels, kernel, padding, pool, stride), widths of linear layers, and what is odd about it."""

    shape: tuple[int, ...]
    convolutions: tuple[tuple[int, int, int, int, int], ...] = ()
    widths: tuple[int, ...] = ()
    activation: str = "relu"
    norm: str = "none"
    bias: bool = True
    split: bool = False
    between: str = "nothing"
    prepare: str = "nothing"
    hook: str = "none"
    odd: str = "none"
    zero: bool = False
    seed: int = 0

    def build(self) -> nn.Module:
        """A fresh one, always with the same weights."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return Built(self)


class Built(nn.Module):
    """A recipe's model."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        self.recipe = recipe
        lower, upper, features = _layers(recipe)
        if recipe.split:
            self.features, self.classifier = lower, upper
        else:
            self.body, self.head = lower, upper
        self.drop = nn.Dropout(0.3)
        first, last = _linears(self)[0], _linears(self)[-1]
        if recipe.zero:
            nn.init.zeros_(last.weight)
        self._odd(recipe, first, last, features)
        self._hook(recipe, last)

    def prepare(self, x: torch.Tensor) -> torch.Tensor:
        how = self.recipe.prepare
        if how == "clamp":
            x = x.clamp(-1, 1)
        elif how == "shift":
            x = (x - 0.5) * 2
        elif how == "centre the batch":
            x = x - x.mean(dim=0)
        elif how == "noise when training" and self.training:
            x = x + 0.1 * torch.randn_like(x)
        elif how == "turn":
            x = x.flip(-1)
        elif how == "look at values":
            x = x * 2 if float(x.abs().max()) > 2.5 else x
        return x.unsqueeze(1) if len(self.recipe.shape) == 2 and self.recipe.convolutions else x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        recipe = self.recipe
        if recipe.odd == "weight clamped in forward":
            with torch.no_grad():
                _linears(self)[-1].weight.clamp_(-0.05, 0.05)
        lower, upper = (self.features, self.classifier) if recipe.split else (self.body, self.head)
        z = lower(self.prepare(x))
        if recipe.between == "dropout":
            z = self.drop(z)
        elif recipe.between == "functional dropout":
            z = functional.dropout(z, 0.3, self.training)
        elif recipe.between == "flip when training" and self.training:
            z = z.flip(1)
        elif recipe.between == "noise when training" and self.training:
            z = z * (1 + 0.1 * torch.rand_like(z))
        elif recipe.between == "rare flip" and self.training and float(torch.rand(())) < 0.02:
            z = z.flip(1)
        out: torch.Tensor = upper(z)
        return out * self.scale if recipe.odd == "loose parameter" else out

    def _odd(self, recipe: Recipe, first: nn.Linear, last: nn.Linear, features: int) -> None:
        if recipe.odd == "tied" and len(_linears(self)) > 1 and _linears(self)[-1].weight.shape == first.weight.shape:
            last.weight = first.weight
        elif recipe.odd == "frozen":
            first.weight.requires_grad_(False)
        elif recipe.odd == "mask buffer":
            self.register_buffer("mask", torch.full((2, 2), -torch.inf).triu(1))
        elif recipe.odd == "counter buffer":
            self.register_buffer("count", torch.tensor(3))
        elif recipe.odd == "channels_last":
            self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        elif recipe.odd == "parametrized":
            nn.utils.parametrizations.weight_norm(last)
        elif recipe.odd == "loose parameter":
            self.scale = nn.Parameter(torch.tensor(1.5))
        elif recipe.odd == "replaced forward":
            whole = last.forward
            last.forward = lambda x: whole(x) * 2  # type: ignore[assignment, method-assign]
        elif recipe.odd == "half of them double":
            self.register_buffer("wide", torch.ones(2, dtype=torch.float64))

    def _hook(self, recipe: Recipe, last: nn.Linear) -> None:
        if recipe.hook == "forward":
            last.register_forward_hook(lambda module, inputs, output: output * 2 if module.training else output)
        elif recipe.hook == "forward before":
            last.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 2,) if module.training else inputs)
        elif recipe.hook == "backward":
            last.register_full_backward_hook(_halved)
        elif recipe.hook == "gradient clamp":
            last.weight.register_hook(lambda g: g.clamp(-1e-3, 1e-3))  # type: ignore[no-untyped-call]
        elif recipe.hook == "gradient freeze" and last.bias is not None:
            last.bias.register_hook(torch.zeros_like)  # type: ignore[no-untyped-call]
        elif recipe.hook == "post gradient":
            last.weight.register_post_accumulate_grad_hook(_halve)  # type: ignore[no-untyped-call]


def _halved(module: nn.Module, inputs: Any, outputs: Any) -> Any:
    return tuple(g if g is None else g / 2 for g in inputs)


def _halve(parameter: torch.Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad.mul_(0.5)


def _linears(model: nn.Module) -> list[nn.Linear]:
    return [module for module in model.modules() if isinstance(module, nn.Linear)]


def _norm(kind: str, channels: int, image: bool) -> list[nn.Module]:
    if kind == "batch":
        return [nn.BatchNorm2d(channels) if image else nn.BatchNorm1d(channels)]
    if kind == "layer" and not image:
        return [nn.LayerNorm(channels)]
    return [nn.GroupNorm(1, channels)] if kind == "group" else []


def _layers(recipe: Recipe) -> tuple[nn.Module, nn.Module, int]:
    activation = ACTIVATIONS[recipe.activation]
    lower: list[nn.Module] = []
    size = recipe.shape
    if recipe.convolutions:
        channels, height, width = size if len(size) == 3 else (1, *size)
        for out, kernel, padding, pool, stride in recipe.convolutions:
            lower += [nn.Conv2d(channels, out, kernel, padding=padding, stride=stride, bias=recipe.bias)]
            lower += [*_norm(recipe.norm, out, image=True), activation()]
            height, width = ((n + 2 * padding - kernel) // stride + 1 for n in (height, width))
            if pool > 1:
                lower.append(nn.MaxPool2d(pool))
                height, width = height // pool, width // pool
            channels = out
        flat = channels * height * width
    else:
        flat = int(np.prod(size))
    lower.append(nn.Flatten())
    upper: list[nn.Module] = []
    features = flat
    for width in recipe.widths:
        upper += [nn.Linear(features, width, bias=recipe.bias), *_norm(recipe.norm, width, image=False), activation()]
        features = width
    upper.append(nn.Linear(features, CLASSES, bias=recipe.bias))
    return nn.Sequential(*lower), nn.Sequential(*upper), flat


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    """Any of them; most are plain in most ways, so that what is odd is met alone as well as together."""
    image = draw(st.booleans())
    shape = draw(st.sampled_from([(8, 8), (1, 8, 8), (3, 7, 9)] if image else [(5,), (12,), (4, 3)]))
    convolutions: list[tuple[int, int, int, int, int]] = []
    if image:
        smallest = min(shape[-2:])
        for _ in range(draw(st.integers(0, 2))):
            kernel, padding = draw(st.sampled_from([(1, 0), (3, 1), (3, 0), (5, 2), (2, 1)]))
            pool, stride = draw(st.sampled_from([1, 2, 2, 3])), draw(st.sampled_from([1, 1, 1, 2]))
            after = ((smallest + 2 * padding - kernel) // stride + 1) // pool
            if after < 1 or smallest + 2 * padding < kernel:
                break
            convolutions.append((draw(st.integers(1, 9)), kernel, padding, pool, stride))
            smallest = after
    return Recipe(
        shape,
        tuple(convolutions),
        tuple(draw(st.lists(st.integers(1, 12), max_size=2))),
        draw(st.sampled_from(["relu", "relu", "relu", *ACTIVATIONS])),
        draw(st.sampled_from(NORMS)),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.sampled_from(BETWEEN)),
        draw(st.sampled_from(PREPARE)),
        draw(st.sampled_from(HOOKS)),
        draw(st.sampled_from(ODD)),
        draw(st.sampled_from([False, False, True])),
        draw(st.integers(0, 5)),
    )


@dataclass(frozen=True, kw_only=True)
class Squared(SGD):
    """A term of the outputs."""

    weight: float = 0.1

    def looks_at(self) -> Level:
        return "logits"

    def loss_term(self, ctx: LocalContext, seen: BatchOutputs, y: torch.Tensor) -> torch.Tensor:
        return self.weight * seen.outputs.square().mean()


@dataclass(frozen=True, kw_only=True)
class Clipped(SGD):
    """Clipped gradients, a step of its own."""

    def adjust(self, ctx: LocalContext) -> None:
        nn.utils.clip_grad_norm_(ctx.model.parameters(), 0.1)


@dataclass(frozen=True, kw_only=True)
class Cheating(SGD):
    """A term of a weight, which the kernels know nothing of."""

    def looks_at(self) -> Level:
        return "logits"

    def loss_term(self, ctx: LocalContext, seen: BatchOutputs, y: torch.Tensor) -> torch.Tensor:
        return 0.01 * next(p for p in ctx.model.parameters() if p.requires_grad).square().sum()


@dataclass(frozen=True, kw_only=True)
class Nudging(SGD):
    """Changes the model before its first batch and after its last."""

    def begin(self, ctx: LocalContext) -> None:
        with torch.no_grad():
            next(ctx.model.parameters()).mul_(0.99)

    def finish(self, ctx: LocalContext) -> dict[str, float]:
        with torch.no_grad():
            next(ctx.model.parameters()).add_(0.001)
        return super().finish(ctx)


RULES: dict[str, Any] = {
    "sgd": SGD, "decay": lambda **k: SGD(weight_decay=0.01, **k), "momentum": lambda **k: SGD(momentum=0.5, **k),
    "prox": lambda **k: Prox(mu=0.3, **k), "scaffold": Scaffold, "squared": Squared, "clipped": Clipped, "cheating": Cheating,
    "nudging": Nudging, "drop last": lambda **k: SGD(drop_last=True, **k), "merge last": lambda **k: SGD(merge_last=True, **k),
    "mmd": lambda **k: MMD(lam=0.01, **k), "moon": lambda **k: Moon(mu=0.5, **k),
}  # fmt: skip


def method(rule: str, batch_size: int, lr: float) -> Method:
    """FedAvg in chains of two, with a rule."""
    local = RULES[rule](lr=lr, batch_size=batch_size)
    server = ScaffoldServer(Mean()) if rule == "scaffold" else Mean()
    return Method(Grouped(Constant(2), Random(), kappa=1.0), local, server, name=f"generated-{rule}")


def samples(shape: tuple[int, ...], seed: int, scale: float = 1.0) -> FederatedData:
    """Four clients of 3 to 9 samples; some values are far from the others."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(4), [3, 5, 9, 7])
    features = (scale * rng.normal(size=(len(owner), *shape))).astype(np.float32)
    features[::5] *= 3
    labels = rng.integers(0, CLASSES, len(owner))
    return from_arrays(features, labels, owner, [*"abcd"], classes=CLASSES, test_fraction=0.2)
