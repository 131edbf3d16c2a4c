"""`GreedyKL`: groups filled one after the other by the client that helps most. As Astraea and FedSeq do.

    k* = argmin_k KL( norm(V_m + V_k) || P_target ),  V_m += V_k,  until the group is full (SPECS 7, ii)

The first groups get the best clients and the last what is left: it is here to compare with. It takes time in K^2 F.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from fedgsp.plan.checks import require_choice
from fedgsp.plan.groupers import Counts, GroupEstimator, GroupShape, require_enough_clients

Target = Literal["global", "uniform"]


@dataclass(frozen=True)
class GreedyKL(GroupEstimator):
    """Astraea's mediators as groups whose sizes differ by at most one, everybody in one.

    `target` is what groups should be like: "global", the population's distribution (as in the code seen), or "uniform" (as in
    the paper). Of equally good clients a random one is taken, and nothing else is left to chance: the same clients form the
    same groups in every round. Clients without samples come last.
    """

    target: Target = "global"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("GreedyKL", "target", self.target, get_args(Target))

    def assign(self, counts: Counts, n_groups: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Labels (K,); larger groups are filled first."""
        clients = len(counts)
        require_enough_clients(clients, n_groups)
        population = counts.sum(axis=0, dtype=np.float64)
        present = population > 0  # a class that nobody has says nothing
        target = population[present] if self.target == "global" else np.ones(int(present.sum()))
        log_target = np.log(target / target.sum())
        left = rng.permutation(clients)
        vectors = np.asarray(counts[:, present], dtype=np.float64)
        labels = np.empty(clients, dtype=np.int64)
        short, longer = divmod(clients, n_groups)
        for group in range(n_groups):
            own = np.zeros(vectors.shape[1])
            for _ in range(short + (group < longer)):
                best = int(_kl_to(own + vectors[left], log_target).argmin())
                labels[left[best]] = group
                own += vectors[left[best]]
                left = np.delete(left, best)
        return labels

    def shape(self, clients: int, n_groups: int) -> GroupShape:
        """floor(K / f) or ceil(K / f) clients in each group, and everybody in one."""
        require_enough_clients(clients, n_groups)
        return GroupShape(clients // n_groups, -(-clients // n_groups), clients)


def _kl_to(sums: NDArray[np.float64], log_target: NDArray[np.float64]) -> NDArray[np.float64]:
    """KL of the distributions of `sums` (n, F): (sum w log w - w . log t) / N - log N; infinite where there is no sample."""
    totals = sums.sum(axis=1)
    whole = np.where(totals > 0, totals, 1.0)
    divergence = (xlogy(sums, sums).sum(axis=1) - sums @ log_target) / whole - np.log(whole)
    return np.where(totals > 0, divergence, np.inf)
