"""Who is in which group: the part of a planner that looks at the clients' data (Alg. 1, line 3).

A grouper is a pure function of the clients' vectors, the number of groups and a generator. It can also be used on its own, the
way scikit-learn's estimators are: `ICG(n_groups=52, random_state=0).fit(counts).labels_`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedgsp.core.errors import InputError
from fedgsp.core.params import GIVEN_BY_RUN, require_whole
from fedgsp.core.part import Part
from fedgsp.plan.checks import checked_labels
from fedgsp.plan.estimator import BadCounts, Estimator, as_table, generator_of

Counts = NDArray[np.int64] | NDArray[np.float64]
"""(K, F): one non-negative vector per client, usually class counts."""

MOST_COUNTED = 2**53
"""The largest number in a client's vector: up to it, float64 counts exactly."""

NOBODY = -1
"""The label of a client that is in no group."""


@dataclass(frozen=True)
class GroupShape:
    """What is known of groups before they are formed: the smallest and largest size, and how many clients are in one.

    Where that depends on the clients' data it is a guess: `about`.

    Args:
        shortest: Size of the smallest group.
        longest: Size of the largest.
        grouped: Clients that are in some group.
        about: Whether this is a guess.
    """

    shortest: int
    longest: int
    grouped: int
    about: bool = False


