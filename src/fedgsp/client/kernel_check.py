"""A fast path proves itself before it is taken: on the run's own samples it must make the steps that torch makes.

Two clients, one with a full and a partial batch and one with a partial batch only, are trained by plain PyTorch and by the
kernel, from the same weights, client state and random numbers, in training mode and by the rule that will run. Clients that
keep something train twice, so that what they keep is not what they began with. Then for every number of the model

    |fast - plain| <= ULPS ulp(number) + ROUNDING (largest change in its tensor)

The first term is what rounding a weight costs: each step of a hop, two as a rule, rounds it once on either path, to half an
ulp. The second is what the order of a sum costs a gradient. Float32 keeps 24 bits, and a gradient is a sum of up to some
thousand products of numbers that were sums themselves: over random networks the difference stays below 1e-5 of the largest
change in nearly all of them (docs/performance.md), a third of what is allowed.

Where a difference is larger, plain steps are made again from weights that are changed in their last bit. A step that itself
amplifies such a change (a unit at the kink of its ReLU, a narrow MMD kernel) is allowed eight times as much, but never more
than `AMPLIFIED` of the largest change. A larger difference is a kink too where one of more such plain steps ends where the
kernel does, in all tensors, within the terms above: both are right, each on its side of the kink. A hook, dropout or flip that
the kernels do not do ends nowhere near.

Steps so small that they drown in the rounding of weights would prove nothing: then larger ones are compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import numpy as np
import torch
from torch import nn

from fedgsp.client.client_state import ClientStates
from fedgsp.client.rules import SGD
from fedgsp.client.train import Trainer
from fedgsp.core.chain import Hop
from fedgsp.core.seeds import Seeds
from fedgsp.core.tensors import Tensors, clone
from fedgsp.data.batches import gather
from fedgsp.data.federated import FederatedData, Rows, Split
from fedgsp.fast import PLAIN, Kernel
from fedgsp.models.operations import in_mode, own_randomness, same_bits
from fedgsp.models.state import load_tensors
from fedgsp.models.task import Task

ULPS = 4
ROUNDING = 2.0**-15
AMPLIFIED = 2.0**-6
SHAKEN, MOST_SHAKEN = 3, 12
"""From so many changed weights plain steps are made again, and from so many at most until they end where the kernel does."""
LARGEST_BATCH = 32
"""Larger batches are compared in small: the kernels treat all samples of a batch alike."""
VISIBLE = 2.0**-12
"""A change of this share of a tensor's largest weight is well above rounding."""
BLOCK = 1 << 16
MOST_TRIES = 6
LOUDER = 1e3
"""How much larger steps are made at first where nothing at all was seen to change."""


