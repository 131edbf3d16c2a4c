"""Clustered FL (Sattler, Mueller, Samek 2020): clients whose updates point apart are given models of their own.

Per cluster c with model w_c, all its clients i train; dW_i = w_i - w_c over the trained tensors, p_i = n_i / n_c:

    a_ij = <dW_i, dW_j> / (||dW_i|| ||dW_j||)
    split test      || sum_i p_i dW_i || < eps1   and   max_i || dW_i || > eps2       (the mean stands still, clients do not)
    bipartition     (c1, c2) = argmin max_{i in c1, j in c2} a_ij =: a_cross
    accept if       a_cross < sqrt((1 - gamma) / 2)         gamma bounds the gradients' noise; gamma = -1 accepts always
    then            each cluster, old or new, is averaged on its own: w_c <- sum_{i in c} p_i w_i

The bipartition is solved exactly by single linkage on the distance 1 - a_ij (merge the most similar until two are left);
`linkage="complete"` is what the authors' notebook does. Clusters of at most `keep` clients are left whole, and nobody is split
before round `first_round`. eps1 and eps2 are absolute norms, so they depend on model and learning rate: run a few rounds with
eps1 = 1e-9 (which never splits) and read the norms of the last round in `state.extra["norms"]`: {cluster: [mean, largest]}.

It yields SEVERAL models: each client is evaluated on its cluster's, clients that never trained on that of the largest cluster.
The first cluster is called `global`, the two that it falls into `global.0` and `global.1`, and so on. Every client must train
in every round, alone. With eps1 so small that nothing splits it is FedAvg with everybody, to the bit. Traffic as FedAvg; the
round's results on disk (K |w|); the Gram matrix is added up in blocks of columns (K x 8,192 numbers at a time), and only
for clusters that pass the split test.

To tune: eps1 about a tenth of the largest norm of a mean update, eps2 from eps1 to ten times eps1; gamma over -1, 0, 0.5, 0.9.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import scipy  # its parts are imported when they are used
import torch
from numpy.typing import NDArray

from fedgsp.core.errors import InputError
from fedgsp.core.machine import one_math_thread
from fedgsp.core.spool import Spool
from fedgsp.core.state import GLOBAL, ServerState, Setting, Yields
from fedgsp.core.sums import ExactSum
from fedgsp.server.checks import require_positive
from fedgsp.server.rule import ServerRule, Update, View

if TYPE_CHECKING:
    from fedgsp.core.chain import ChainResult, Plan
    from fedgsp.core.seeds import Seeds
    from fedgsp.core.tensors import Tensors

Linkage = Literal["single", "complete"]
CLUSTERS, NORMS, TRAINED = "clusters", "norms", "trained"
COLUMNS = 8192
"""Columns of the update matrix that are in memory at a time."""


@dataclass(frozen=True)
class Clustered(ServerRule):
    """Split clusters by the cosine of their clients' updates; one model for each.

    Args:
        eps1: A cluster may split only if its mean update is shorter than this.
        eps2: And only if some client's update is longer than this.
        gamma: Bound on the noise of gradients; -1 accepts every split.
        linkage: How the two halves are found: "single" is exact, "complete" what the authors' notebook does.
        first_round: Nobody is split before this round.
        keep: Clusters of so many clients or fewer stay whole.
        weights: Whether a client counts by its samples or like every other.
    """

    kind: ClassVar[str] = "clustered"

    eps1: float = 0.4
    eps2: float = 1.6
    gamma: float = 0.0
    linkage: Linkage = "single"
    first_round: int = 20
    keep: int = 2
    weights: Literal["samples", "uniform"] = "samples"

    needs: ClassVar[Literal["sum", "all"]] = "all"
    needs_everybody: ClassVar[bool] = True
    several_live: ClassVar[bool] = True
    """All clients train in every round: who plans for it must not sample."""

    def __post_init__(self) -> None:
        require_positive("clustered", "eps1", self.eps1)
        require_positive("clustered", "eps2", self.eps2)
        if not -1 <= self.gamma <= 1:
            raise InputError(f"the server rule 'clustered': gamma must be from -1 to 1, not {self.gamma}.")
        if self.linkage not in ("single", "complete"):
            raise InputError(f"the server rule 'clustered': linkage must be 'single' or 'complete', not '{self.linkage}'.")
        if self.weights not in ("samples", "uniform"):
            raise InputError(f"weights must be 'samples' or 'uniform', not '{self.weights}'.")
        if self.first_round < 1 or self.keep < 1:
            raise InputError("the server rule 'clustered': first_round and keep must be at least 1.")

    @property
    def yields(self) -> Yields:
        """A model for each cluster."""
        return "several"

    def wants(self) -> frozenset[str]:
        """No metric."""
        return frozenset()

    def init(self, model: Tensors, setting: Setting = Setting()) -> ServerState:  # noqa: B008 - frozen
        """One cluster of everybody, whose members are known once they have trained."""
        if not setting.everybody:
            raise InputError(
                "the server rule 'clustered' compares the updates of all clients, so each must train in every round, alone: "
                "use a planner with growth 'singletons' and kappa = 1."
            )
        trained = sorted(setting.trained_of(model))
        return ServerState(round=0, models={GLOBAL: model}, extra={CLUSTERS: {GLOBAL: []}, NORMS: {}, TRAINED: trained})

    def route(self, state: ServerState, plan: Plan, seeds: Seeds) -> Plan:
        """Every client begins with its cluster's model."""
        home = {client: name for name, members in state.extra[CLUSTERS].items() for client in members}
        largest = _largest(state)
        chains = tuple(replace(chain, start=home.get(chain.clients[0], largest)) for chain in plan.chains)
        return replace(plan, chains=chains)

    def start(self, state: ServerState, plan: Plan, planned: Sequence[int]) -> ClusteredUpdate:
        """Begin to keep results."""
        return ClusteredUpdate(self, state, plan, planned)

    def views(self, state: ServerState) -> tuple[View, ...]:
        """Each client on its cluster's model, all others on that of the largest cluster."""
        clusters = state.extra[CLUSTERS]
        if len(clusters) == 1:
            return (View(next(iter(clusters))),)
        largest = _largest(state)
        apart = tuple(View(name, tuple(members)) for name, members in clusters.items() if name != largest)
        return (View(largest), *apart)

    def splits(self, mean_norm: float, largest_norm: float, size: int, round_: int) -> bool:
        """The split test."""
        return round_ >= self.first_round and size > self.keep and mean_norm < self.eps1 and largest_norm > self.eps2

    def accepts(self, across: float) -> bool:
        """Whether two halves as alike as `across` may part."""
        return across < math.sqrt((1 - self.gamma) / 2)