@dataclass(frozen=True, kw_only=True)
class Grouper(Part, Estimator):
    """The base of all groupers: who is in which group; with `fit` for use outside a run.

    Args:
        n_groups: How many groups `fit` forms; in a run the growth function decides.
        random_state: The seed of `fit`, or a RandomState or Generator; in a run the run's seeds decide.

    Attributes:
        labels_: (K,) after `fit`: each client's group, -1 for clients in no group.
        n_features_in_: After `fit`: how long a client's vector is.
        feature_names_in_: After `fit` on a data frame: the names of its columns.
    """

    n_groups: int | None = field(default=None, metadata=GIVEN_BY_RUN)
    random_state: int | np.random.RandomState | np.random.Generator | None = field(default=None, metadata=GIVEN_BY_RUN)

    def __post_init__(self) -> None:
        for name, value, least in (("n_groups", self.n_groups, 1), ("random_state", self.random_state, 0)):
            if value is not None and not isinstance(value, np.random.RandomState | np.random.Generator):
                require_whole(type(self).__name__, name, value, at_least=least)

    @abstractmethod
    def assign(self, counts: Counts, n_groups: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Form groups: a pure function of its arguments.

        Args:
            counts: (K, F) a non-negative vector for each client, usually its class counts.
            n_groups: How many groups to form.
            rng: The only source of randomness.

        Returns:
            Labels (K,) from 0 to n_groups - 1, or NOBODY (-1) for a client that sits the round out.
        """

    @abstractmethod
    def shape(self, clients: int, n_groups: int) -> GroupShape:
        """The sizes that `assign` will give for that many clients, without doing it."""

    def drawn_in(self, round_: int) -> int:
        """The round whose random numbers form the groups of `round_`: itself (Alg. 1, line 3), or an earlier one to keep its
        groups."""
        return round_

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Group clients outside a run, as scikit-learn's estimators do.

        Args:
            X: (K, F) one non-negative vector per client, usually class counts: an array, a sparse matrix or a data frame.
            y: Ignored; scikit-learn's tools pass it.

        Returns:
            Itself, with the groups in `labels_` (K,), -1 for clients in no group.

        Raises:
            InputError: If the counts cannot be used, or `n_groups` is not given or too large.

        Example:
            >>> Random(n_groups=2, random_state=0).fit([[5, 0], [0, 5], [3, 3], [1, 4]]).labels_.tolist()
            [0, 0, 1, 1]
        """
        name = type(self).__name__
        vectors = checked_counts(name, as_table(name, X))
        n_groups = self.groups_for(len(vectors))
        labels = self.assign(vectors, n_groups, generator_of(self.random_state))
        return self.found(checked_labels(self, labels, len(vectors), n_groups), X)

    def groups_for(self, clients: int) -> int:
        """`n_groups` if that many clients can form them, else an InputError."""
        name = type(self).__name__
        if self.n_groups is None:
            raise InputError(f"{name}: say how many groups to form, as in {name}(n_groups=10).")
        if self.n_groups > clients:
            few = f"only {clients} clients" if clients != 1 else "only 1 client (n_samples=1)"
            raise BadCounts(f"{name}: n_groups is {self.n_groups}, but there are {few} to group.")
        return int(self.n_groups)


def checked_counts(where: str, counts: ArrayLike) -> Counts:
    """`counts` as a two-dimensional array of finite, non-negative numbers, else an InputError."""
    try:
        array: NDArray[Any] = np.asarray(counts)
    except ValueError:
        raise InputError(f"{where}: counts must be a table whose rows all have the same length.") from None
    if array.ndim != 2:
        raise InputError(f"{where}: counts must have two dimensions (clients, classes), not {array.ndim}.")
    if array.dtype.kind not in "buif":
        raise InputError(f"{where}: counts must be numbers, not {array.dtype}.")
    if not array.shape[1]:
        raise InputError(f"{where}: counts must have at least one column.")
    vectors: Counts = array.astype(np.float64, copy=False) if array.dtype.kind == "f" else array.astype(np.int64, copy=False)
    if vectors.dtype.kind == "f" and not np.isfinite(vectors).all():
        raise InputError(f"{where}: counts must be finite, but row {_first_row(~np.isfinite(vectors))} is not.")
    if vectors.max(initial=0) > MOST_COUNTED:
        raise InputError(
            f"{where}: counts must be at most 2^53, but row {_first_row(vectors > MOST_COUNTED)} has a larger one."
        )
    if vectors.min(initial=0) < 0:
        raise InputError(f"{where}: counts must not be negative, but row {_first_row(vectors < 0)} has one that is.")
    return vectors


def _first_row(wrong: NDArray[np.bool_]) -> int:
    return int(np.flatnonzero(wrong.any(axis=1))[0])


def require_enough_clients(clients: int, n_groups: int) -> None:
    """Raise a ValueError unless every one of `n_groups` groups can have a client."""
    if not 1 <= n_groups <= clients:
        raise ValueError(f"{clients} clients cannot form {n_groups} groups")


def even_sizes(clients: int, n_groups: int) -> list[int]:
    """`n_groups` sizes that add up to `clients` and differ by at most one, larger ones first."""
    size, more = divmod(clients, n_groups)
    return [size + 1] * more + [size] * (n_groups - more)


@dataclass(frozen=True, kw_only=True)
class EvenGroups(Grouper):
    """Groupers that leave nobody out and whose groups differ by at most one client."""

    def shape(self, clients: int, n_groups: int) -> GroupShape:
        """floor(K / f) or ceil(K / f) clients in each group, and everybody in one."""
        require_enough_clients(clients, n_groups)
        return GroupShape(clients // n_groups, -(-clients // n_groups), clients)


@dataclass(frozen=True)
class Random(EvenGroups):
    """All clients dealt at random, so that group sizes differ by at most one: NaiveGSP's groups, and FedAvg's of one client."""

    kind: ClassVar[str] = "random"

    def assign(self, counts: Counts, n_groups: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Labels (K,); the data is not looked at."""
        require_enough_clients(len(counts), n_groups)
        return rng.permutation(np.arange(len(counts), dtype=np.int64) % n_groups)

    def fill(
        self, counts: Counts, sizes: Sequence[int], rng: np.random.Generator, population: Counts | None = None
    ) -> NDArray[np.int64]:
        """Labels (K,): groups of the given sizes, which add up to K."""
        if sum(sizes) != len(counts):
            raise ValueError(f"groups of {sum(sizes)} clients in all for {len(counts)} clients")
        return rng.permutation(np.repeat(np.arange(len(sizes), dtype=np.int64), sizes))


@dataclass(frozen=True)
class Fixed(Grouper):
    """The groups that `grouper` forms with the random numbers of round 1, kept in all rounds (NaiveGSP, NaiveGSP+ICG).

    Nothing is stored: the groups are formed again from the same numbers, so they stay the same as long as the clients and the
    number of groups do, and a resumed run has them too.

    Args:
        grouper: Who forms the groups.
    """

    kind: ClassVar[str] = "fixed"

    grouper: Grouper

    def assign(self, counts: Counts, n_groups: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Labels (K,), as `grouper` gives them."""
        return self.grouper.assign(counts, n_groups, rng)

    def drawn_in(self, round_: int) -> int:
        """Always the first round."""
        return 1

    def shape(self, clients: int, n_groups: int) -> GroupShape:
        """As `grouper` has it."""
        return self.grouper.shape(clients, n_groups)
