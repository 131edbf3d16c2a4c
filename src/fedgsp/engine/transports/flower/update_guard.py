"""Refusing updates that are far too long, before they are handed on or averaged.

An update's length is ||w_after - w_handed|| / sqrt(steps), so that a client with many samples may move the model further. The
bound is robust: an update is refused if its length exceeds `factor` times the lower median of the lengths at hand, which are
those accepted in this round and in the one before and those being looked at. A few clients cannot move a median. While fewer
than `ENOUGH` are known (the first answers of a run), answers wait for others that are on their way. And whatever the others do,
no update may be longer than `factor` times the model it was handed (or 1, if that is longer).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from fedgsp.core.sums import HEADROOM_BITS
from fedgsp.engine.transports.flower.records import Refused

if TYPE_CHECKING:
    from fedgsp.core.tensors import Tensors

ENOUGH = 3


class UpdateGuard:
    """The lengths of a run's updates, round by round."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self._before: list[float] = []
        self._now: list[float] = []

    def next_round(self) -> None:
        """What was this round is the one before; a round nobody answered in changes nothing."""
        if self._now:
            self._before, self._now = self._now, []

    def verdicts(self, lengths: Sequence[float], more: bool) -> dict[int, str | None] | None:
        """By place, why an update is refused, or None; nothing to wait for more of them."""
        known = sorted(length for length in (*self._before, *self._now, *lengths) if length > 0)
        if len(known) < ENOUGH and more:
            return None
        median = known[(len(known) - 1) // 2] if known else 0.0
        found: dict[int, str | None] = {}
        for place, length in enumerate(lengths):
            if length <= self.factor * median:
                self._now.append(length)
                found[place] = None
            else:
                found[place] = (
                    f"refused: its update has the length {length:.3g}, more than {self.factor:g} times the median of the "
                    f"round's ({median:.3g})"
                )
        return found

    def check_alone(self, moved: float, handed: Tensors) -> None:
        """Refuse an update that dwarfs the model it began with, whatever the others do."""
        most = self.factor * max(1.0, norm(handed))
        if moved > most:
            raise Refused(f"refused: its update has the norm {moved:.3g}, more than {self.factor:g} times the model's own")


def moved(before: Tensors, after: Tensors) -> float:
    """The Euclidean norm of an update over all real-valued tensors."""
    total = 0.0
    for name, tensor in after.items():
        if tensor.is_floating_point():
            total += float((tensor.double() - before[name].double()).square().sum())
    return float(total**0.5)


def norm(tensors: Tensors) -> float:
    """The Euclidean norm of a model."""
    return float(sum(float(t.double().square().sum()) for t in tensors.values() if t.is_floating_point()) ** 0.5)


def check_size(tensors: Tensors, like: Tensors, what: str, share: int = 1) -> None:
    """Refuse values that could not even be added (`core.sums`): far larger than anything in the round's model."""
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or tensor.numel() == 0:
            continue
        own = like.get(name, tensor.new_zeros(1))
        largest = max(1.0, float(own.abs().max()) if own.numel() else 0.0)
        if float(tensor.abs().max()) * share > largest * 2.0**HEADROOM_BITS:
            raise Refused(f"refused: {what} '{name}' has values that are far too large to be averaged")


def check_counters(tensors: Tensors, what: str) -> None:
    """Refuse whole numbers that no counter could have reached."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() or tensor.dtype == torch.bool or tensor.numel() == 0:
            continue
        if int(tensor.abs().max()) >= 2**31:
            raise Refused(f"refused: {what} '{name}' has values that are far too large to be averaged")