class ClusteredUpdate(Update):
    """A round's results, kept whole."""

    borrows = True

    def __init__(self, rule: Clustered, state: ServerState, plan: Plan, planned: Sequence[int]) -> None:
        self._rule, self._state, self._plan, self._planned = rule, state, plan, planned
        self._spool = Spool(next(iter(state.models.values())), len(plan.chains))
        self._samples: dict[int, int] = {}

    def add(self, result: ChainResult) -> None:
        """Keep one client's model."""
        if result.samples:
            self._spool.put(result.index, result.tensors)
            self._samples[result.index] = result.samples

    def finish(self) -> ServerState:
        """Average each cluster, and split those that pass the test."""
        models: dict[str, Tensors] = {}
        clusters: dict[str, list[int]] = {}
        norms: dict[str, list[float]] = {}
        for name, members in self._state.extra[CLUSTERS].items():
            planned = [i for i, chain in enumerate(self._plan.chains) if chain.start == name]
            rows = [i for i in planned if i in self._samples]
            whole = self._clients(planned) or members
            if not rows:  # nobody of the cluster came back: it waits as it is
                models[name], clusters[name] = self._state.models[name], whole
                continue
            total = self._sum(rows, planned)
            mean_norm = self._moved(name, total.mean64())
            each = {row: norm(self._update(row, name)) for row in rows}
            norms[name] = [mean_norm, max(each.values())]
            halves = None
            if self._rule.splits(mean_norm, max(each.values()), len(rows), self._plan.round):
                halves = self._halves(name, [row for row in rows if each[row] > 0], each)
            if halves is None:
                models[name], clusters[name] = total.mean(), whole
                continue
            left, right = halves
            right = sorted({*right, *(set(rows) - set(left))})  # a client that did not move goes with the second half
            for child, half in ((f"{name}.0", left), (f"{name}.1", right)):
                models[child], clusters[child] = self._sum(half, half).mean(), self._clients(half)
        extra = {**self._state.extra, CLUSTERS: clusters, NORMS: norms}
        return replace(self._state, round=self._plan.round, models=models, extra=extra)

    def _clients(self, rows: Sequence[int]) -> list[int]:
        return sorted(self._plan.chains[row].clients[0] for row in rows)

    def _sum(self, rows: Sequence[int], planned: Sequence[int]) -> ExactSum:
        by_samples = self._rule.weights == "samples"
        most = sum(self._planned[i] for i in planned) if by_samples else len(planned)
        start = self._state.models[self._plan.chains[rows[0]].start]
        total = ExactSum(start, max(1, most), self._state.trained)
        for row in rows:
            who = f"chain {row} of round {self._plan.round}"
            total.add(self._spool.get(row), self._samples[row] if by_samples else 1, who)
        return total

    def _moved(self, name: str, mean: Tensors) -> float:
        """How far the cluster's model moves: the norm of the mean update."""
        before = self._state.models[name]
        return norm({key: mean[key] - before[key].double() for key in self._state.extra[TRAINED]})

    def _update(self, row: int, name: str) -> Tensors:
        """dW of one client, in its own type: float32 differences of float32 models are what a client would send."""
        model, before = self._spool.get(row), self._state.models[name]
        return {key: model[key] - before[key] for key in self._state.extra[TRAINED]}

    def _halves(self, name: str, rows: list[int], norms: dict[int, float]) -> tuple[list[int], list[int]] | None:
        """The bipartition of a cluster, by rows of the plan, if it is accepted."""
        if len(rows) < 2:
            return None
        before = [self._state.models[name][key].reshape(-1) for key in self._state.extra[TRAINED]]
        models = [[self._spool.get(row)[key].reshape(-1) for key in self._state.extra[TRAINED]] for row in rows]
        lengths = np.array([norms[row] for row in rows])
        cosine = np.clip(gram(models, before) / np.outer(lengths, lengths), -1.0, 1.0)
        left, right = bipartition(cosine, self._rule.linkage)
        if not self._rule.accepts(float(cosine[np.ix_(left, right)].max())):
            return None
        return [rows[i] for i in left], [rows[i] for i in right]


