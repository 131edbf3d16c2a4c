"""Refusing updates that are far too long, before they are handed on or averaged.

Three lengths are measured, each against its like: how far the trained tensors moved (||w_after - w_handed||), how far those
moved that nobody trains (running means), and how long what is sent beside the model is (control variates). None of them
depends on what a client says of itself. A length may be `factor` times the (upper) median of the clients' votes. Every client
has one, the longest it has sent, refused ones included, which fades by a tenth with each of its answers: so a minority can
neither raise the bound nor, by short updates, have the others refused, and a bound is anchored on the rounds before. In the
first round answers wait for others that are on their way, until a majority of the clients (or one of every chain) has a vote.
And whatever the others do, no update may be longer than `factor` times the model it was handed (or 1, if that is longer).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fedgsp.core.sums import HEADROOM_BITS
from fedgsp.engine.transports.flower.wire import Refused

if TYPE_CHECKING:
    import torch

    from fedgsp.core.chain import Plan
    from fedgsp.core.tensors import Tensors

UPDATE, BUFFERS, BESIDE = "update", "buffers", "beside"
WORDS = {
    UPDATE: "its update has the length",
    BUFFERS: "what nobody trains moved by the length",
    BESIDE: "what it sent beside the model has the length",
}
ENOUGH = 3
FADES = 0.9
"""What is left of a client's vote when it answers again."""

Lengths = Mapping[str, float]
"""How long an update is, by what was measured."""


class UpdateGuard:
    """The clients' votes, and what follows from them. `votes` are those of an earlier part of the run."""

    def __init__(self, factor: float, votes: Mapping[str, Mapping[int, float]] | None = None) -> None:
        self.factor = factor
        self._before = {what: dict(known) for what, known in (votes or {}).items()}
        self._votes = {what: dict(known) for what, known in self._before.items()}
        self._enough = ENOUGH

    def next_round(self, plan: Plan | None = None) -> None:
        """How many votes the first answers of a plan wait for."""
        if plan is not None:
            self._enough = max(1, min(len(plan.chains), len(set(plan.clients)) // 2 + 1))

    def verdicts(self, answers: Sequence[tuple[int, Lengths]], more: bool) -> dict[int, str | None] | None:
        """By place, why an update (a client's, so long) is refused, or None; nothing to wait for more of them."""
        for client, lengths in answers:
            for what, length in lengths.items():
                if length > 0:
                    voted(self._before, what, client, length, into=self._votes)
        known = set[int]().union(*self._votes.values(), (client for client, _ in answers))
        if len(known) < self._enough and more:
            return None
        self._before = {what: dict(own) for what, own in self._votes.items()}
        return {place: self._verdict(lengths) for place, (_, lengths) in enumerate(answers)}

    def _verdict(self, lengths: Lengths) -> str | None:
        for what, length in lengths.items():
            votes = sorted(self._votes.get(what, {}).values())
            median = votes[len(votes) // 2] if votes else 0.0
            if not math.isfinite(length) or length > self.factor * median:
                return (
                    f"refused: {WORDS.get(what, what)} {length:.3g}, more than {self.factor:g} times the median of the "
                    f"clients' ({median:.3g})"
                )
        return None

    def check_alone(self, moved: float, handed: Tensors, trained: frozenset[str] | None = None) -> None:
        """Refuse an update that dwarfs the model it began with, whatever the others do."""
        most = self.factor * max(1.0, norm(handed, trained))
        if not moved <= most:
            raise Refused(f"refused: its update has the norm {moved:.3g}, more than {self.factor:g} times the model's own")


def voted(
    votes: Mapping[str, Mapping[int, float]], what: str, client: int, length: float, into: dict[str, dict[int, float]]
) -> None:
    """Put a client's vote after one more answer `into` a table, from the `votes` before it."""
    into.setdefault(what, {})[client] = max(length, FADES * votes.get(what, {}).get(client, 0.0))


def moved(before: Tensors, after: Tensors, trained: frozenset[str] | None = None) -> float:
    """The Euclidean norm of an update over all trained tensors."""
    total = 0.0
    for name, tensor in after.items():
        if is_trained(name, tensor, trained):
            total += float((tensor.double() - before[name].double()).square().sum())
    return math.sqrt(total)


def buffers_moved(before: Tensors, after: Tensors, trained: frozenset[str] | None = None) -> float:
    """The same over the real-valued tensors that nobody trains; values that are not finite stay where they were."""
    total = 0.0
    for name, tensor in after.items():
        if tensor.is_floating_point() and not is_trained(name, tensor, trained):
            step = tensor.double() - before[name].double()
            total += float(step[tensor.isfinite()].square().sum())
    return math.sqrt(total)


def norm(tensors: Tensors, trained: frozenset[str] | None = None) -> float:
    """The Euclidean norm of a model's trained tensors."""
    return math.sqrt(sum(float(t.double().square().sum()) for name, t in tensors.items() if is_trained(name, t, trained)))


def sent_norm(tensors: Tensors) -> float:
    """The Euclidean norm of all that is sent beside a model, whole numbers too."""
    return math.sqrt(sum(float(t.double().square().sum()) for t in tensors.values()))


def check_size(tensors: Tensors, like: Tensors, what: str, share: int = 1, trained: frozenset[str] | None = None) -> None:
    """Refuse trained values that could not even be added (`core.sums`): far larger than anything in the round's model."""
    for name, tensor in tensors.items():
        if tensor.numel() == 0 or not is_trained(name, tensor, trained):
            continue
        own = like.get(name, tensor.new_zeros(1))
        largest = max(1.0, float(own.abs().max()) if own.numel() else 0.0)
        if not float(tensor.abs().max()) * share <= largest * 2.0**HEADROOM_BITS:
            raise Refused(f"refused: {what} '{name}' has values that are far too large to be averaged")


def is_trained(name: str, tensor: torch.Tensor, trained: frozenset[str] | None) -> bool:
    """Whether a tensor is one that is trained: real-valued, and named (None: all are)."""
    return tensor.is_floating_point() and (trained is None or name in trained)