@dataclass(frozen=True)
class KernelCheck:
    """What two paths are compared on: a model with its first weights, the rule, some samples of two clients."""

    model: nn.Module
    rule: SGD
    task: Task
    data: FederatedData
    seeds: Seeds
    start: Tensors
    shared: Tensors

    @classmethod
    def of(
        cls, model: nn.Module, rule: SGD, task: Task, data: FederatedData, seeds: Seeds, start: Tensors, shared: Tensors
    ) -> KernelCheck:  # fmt: skip
        """The check for a run that begins with `start`, with `shared` sent along. The model's weights are overwritten."""
        small = replace(rule, batch_size=min(rule.batch_size, LARGEST_BATCH), epochs=1, epochs_by_round=(), privacy=None)
        return cls(model, small, task, _few(data, small.batch_size), seeds, start, shared)

    def check(self, kernel: Kernel) -> KernelComparison:
        """Whether the kernel may be taken."""
        with own_randomness():
            try:
                found, lr = self._compare(kernel), self.rule.lr
                for _ in range(MOST_TRIES):
                    if found.why_not is not None or found.change >= VISIBLE:
                        break
                    lr *= min(1e9, 2 * VISIBLE / found.change) if found.change else LOUDER
                    found = replace(self, rule=replace(self.rule, lr=lr))._compare(kernel)
            except Exception as error:  # whatever a user's code raises on one path or on both
                found = KernelComparison(f"its steps cannot be tried out ({type(error).__name__}: {error})")
            finally:
                load_tensors(self.model, self.start)
        return found

    def _compare(self, kernel: Kernel) -> KernelComparison:
        plain, fast = self._trainer(PLAIN), self._trainer(kernel)
        found = KernelComparison(_misread(fast, self.data))
        states: dict[int, Tensors] = {}
        before = self.start
        for number, client in enumerate(self._clients()):
            if found.why_not is not None:
                break
            client_states = self._hop(plain, before, client, number, states)
            self.model.zero_grad()  # its memory is where the copy goes: fresh pages cost more than the steps
            wanted = clone(plain.tensors())
            self._hop(fast, before, client, number, states)
            shaken = partial(self._shaken, plain, before, client, number, states)
            found.add(before, wanted, fast.tensors(), shaken)
            states, before = {**states, **client_states.in_memory}, wanted
        found.why_not = found.why_not or _misevaluated(fast, self.data)
        return found

    def _clients(self) -> list[int]:
        """Who trains, one after the other; twice where clients keep something."""
        stateful = type(self.rule).initial_client_state is not SGD.initial_client_state
        return [int(client) for client in np.flatnonzero(self.data.train.sizes) for _ in range(2 if stateful else 1)]

    def _trainer(self, kernel: Kernel) -> Trainer:
        return Trainer(self.model, self.rule, self.task, self.data, torch.device("cpu"), self.seeds, kernel)

    def _hop(self, trainer: Trainer, before: Tensors, client: int, number: int, states: dict[int, Tensors]) -> ClientStates:
        client_states = ClientStates()
        client_states.in_memory = {owner: clone(state) for owner, state in states.items()}
        trainer.load(before)
        trainer.train(1, Hop(number, client, number), self.start, clone(self.shared), number == 0, client_states)
        return client_states

    def _shaken(
        self, plain: Trainer, before: Tensors, client: int, number: int, states: dict[int, Tensors], seed: int
    ) -> Tensors:
        """Where plain steps lead from weights whose last bit is changed at random, less that change.

        Later seeds change some more: so much as rounding does to a sum of some thousand products.
        """
        draw, share = torch.Generator().manual_seed(seed), 2.0 ** (-22 if seed < SHAKEN else -18)
        moved = {
            n: t + t * (torch.rand(t.shape, generator=draw) - 0.5) * share if t.dtype == torch.float32 else t
            for n, t in before.items()
        }
        self._hop(plain, moved, client, number, states)
        return {n: t - (moved[n] - before[n]) if t.dtype == torch.float32 else t for n, t in clone(plain.tensors()).items()}


@dataclass
class KernelComparison:
    """What a check found: why the kernel is no good (None: it is), the largest difference and change met on the way."""

    why_not: str | None = None
    hops: int = 0
    worst: float = 0.0
    change: float = 0.0

    def add(self, before: Tensors, wanted: Tensors, got: Tensors, shaken: Callable[[int], Tensors]) -> None:
        """Compare where one hop ended: `wanted` by plain steps, `got` by the kernel."""
        self.hops += 1
        again: list[Tensors] = []
        for name, plain in wanted.items():
            if not plain.is_floating_point() or not plain.numel():
                if not torch.equal(plain, got[name]):
                    self.why_not = f"it leaves another '{name}' than plain PyTorch"
                continue
            worst, change = _apart(plain, got[name]), _apart(_some(plain), _some(before[name]))
            if not worst <= ROUNDING * change:
                change = _apart(plain, before[name])
            largest = _largest(plain)
            self.change = max(self.change, change / largest if largest else 0.0)
            if worst <= ROUNDING * change:
                self.worst = max(self.worst, worst / change if change else 0.0)
                continue
            ulps = torch.finfo(plain.dtype).eps * torch.maximum(plain.abs(), before[name].abs())
            over = _largest(((plain - got[name]).abs() - ULPS * ulps).clamp(min=0))
            if not over <= ROUNDING * change:
                if not again:
                    got = clone(got)  # it is the module's own memory, in which plain steps are made now
                    again = [shaken(seed) for seed in range(SHAKEN)]
                own = max(_apart(other[name], plain) for other in again)
                if not over <= min(max(ROUNDING * change, 8 * own), AMPLIFIED * change):
                    if math.isfinite(worst) and _lands(before, wanted, got, shaken, again):
                        return
                    share = worst / change if change else float("inf")
                    self.why_not = f"its steps are not those of plain PyTorch ('{name}' is {share:.2g} of the change away)"
                    return
            self.worst = max(self.worst, worst / change if change else 0.0)

    def said(self) -> str:
        """What was found, for the record."""
        return f"{self.hops} hops, at most {self.worst:.1e} of a tensor's largest change away from plain PyTorch"