def bipartition(cosine: NDArray[np.float64], linkage: Linkage) -> tuple[list[int], list[int]]:
    """Two groups of rows of a similarity matrix (n, n), the one with the lowest row first.

    Single linkage leaves the two groups whose closest pair is as far apart as can be: the largest similarity across is the
    smallest edge of the maximum spanning tree.
    """
    distance = 1.0 - cosine
    np.fill_diagonal(distance, 0.0)
    condensed = scipy.spatial.distance.squareform((distance + distance.T) / 2, checks=False)
    tree = scipy.cluster.hierarchy.to_tree(scipy.cluster.hierarchy.linkage(condensed, linkage))
    halves = sorted(sorted(side.pre_order()) for side in (tree.get_left(), tree.get_right()) if side is not None)
    return halves[0], halves[1]


def gram(models: Sequence[Sequence[torch.Tensor]], before: Sequence[torch.Tensor]) -> NDArray[np.float64]:
    """<dW_i, dW_j> (n, n) in float64, from flat tensors: blocks of columns, so that memory does not grow with the model."""
    total = torch.zeros(len(models), len(models), dtype=torch.float64)
    with one_math_thread():
        for number, start in enumerate(before):
            for columns in _blocks(start.numel()):
                block = torch.stack([model[number][columns] - start[columns] for model in models]).double()
                total += block @ block.T
    found: NDArray[np.float64] = total.numpy()
    return found


def norm(tensors: Tensors) -> float:
    """The Euclidean norm over all tensors, in blocks of fixed size, the blocks' sums added exactly."""
    flats = [tensor.reshape(-1) for tensor in tensors.values()]
    parts = [float(flat[block].double().square().sum()) for flat in flats for block in _blocks(flat.numel())]
    return math.sqrt(math.fsum(parts))


def _blocks(length: int) -> Iterator[slice]:
    return (slice(at, at + COLUMNS) for at in range(0, length, COLUMNS))


def _largest(state: ServerState) -> str:
    """The cluster with the most clients, the first of equals by name."""
    clusters: dict[str, list[int]] = state.extra[CLUSTERS]
    return min(clusters, key=lambda name: (-len(clusters[name]), name))
