"""Groups formed and judged: what `fedgsp group` prints, writes and draws."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedgsp.core.errors import InputError, did_you_mean
from fedgsp.core.tables import html_table, text_table
from fedgsp.parts import kind_of, kinds
from fedgsp.plan import Balanced, Grouper, Random, balanced_within, group_sums, private_counts, summarise_pairs
from fedgsp.report.group_picture import groups_figure
from fedgsp.report.notebook import Plot
from fedgsp.report.tables import clients_of
from fedgsp.run.files import write_whole

if TYPE_CHECKING:
    from fedgsp.data import FederatedData
    from fedgsp.plan.groupers import Counts
    from fedgsp.report.tables import ClientTable

GROUPERS: dict[str, Any] = {
    kind: cls for kind, cls in kinds("grouper").items() if not any(f.name == "grouper" for f in fields(cast(Any, cls)))
}

HEADS = ("", "z per pair", "CPD median", "mean", "maximum")


@dataclass(frozen=True)
class GroupFigures:
    """How unlike rows of counts are: z per pair (Euclidean distance of counts), and CPD's median, mean and maximum."""

    rows: int
    z: float
    cpd_median: float
    cpd_mean: float
    cpd_maximum: float
    pairs: int
    pairs_looked_at: int
    cpd_mean_error: float

    @classmethod
    def of(cls, counts: NDArray[Any]) -> GroupFigures:
        """Of all pairs of rows, or of a sample."""
        cpd, z = summarise_pairs(counts), summarise_pairs(counts, "euclid")
        return cls(len(counts), z.mean, cpd.median, cpd.mean, cpd.maximum, cpd.pairs, cpd.looked_at, cpd.mean_error)


@dataclass(frozen=True, eq=False, repr=False)
class Grouping:
    """Labels (K,), -1 for clients in no group, and how alike clients, random groups and these groups are.

    Args:
        labels: The group of each client; -1: none.
        n_groups: How many groups there are.
        grouper: The kind of the grouper.
        seconds: How long grouping took.
        clients: How alike clients are.
        random: How alike random groups are.
        groups: How alike these groups are.
        names: Names of the clients, where they have some.
        counts: Class counts of the clients, for pictures.
        seed: Of the random groups.
        class_names: What the classes are called, where they have names.
    """

    labels: NDArray[np.int64]
    n_groups: int
    grouper: str
    seconds: float
    clients: GroupFigures
    random: GroupFigures
    groups: GroupFigures
    names: Sequence[str] = ()
    counts: Counts | None = None
    seed: int = 0
    class_names: Sequence[str] = ()

    @property
    def assignment(self) -> dict[str, int]:
        """Each client's group, by its name."""
        return dict(zip(self.names, self.labels.tolist(), strict=True))

    def save(self, path: str | Path) -> Path:
        """Write a .csv with a row `client,group` for everybody; -1 is no group."""
        write_assignment(Path(path), list(self.names), self.labels)
        return Path(path)

    def plot(self) -> Plot:
        """Class distributions of the groups, and CPD over pairs, against random groups and ICG's."""
        if self.counts is None:
            raise InputError("these groups do not have the counts they were formed of, so there is nothing to draw.")
        return Plot(groups_figure(self.counts, self, self.seed))

    def _rows(self) -> list[tuple[str, ...]]:
        told = (("clients (before)", self.clients), ("random groups", self.random), ("these groups", self.groups))
        return [
            (name, *(f"{v:.4g}" for v in (own.z, own.cpd_median, own.cpd_mean, own.cpd_maximum))) for name, own in told
        ]  # fmt: skip

    def __repr__(self) -> str:
        first = f"{len(self.labels)} clients in {self.n_groups} groups by {self.grouper}, {self.left_out} left out"
        return "\n".join([first, *text_table(HEADS, self._rows(), most=3)])

    def _repr_html_(self) -> str:
        title = f"{len(self.labels)} clients in {self.n_groups} groups by {self.grouper}, {self.left_out} left out"
        return html_table(title, HEADS, self._rows())

    @property
    def left_out(self) -> int:
        """Clients in no group."""
        return int((self.labels < 0).sum())

    def as_dict(self, names: list[str]) -> dict[str, Any]:
        """As plain data, with every client's group."""
        return {
            "schema": 1,
            "grouper": self.grouper,
            "groups": self.n_groups,
            "clients": len(self.labels),
            "left_out": self.left_out,
            "cpu_seconds": self.seconds,
            "before": asdict(self.clients),
            "random": asdict(self.random),
            "after": asdict(self.groups),
            "assignment": dict(zip(names, self.labels.tolist(), strict=True)),
        }


@dataclass(frozen=True)
class Wish:
    """What was asked for: which grouper, how many groups, from which seed, under which privacy, time and constraints."""

    grouper: str | Grouper = "balanced"
    groups: int = 10
    seed: int = 0
    epsilon: float | None = None
    delta: float = 0.0
    within: float | None = None
    one_per_site: bool = False
    longest_chain: float | None = None


