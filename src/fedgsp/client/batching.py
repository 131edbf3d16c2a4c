"""How a client's samples are cut into batches, and what becomes of a last one that is smaller than the others."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedgsp.models.operations import own_randomness

if TYPE_CHECKING:
    from fedgsp.client.rules import SGD


@dataclass(frozen=True)
class Batching:
    """Batches of `size`; the last may be smaller.

    `drop_last`: a last partial batch is left out, unless it is the only one. `merge_last`: a last batch of one sample goes into
    the one before it. `pairs`: the model cannot train on one sample, so a client that has just one makes no step.
    """

    size: int
    drop_last: bool = False
    merge_last: bool = False
    pairs: bool = False

    @classmethod
    def of(cls, rule: SGD, model: nn.Module, example: torch.Tensor) -> Batching:
        """As the rule says, or as the model needs it for samples like `example`."""
        merge = has_batch_norm(model) if rule.merge_last is None else rule.merge_last
        return cls(rule.batch_size, rule.drop_last, merge, has_batch_norm(model) and _needs_pairs(model, example))

    def cut(self, samples: int) -> list[tuple[int, int, int]]:
        """(begin, end, size): parts of the samples that are cut into batches of one size each, in order."""
        if samples == 1 and self.pairs:
            return []
        last = samples % self.size
        if self.drop_last and last and samples > self.size:
            return [(0, samples - last, self.size)]
        if self.merge_last and last == 1 and samples > self.size:
            begin = samples - self.size - 1
            return [(0, begin, self.size), (begin, samples, self.size + 1)] if begin else [(0, samples, samples)]
        return [(0, samples, self.size)]

    def steps(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """Batches of one epoch, for clients with so many samples."""
        last, several = samples % self.size, samples > self.size
        fewer = (last > 0 if self.drop_last else (last == 1) & self.merge_last) & several
        made = -(-samples // self.size) - fewer
        return np.where((samples == 1) & self.pairs, 0, made)

    def largest(self, samples: int) -> int:
        """The largest batch that can occur with clients of up to so many samples."""
        return max(1, min(samples, self.size + int(self.merge_last)))


def has_batch_norm(model: nn.Module) -> bool:
    """Whether the model learns from the mean and variance of batches."""
    return any(isinstance(module, _BatchNorm) for module in model.modules())


def _needs_pairs(model: nn.Module, example: torch.Tensor) -> bool:
    """Whether the model's batch norms refuse to train on one sample, as those of flat features do."""
    scratch = copy.deepcopy(model).train()
    try:
        with own_randomness(), torch.no_grad():
            scratch(example[:1].to(next(scratch.parameters()).device))
    except ValueError:
        return True
    return False