def _lands(
    before: Tensors, wanted: Tensors, got: Tensors, shaken: Callable[[int], Tensors], again: Sequence[Tensors]
) -> bool:  # fmt: skip
    """Whether plain steps from weights whose last bits are changed end where the kernel does."""
    return any(
        all(_beside(before[name], plain, got[name], other[name]) for name, plain in wanted.items())
        for other in chain(again, map(shaken, range(len(again), MOST_SHAKEN)))
    )


def _beside(before: torch.Tensor, plain: torch.Tensor, got: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether one tensor of the kernel's is that of another plain path, but for rounding."""
    if not plain.is_floating_point() or not plain.numel():
        return torch.equal(plain, got)
    ulps = torch.finfo(plain.dtype).eps * torch.maximum(plain.abs(), before.abs())
    return _largest(((other - got).abs() - ULPS * ulps).clamp(min=0)) <= ROUNDING * _apart(plain, before)


def _largest(values: torch.Tensor) -> float:
    """The largest absolute value; NaN if one of them is."""
    if not values.numel():
        return 0.0
    least, most = torch.aminmax(values)  # twice as fast as a norm
    return max(-float(least), float(most)) if not least.isnan() else math.nan


def _apart(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest difference, some numbers at a time, so that they stay in the cache."""
    pairs = zip(torch.split(one.reshape(-1), BLOCK), torch.split(other.reshape(-1), BLOCK), strict=True)
    return max((_largest(a - b) for a, b in pairs), key=lambda value: math.inf if math.isnan(value) else value)


def _some(values: torch.Tensor) -> torch.Tensor:
    """Numbers from all over a large tensor: what they changed by is a lower bound that is had at once."""
    flat = values.reshape(-1)
    return flat[:: max(1, flat.numel() // BLOCK)]


def _few(data: FederatedData, size: int) -> FederatedData:
    """A full batch and a partial one of the largest client, a partial one of a client in the middle."""
    sizes = data.train.sizes
    order = np.argsort(-sizes, kind="stable")
    order = order[: int((sizes > 0).sum())]
    part = max(1, size // 2)
    rows: dict[int, Rows] = {int(order[len(order) // 2]): data.train[int(order[len(order) // 2])][:part]}
    rows[int(order[0])] = data.train[int(order[0])][: size + part]
    chosen = sorted(rows)
    counts = np.zeros(len(data), dtype=np.int64)
    counts[chosen] = [len(rows[c]) for c in chosen]
    train = Split(np.concatenate([rows[c] for c in chosen]), np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))
    return replace(data, train=train, test=Split.empty(len(data)), validation=Split.empty(len(data)), source=None, memo=None)


def _misread(fast: Trainer, data: FederatedData) -> str | None:
    """Samples as the kernels read them are what torch gathers and prepares."""
    if fast.fused is None or not fast.reads_rows:
        return None
    x, _ = gather(data, data.train.rows)
    with in_mode(fast.model, training=True):
        wanted, got = fast.fused.ready(x).flatten(1), fast.fused.read(data.train.rows)
    exact = same_bits(wanted, got)
    if not exact and not (fast.fused.standardises and torch.allclose(wanted, got, rtol=1e-5, atol=1e-5, equal_nan=True)):
        return "it does not read the samples as plain PyTorch does"
    return None


def _misevaluated(fast: Trainer, data: FederatedData) -> str | None:
    """In evaluation the compiled model gives the module's outputs."""
    if fast.fused is None:
        return None
    x, _ = gather(data, data.train.rows[:2])
    with in_mode(fast.model, training=False), torch.inference_mode():
        wanted, got = fast.model(x), fast.fused(x)
    near = wanted.shape == got.shape and torch.allclose(wanted, got, 0, 1e-4 * float(wanted.abs().max()), equal_nan=True)
    return None if near else "it does not give the model's outputs"
