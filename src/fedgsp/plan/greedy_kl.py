"""Astraea's rescheduling: groups filled one after the other with whoever brings the group closest to a target distribution.

    open a group with V = 0; until it is full:  k* = argmin_k KL(norm(V + V_k) || P_target),  V <- V + V_{k*};  then the next

P_target is the distribution of all clients together ("global", default: FEMNIST's classes are not balanced) or the uniform one
(the paper's). Candidates are looked at in a random order, so that ties do not favour low numbers. O(K^2 F).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
import scipy  # its parts are imported when they are used
from numpy.typing import NDArray

from fedgsp.core.params import require_choice
from fedgsp.plan.groupers import Counts, EvenGroups, even_sizes, require_enough_clients

Target = Literal["global", "uniform"]


@dataclass(frozen=True)
class GreedyKL(EvenGroups):
    """Greedy grouping by KL divergence; all clients are in a group and sizes differ by at most one.

    Args:
        target: What a group's distribution shall be like: "global" for the population's, or "uniform".
        n_groups: For `fit` only: how many groups.
        random_state: For `fit` only: the seed.

    Raises:
        InputError: If a parameter cannot be used.
    """

    kind: ClassVar[str] = "greedy-kl"

    target: Target = "global"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("GreedyKL", "target", self.target, get_args(Target))

    def assign(self, counts: Counts, n_groups: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Labels (K,): `n_groups` groups of even size."""
        require_enough_clients(len(counts), n_groups)
        return self.fill(counts, even_sizes(len(counts), n_groups), rng)

    def fill(
        self, counts: Counts, sizes: Sequence[int], rng: np.random.Generator, population: Counts | None = None
    ) -> NDArray[np.int64]:
        """Labels (K,): groups of the given sizes, which add up to K; `population` (F,) are the counts of the target."""
        if sum(sizes) != len(counts):
            raise ValueError(f"groups of {sum(sizes)} clients in all for {len(counts)} clients")
        target = target_distribution(
            self.target, np.asarray(counts.sum(axis=0) if population is None else population, dtype=np.float64)
        )
        present = target > 0  # a class that nobody has says nothing
        log_target = np.log(target[present])
        left = rng.permutation(len(counts))
        vectors = np.asarray(counts[:, present], dtype=np.float64)
        labels = np.empty(len(counts), dtype=np.int64)
        for group, size in enumerate(sizes):
            sums = np.zeros(vectors.shape[1])
            for _ in range(size):
                best = int(np.argmin(_divergences(sums + vectors[left], log_target)))
                labels[left[best]] = group
                sums += vectors[left[best]]
                left = np.delete(left, best)
        return labels


def target_distribution(target: Target, population: NDArray[np.float64]) -> NDArray[np.float64]:
    """(F,) the distribution that groups shall have, from the counts of all clients (F,)."""
    if target == "uniform" or population.sum() == 0:
        return np.full(len(population), 1 / len(population))
    return np.asarray(population / population.sum())


def _divergences(sums: NDArray[np.float64], log_target: NDArray[np.float64]) -> NDArray[np.float64]:
    """KL of the distributions of `sums` (n, F): (sum v log v - v . log t) / N - log N; infinite where there is no sample."""
    totals = sums.sum(axis=1)
    whole = np.where(totals > 0, totals, 1.0)
    divergence = (scipy.special.xlogy(sums, sums).sum(axis=1) - sums @ log_target) / whole - np.log(whole)
    return np.where(totals > 0, divergence, np.inf)