def form_groups(table: ClientTable, wish: Wish) -> Grouping:
    """Group the clients as wished, on noised counts if epsilon is given; the figures are always those of the true counts."""
    grouper = _estimator(wish)
    grouper.groups_for(len(table.counts))
    seen = table.counts
    if wish.epsilon is not None:
        seen = private_counts(_whole(seen), wish.epsilon, wish.delta, np.random.default_rng([wish.seed, 1]))
    began = time.process_time()
    labels = _labels(grouper, seen, table, wish)
    took = time.process_time() - began
    shuffled = Random(n_groups=wish.groups, random_state=wish.seed).fit(table.counts).labels_
    single, drawn, made = (
        GroupFigures.of(c) for c in (table.counts, *(_sums(table.counts, own, wish.groups) for own in (shuffled, labels)))
    )
    return Grouping(
        labels, wish.groups, _name(wish.grouper), took, single, drawn, made, table.names, table.counts, wish.seed,
        table.class_names,
    )  # fmt: skip


def group(
    data: str | FederatedData | ArrayLike,
    groups: int,
    *,
    grouper: str | Grouper = "balanced",
    seed: int = 0,
    epsilon: float | None = None,
    delta: float = 0.0,
    within: float | None = None,
    one_per_site: bool = False,
    longest_chain: float | None = None,
    sites: ArrayLike | None = None,
    seconds: ArrayLike | None = None,
) -> Grouping:
    """Put clients into groups that each look like the whole population, without training anything.

    Args:
        data: A federation, a source text, a .csv or .npz of counts, or (K, F) counts, a row a client.
        groups: Number of groups.
        grouper: Its name (balanced, icg, random, stratified, greedy-kl), or a grouper with parameters of your own.
        seed: The same seed gives the same groups.
        epsilon: Group on counts with noise of this epsilon (simulated); None: on the counts as they are.
        delta: Delta of the noise. Above 0 it is Gaussian instead of Laplace.
        within: Seconds for the search; only for balanced.
        one_per_site: Put no two clients of one site into a group.
        longest_chain: Upper limit on the seconds of a group.
        sites: (K,) where each client is.
        seconds: (K,) what each client takes in a chain.

    Returns:
        The groups, and how alike they are, beside random ones.

    Raises:
        InputError: The counts cannot be used, or the constraints cannot be kept.

    Example:
        >>> from fedgsp.report.groups import group
        >>> found = group([[9, 0], [0, 9], [8, 0], [0, 8]], 2)
        >>> found.left_out, len(set(found.labels.tolist()))
        (0, 2)
    """
    wish = Wish(grouper, groups, seed, epsilon, delta, within, one_per_site, longest_chain)
    table = clients_of(data)
    if sites is not None:
        table = replace(table, sites=np.asarray(sites))
    if seconds is not None:
        table = replace(table, seconds=np.asarray(seconds))
    return form_groups(table, wish)


def _name(grouper: str | Grouper) -> str:
    return grouper if isinstance(grouper, str) else kind_of(grouper)


def _estimator(wish: Wish) -> Grouper:
    if isinstance(wish.grouper, str) and wish.grouper not in GROUPERS:
        raise InputError(f"unknown grouper '{wish.grouper}': {did_you_mean(wish.grouper, GROUPERS)}")
    constrained = wish.one_per_site or wish.longest_chain is not None
    if _name(wish.grouper) != "balanced" and (constrained or wish.within is not None):
        raise InputError(f"only the grouper 'balanced' keeps constraints and time limits, not '{_name(wish.grouper)}'.")
    if constrained and wish.within is not None:
        raise InputError("`within=` cannot be combined with constraints.")
    plain = GROUPERS[wish.grouper]() if isinstance(wish.grouper, str) else wish.grouper
    grouper: Grouper = replace(plain, n_groups=wish.groups, random_state=wish.seed)
    return replace(grouper, longest_chain=wish.longest_chain) if isinstance(grouper, Balanced) else grouper


def _labels(grouper: Grouper, seen: Counts, table: ClientTable, wish: Wish) -> NDArray[np.int64]:
    if not isinstance(grouper, Balanced):
        return grouper.fit(seen).labels_
    if wish.within is not None:
        return balanced_within(seen, wish.groups, wish.within, wish.seed, grouper)
    if wish.one_per_site and table.sites is None:
        raise InputError("`one_per_site=True` needs to know the clients' sites: give a column 'site'.")
    if wish.longest_chain is not None and table.seconds is None:
        raise InputError("`longest_chain=` needs to know how long clients take: give a column 'seconds'.")
    sites = table.sites if wish.one_per_site else None
    return grouper.fit(seen, sites=sites, seconds=None if wish.longest_chain is None else table.seconds).labels_


def _whole(counts: Counts) -> NDArray[np.int64]:
    if counts.dtype.kind == "f":
        raise InputError(
            "`epsilon=` needs whole-numbered counts: noise for other vectors depends on how much a sample can change them."
        )
    return counts.astype(np.int64, copy=False)


def _sums(counts: Counts, labels: NDArray[np.int64], n_groups: int) -> NDArray[np.float64]:
    return group_sums(counts, labels, n_groups)


def write_assignment(path: Path, names: list[str], labels: NDArray[np.int64]) -> None:
    """A .csv with a row `client,group` for everybody; -1 is no group."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("client", "group"))
    writer.writerows(zip(names, labels.tolist(), strict=True))
    write_whole(path, text.getvalue().encode())
