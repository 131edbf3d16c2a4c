"""ICG, Inter-Cluster Grouping (Alg. 2): clusters of like clients, then groups with one client of each cluster.

Every group so has the same mixture of kinds, and its class distribution is expected to be everybody's (Prop. 2).

All sums are kept instead of means: with whole-number counts, every distance compared in the squared objective is then a whole
number, exact in float64, so the clusters do not depend on the machine's matrix library.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

import numpy as np
import scipy  # its parts are imported when they are used
from numpy.typing import NDArray

from fedgsp.core.params import OMIT_DEFAULT, require_choice, require_whole
from fedgsp.plan.groupers import NOBODY, Counts, Grouper, GroupShape, require_enough_clients
from fedgsp.plan.halves import assigned_across, clusters_by_halves, mended
from fedgsp.plan.kmeans_start import plus_plus_start
from fedgsp.plan.transport import assign_equally

Distance = Literal["squared", "euclid"]
Leftovers = Literal["out", "deal"]
FEW_COSTS = 2**20
"""Clients times clusters up to which the exact assignment takes well below a second, however many clients these are."""
PART_COSTS = 2**18
"""The same of the parts that more are cut into; it grows with their square, so smaller parts take less in all."""


@dataclass(frozen=True)
class ClusterShape:
    """Alg. 2, line 1: how many clusters (L), of which size, and how many clients are sampled to fill them.

    Args:
        clusters: How many clusters there are (L).
        size: Clients in each.
    """

    clusters: int
    size: int

    @classmethod
    def of(cls, clients: int, n_groups: int) -> ClusterShape:
        """L = floor(K / f), size = floor(K / L), which is at least f."""
        require_enough_clients(clients, n_groups)
        clusters = clients // n_groups
        return cls(clusters, clients // clusters)

    @property
    def sampled(self) -> int:
        """L * floor(K / L), the clients that are clustered."""
        return self.clusters * self.size


@dataclass(frozen=True)
class Clustering:
    """Equal-size clusters: `labels` (n,), their `centroids` (L, F), the objective after each iteration, and how it ended.

    Args:
        labels: The cluster of each client.
        centroids: The mean of each cluster.
        objective: Half the sum of squared distances to the own centroid, after each iteration.
        converged: Whether nothing moved in the last iteration.
    """

    labels: NDArray[np.int64]
    centroids: NDArray[np.float64]
    objective: tuple[float, ...]  # Eq. (ccp-objective): half the sum of squared distances to the own centroid
    converged: bool


@dataclass(frozen=True)
class ICG(Grouper):
    """The paper's grouper (Alg. 2): clusters of like clients, then groups with one client of each cluster.

    Clients that the clusters have no room for sit the round out, or are dealt to the groups.

    Args:
        tau: At most so many k-means iterations.
        distance: What the assignment step sums up. "squared" is the paper's objective (Eq. ccp-objective); "euclid", the
            distance itself, is what the authors' program minimised (k-means-constrained). Under size constraints they differ.
        leftovers: What becomes of the K - f L clients that equal groups of L = floor(K / f) leave over: "out", they sit the
            round out as the paper has it; "deal", each goes to a random group, so that groups differ by one client at most.
        exact_up_to: More clients than this, if clients times clusters are also more than 2^20, are halved by k-means until each
            part has fewer; the exact assignment is made within parts, then within others that are cut along other lines, and
            pairs of neighbouring clusters are then improved. The paper's is the exact one throughout.
        n_groups: For `fit` only: how many groups.
        random_state: For `fit` only: the seed.

    Raises:
        InputError: If a parameter cannot be used.

    Example:
        >>> groups = ICG(n_groups=2, random_state=0).fit([[9, 0], [0, 9], [8, 0], [0, 8]])
        >>> bool(groups.labels_[0] != groups.labels_[2] and groups.labels_[1] != groups.labels_[3])
        True
    """

    kind: ClassVar[str] = "icg"

    tau: int = 10
    distance: Distance = "squared"
    leftovers: Leftovers = field(default="out", metadata=OMIT_DEFAULT)
    exact_up_to: int = field(default=4096, metadata=OMIT_DEFAULT)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("ICG", "tau", self.tau, at_least=1)
        require_choice("ICG", "distance", self.distance, get_args(Distance))
        require_choice("ICG", "leftovers", self.leftovers, get_args(Leftovers))
        require_whole("ICG", "exact_up_to", self.exact_up_to, at_least=1)

    def assign(self, counts: Counts, n_groups: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Labels (K,): each group has one client of each of the L clusters; surplus and unsampled clients are NOBODY's."""
        shape = ClusterShape.of(len(counts), n_groups)
        sampled = rng.choice(len(counts), shape.sampled, replace=False)
        labels = np.full(len(counts), NOBODY, dtype=np.int64)
        labels[sampled] = deal(self.clusters(counts[sampled], shape.clusters, rng), n_groups, rng)
        if self.leftovers == "deal":
            left = np.flatnonzero(labels == NOBODY)  # fewer than there are groups
            labels[left] = rng.permutation(n_groups)[: len(left)]
        return labels

    def clusters(self, counts: Counts, clusters: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Labels (n,) of so many clusters of the same size (Alg. 2, lines 2-5); n must be a multiple of `clusters`."""

        points = np.asarray(counts, dtype=np.float64)
        if len(points) <= self.exact_up_to or len(points) * clusters <= FEW_COSTS:
            return equal_size_clusters(points, clusters, rng, tau=self.tau, distance=self.distance).labels
        size, within = len(points) // clusters, (self.tau + 1) // 2  # parts need not converge: they are cut anew

        def exactly(points: NDArray[np.float64], clusters: int) -> NDArray[np.int64]:
            return equal_size_clusters(points, clusters, rng, tau=within, distance=self.distance).labels

        def assigned(points: NDArray[np.float64], sums: NDArray[np.float64]) -> NDArray[np.int64]:
            return assign_equally(_costs(points, sums, size, self.distance)).labels

        labels = clusters_by_halves(points, clusters, rng, self.tau, PART_COSTS, exactly)
        labels = assigned_across(points, labels, clusters, rng, self.tau, PART_COSTS, assigned)
        return mended(points, labels, clusters) if self.distance == "squared" else labels

    def shape(self, clients: int, n_groups: int) -> GroupShape:
        """L = floor(K / f) clients in each of the f groups, or one more in some."""
        length = ClusterShape.of(clients, n_groups).clusters
        if self.leftovers == "deal":
            return GroupShape(length, length + (clients > length * n_groups), clients)
        return GroupShape(length, length, length * n_groups)


def equal_size_clusters(
    counts: Counts, clusters: int, rng: np.random.Generator, *, tau: int = 10, distance: Distance = "squared"
) -> Clustering:
    """k-means with clusters of exactly the same size (Alg. 2, lines 2-5), from a k-means++ start.

    Args:
        counts: (n, F) the points.
        clusters: How many; must divide n.
        rng: Where the start comes from.
        tau: At most so many iterations; it ends before when the centroids stay where they are.
        distance: See `ICG`.

    Returns:
        Labels, centroids, the objective after each iteration, and whether it converged.
    """
    points = np.asarray(counts, dtype=np.float64)
    size = len(points) // clusters
    sums = size * points[plus_plus_start(points, clusters, rng)]  # (L, F), the centroids times `size`
    squares = float((points**2).sum())
    prices: NDArray[np.float64] | None = None
    objective: list[float] = []
    converged = False
    while not converged and len(objective) < tau:
        found = assign_equally(_costs(points, sums, size, distance), prices)
        prices = found.prices
        updated = points[np.argsort(found.labels, kind="stable")].reshape(clusters, size, -1).sum(axis=1)
        converged = np.array_equal(updated, sums)
        sums = updated
        objective.append(0.5 * (squares - float((sums**2).sum()) / size))
    return Clustering(found.labels, sums / size, tuple(objective), converged)


def _costs(points: NDArray[np.float64], sums: NDArray[np.float64], size: int, distance: Distance) -> NDArray[np.float64]:
    """What it costs (n, L) to put each point into each cluster.

    For "squared" it is size^2 * ||V - C||^2 less the part size^2 * ||V||^2 that is the same for all clusters.
    """
    if distance == "euclid":
        return scipy.spatial.distance.cdist(points, sums / size)
    return np.asarray((sums**2).sum(axis=1) - 2 * size * (points @ sums.T))


def deal(clusters: NDArray[np.int64], n_groups: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Shuffle each cluster and give its i-th client to group i (Alg. 2, line 6); those after the last group are NOBODY's.

    `clusters` (n,) are cluster labels of equal-size clusters, of at least `n_groups` clients each; returns group labels (n,).

    Args:
        clusters: Labels of clusters of equal size, each of at least `n_groups` clients.
        n_groups: How many groups to deal to.
        rng: Source of random numbers.
    """
    size = len(clusters) // (int(clusters.max()) + 1)
    members = np.argsort(clusters, kind="stable").reshape(-1, size)  # a row per cluster
    shuffled = rng.permuted(members, axis=1)
    groups = np.full(len(clusters), NOBODY, dtype=np.int64)
    groups[shuffled[:, :n_groups]] = np.arange(n_groups)
    return groups
