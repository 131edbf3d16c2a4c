"""The base of rules that look at all results of a round at once: medians, trimmed means, Krum.

A rule says what becomes of them by `combine(models, weights)`:

    @dataclass(frozen=True)
    class Median(Combine):
        def combine(self, models, weights):
            return models.coordinatewise(lambda values: values.median(dim=0).values)

Results wait in a `Spool`, a nameless file with a row a chain, and come in the order of the plan, computed with one thread:
neither workers nor arrival can change a bit. At most `BLOCK_BYTES` of stacked values are in memory at a time.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar, Literal

import torch

from fedgsp.core.chain import Chain, ChainResult, HopReport, Plan
from fedgsp.core.errors import Diverged, RunFailed, where_defined
from fedgsp.core.machine import one_math_thread
from fedgsp.core.spool import Spool
from fedgsp.core.state import GLOBAL, ServerState, Setting
from fedgsp.core.sums import in_own_types
from fedgsp.core.tensors import Tensors, clone, misfit
from fedgsp.server.rule import ServerRule, Update

BLOCK_BYTES = 2**26
"""What is stacked at a time, in float64."""


@dataclass(frozen=True)
class Result:
    """What is known of one of the models: its chain, its place in the plan, and a report of every hop."""

    index: int
    chain: Chain
    hops: tuple[HopReport, ...]
    samples: int


class Models(Sequence[Tensors]):
    """The models of a round, one a chain, in the order of the plan: `models[i]` is a whole one, to be read and not changed.

    `start` is the model that the round began with, `trained` names the tensors that clients train (the others are running
    means, counters and the like), `results` has for each model who made it, `slots` what the rule's `step` left on the server.

    Args:
        rows: The models, in the order of the plan.
        start: The model that the round began with.
        trained: Names of the tensors that clients train.
        results: Who made each model.
        slots: What the rule's `step` left on the server.
    """

    def __init__(
        self,
        rows: Sequence[Tensors],
        start: Tensors,
        trained: frozenset[str],
        results: Sequence[Result],
        slots: Mapping[str, Tensors] = MappingProxyType({}),
    ) -> None:
        self._rows, self.start, self.trained, self.results, self.slots = rows, start, trained, results, slots

    def __getitem__(self, number: int) -> Tensors:  # type: ignore[override]
        return self._rows[number]

    def __len__(self) -> int:
        return len(self._rows)

    def stacked(self, name: str) -> torch.Tensor:
        """One tensor of all models in its own type, (models, ...); as large as all of them together."""
        return torch.stack([row[name] for row in self._rows])

    def blocks(self, names: Sequence[str] | None = None) -> Iterator[tuple[str, slice, torch.Tensor]]:
        """Tensor by tensor and part by part: (name, which part of the flat tensor, values (models, part) in float64).

        Without `names` these are the trained tensors.
        """
        width = max(1, BLOCK_BYTES // (8 * len(self)))
        for name in [name for name in self.start if name in self.trained] if names is None else names:
            flat = [row[name].reshape(-1) for row in self._rows]
            for at in range(0, self.start[name].numel(), width):
                part = slice(at, at + width)
                yield name, part, torch.stack([values[part].double() for values in flat])

    def coordinatewise(self, choose: Callable[[torch.Tensor], torch.Tensor]) -> Tensors:
        """A model in float64, every number of it made of the models' numbers in its place.

        `choose` is given values (models, m) in float64 and gives (m,): column by column, whatever m is. It is asked for all
        tensors, also those that are not trained.
        """
        made = {name: torch.empty(like.numel(), dtype=torch.float64) for name, like in self.start.items()}
        for name, part, values in self.blocks(list(self.start)):
            chosen = choose(values)
            if not isinstance(chosen, torch.Tensor) or chosen.shape != values.shape[1:]:
                shape = tuple(chosen.shape) if isinstance(chosen, torch.Tensor) else type(chosen).__name__
                raise RunFailed(
                    f"coordinatewise: {where_defined(choose)} must make {tuple(values.shape[1:])} of values of shape "
                    f"{tuple(values.shape)}, one for each column, and made {shape}; choose along dim 0."
                )
            made[name][part] = chosen
        return {name: flat.reshape(self.start[name].shape) for name, flat in made.items()}

    def mean(self, weights: torch.Tensor) -> Tensors:
        """The weighted mean (models,) -> a model in float64; models of weight 0 are not looked at, whatever is in them."""
        chosen = weights > 0
        if not bool(chosen.any()):
            raise ValueError("a mean needs at least one weight above 0")
        share = weights[chosen].double() / weights[chosen].double().sum()
        return self.coordinatewise(lambda values: share @ values[chosen])

    def squared_distances(self, to: Tensors | None = None) -> torch.Tensor:
        """||w_i - w_j||^2 over the trained tensors (models, models), or of each model from the model `to` (models,).

        A model with values that are not finite is infinitely far from all others.
        """
        center = self.start if to is None else to
        products = torch.zeros(len(self), len(self), dtype=torch.float64)
        squares = torch.zeros(len(self), dtype=torch.float64)
        for name, part, values in self.blocks():
            moved = values - center[name].reshape(-1)[part].double()
            squares += moved.square().sum(dim=1)
            if to is None:
                products += moved @ moved.T
        squares = squares.nan_to_num(nan=math.inf, posinf=math.inf)
        if to is not None:
            return squares
        distances = squares[:, None] + squares - 2 * products
        return distances.nan_to_num(nan=math.inf, posinf=math.inf).clamp_min(0.0).fill_diagonal_(0.0)


@dataclass(frozen=True)
class Combine(ServerRule):
    """A rule with one global model that is made of all results of a round: write `combine`."""

    needs: ClassVar[Literal["sum", "all"]] = "all"

    @abstractmethod
    def combine(self, models: Models, weights: torch.Tensor) -> Tensors:
        """The round's model, every tensor of it, in any real type: it is rounded to the model's own types afterwards.

        `models` are those of all chains that trained, in the order of the plan; `weights` (models,) are the samples that each
        trained, in float64.
        """

    def start(self, state: ServerState, plan: Plan, planned: Sequence[int]) -> Update:
        """Begin to keep results."""
        return CombineUpdate(self, state, plan)

    def step(self, state: ServerState, combined: Tensors) -> ServerState:
        """From the combined model to the new state; a rule with a momentum of its own, say, goes on from here."""
        return replace(state, models={GLOBAL: in_own_types(combined, state.model)})


class CombineUpdate(Update):
    """A round's results, kept until the last has come."""

    borrows = True

    def __init__(self, rule: Combine, state: ServerState, plan: Plan) -> None:
        self._rule, self._state, self._plan = rule, state, plan
        self._spool = Spool(state.model, len(plan.chains))
        self._results: dict[int, Result] = {}

    def add(self, result: ChainResult) -> None:
        """Keep one chain's model, unless nobody in it had anything to train on."""
        if result.samples:
            self._spool.put(result.index, result.tensors)
            self._results[result.index] = Result(result.index, result.chain, result.hops, result.samples)

    def finish(self) -> ServerState:
        """Ask the rule."""
        if not self._results:
            raise Diverged("no chain of this round trained a single sample, so there is nothing to combine.")
        rule, start = self._rule, self._state.model
        results = [self._results[index] for index in sorted(self._results)]
        trained = frozenset(Setting(trained=self._state.trained).trained_of(start))
        models = Models([self._spool.get(one.index) for one in results], start, trained, results, self._state.slots)
        with one_math_thread(), torch.no_grad():
            combined = rule.combine(models, torch.tensor([one.samples for one in results], dtype=torch.float64))
        if (wrong := misfit(combined, start, types=False)) is not None:
            who = f"the server rule {where_defined(rule)}"
            raise RunFailed(f"{who}: what 'combine' returned in round {self._plan.round} {wrong}.")
        return rule.step(self._state, clone(combined))  # it may share memory with the spool, which is gone after the round
