"""How good and how fast is grouping? One run prints every table of docs/grouping.md; --plots DIR draws its pictures.

    OMP_NUM_THREADS=1 python benchmarks/grouping.py --femnist femnist.npz [--only cases icg exact scale] [--largest 1000000]

cases   quality (CPD over pairs of groups as a share of the median over pairs of clients; z per pair; clients left out) and CPU
        seconds of every grouper, of k-means-constrained and of plain references, where each can run; medians over seeds
icg     ICG against k-means-constrained, same tau and start: CPU seconds and cost (the paper's clustering objective)
exact   how often Balanced finds the optimum that brute force finds, for up to 12 clients
scale   CPU seconds and memory of Balanced for 10^3 .. 10^6 clients in groups of 100

Without --femnist, made-up writers take the place of the real ones. CPU time is that of the process, compilation excluded.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from population import resampled, synthetic
from references import by_best_swaps, by_hierarchical_aba, by_k_means_constrained, constrained

from fedgsp.plan import (
    ICG,
    Balanced,
    ClusterShape,
    GreedyKL,
    Random,
    Stratified,
    equal_size_clusters,
    group_sums,
    summarise_pairs,
)
from fedgsp.plan.cells import balance_vectors
from fedgsp.plan.icg import plus_plus_start

Counts = NDArray[Any]
CASES = ((364, 52), (368, 10), (368, 20), (368, 50), (3550, 100), (3550, 1000), (100_000, 1000), (1_000_000, 10_000))
Grouping = Callable[[Counts, int, int], NDArray[np.int64]]
GROUPERS: dict[str, tuple[Grouping, int]] = {
    "random": (lambda c, m, s: Random(n_groups=m, random_state=s).fit(c).labels_, 10**7),
    "stratified": (lambda c, m, s: Stratified(n_groups=m, random_state=s).fit(c).labels_, 10**7),
    "icg": (lambda c, m, s: ICG(n_groups=m, random_state=s).fit(c).labels_, 10**5),
    "k-means-constrained": (by_k_means_constrained, 4000),
    "greedy-kl": (lambda c, m, s: GreedyKL(n_groups=m, random_state=s).fit(c).labels_, 4000),
    "best swaps, random start": (by_best_swaps, 400),
    "hierarchical ABA": (lambda c, m, s: by_hierarchical_aba(c, m), 10**7),
    "balanced": (lambda c, m, s: Balanced(n_groups=m, random_state=s).fit(c).labels_, 10**7),
}
"""And the most clients that each can take in a minute or so."""


def writers(femnist: str | None) -> Counts:
    """Class counts of the 368 clients of femnist-368, or made-up ones."""
    if femnist is None:
        return synthetic(368)
    from fedgsp.data.sources import load

    return load(f"npz:{femnist}:federation=femnist-368").profiles().counts


def population(clients: int, femnist: str | None, kind: str) -> Counts:
    if clients <= 368:
        return writers(femnist)[np.sort(np.random.default_rng(0).permutation(368)[:clients])]
    return resampled(writers(femnist), clients) if kind == "resampled" else synthetic(clients)


def judged(counts: Counts, labels: NDArray[np.int64], groups: int, base: float) -> list[float]:
    sums = group_sums(counts, labels, groups)
    cpd, z = summarise_pairs(sums), summarise_pairs(sums, "euclid")
    return [cpd.median / base, cpd.mean / base, cpd.maximum / base, z.mean, float((labels < 0).sum())]


def rand_index(first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
    def pairs(values: NDArray[np.int64]) -> float:
        return float((values * (values - 1) / 2).sum())

    table = np.zeros((first.max() + 1, second.max() + 1), dtype=np.int64)
    np.add.at(table, (first, second), 1)
    both, one, other = pairs(table), pairs(table.sum(axis=1)), pairs(table.sum(axis=0))
    chance = one * other / (len(first) * (len(first) - 1) / 2)
    return (both - chance) / ((one + other) / 2 - chance)


def case(clients: int, groups: int, options: argparse.Namespace) -> None:
    """One case, in a process of its own so that its memory is its own: a line of JSON."""
    counts = population(clients, options.femnist, options.population)
    base = summarise_pairs(counts).median
    seeds = 20 if clients < 400 else 3 if clients < 10_000 else 1
    wanted = {"all": set(GROUPERS), "others": set(GROUPERS) - {"balanced"}}.get(options.grouper, {options.grouper})
    names = [name for name, (_, most) in GROUPERS.items() if clients <= most and name in wanted]
    found: dict[str, Any] = {}
    for name in names:
        grouping = GROUPERS[name][0]
        if clients < 10_000:
            grouping(counts, groups, 0)  # compile, if there is something to compile
        rows, labels = [], []
        for seed in range(seeds):
            began = time.process_time()
            labels.append(grouping(counts, groups, seed))
            took, most = time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            rows.append([*judged(counts, labels[-1], groups, base), took])
        middle = np.median(rows, axis=0).tolist()
        same = [rand_index(a, b) for a, b in combinations(labels[:8], 2) if a.min() >= 0 and b.min() >= 0]
        found[name] = [*middle, float(np.median(same)) if same else float("nan"), most / 2**20]
    print(json.dumps(found))


def cases(options: argparse.Namespace) -> None:
    for clients, groups in CASES:
        if not options.smallest <= clients <= options.largest:
            continue
        kinds = ("",) if clients <= 368 else ("synthetic", "resampled") if options.femnist else ("synthetic",)
        for kind in kinds:
            print(f"\n{clients} clients, {groups} groups{', ' if kind else ''}{kind}")
            print(
                f"{'':<26}{'CPD median':>11}{'mean':>11}{'maximum':>11}{'z':>8}{'left out':>9}{'CPU s':>9}{'ARI':>7}{'GiB':>6}"
            )
            for name in ("others", "balanced") if clients > 10_000 else ("all",):  # its own process where memory matters
                arguments = ("--case", str(clients), str(groups), "--population", kind or "synthetic", "--grouper", name)
                for label, row in _child(options, *arguments).items():
                    print(
                        f"{label:<26}{row[0]:>11.6f}{row[1]:>11.6f}{row[2]:>11.6f}{row[3]:>8.1f}{row[4]:>9.0f}{row[5]:>9.3f}"
                        f"{row[6]:>7.3f}{row[7]:>6.2f}",
                        flush=True,
                    )


def _child(options: argparse.Namespace, *arguments: str) -> Any:
    femnist = ["--femnist", options.femnist] if options.femnist else []
    done = subprocess.run([sys.executable, __file__, *femnist, *arguments], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def icg(options: argparse.Namespace) -> None:
    """The same points, start and tau for both; medians over seeds."""
    print("\nICG against k-means-constrained")
    print(f"{'K':>6}{'M':>6}{'L':>5}{'ours s':>9}{'theirs s':>9}{'times':>7}{'cost, ours/theirs':>19}")
    for clients, groups, seeds in ((368, 10, 20), (368, 20, 20), (368, 50, 20), (3550, 100, 5), (3550, 1000, 5), (3550, 10, 3)):
        counts = np.asarray(
            population(clients, options.femnist, "resampled" if options.femnist else "synthetic"), dtype=np.float64
        )
        shape, rows = ClusterShape.of(clients, groups), []
        equal_size_clusters(counts[: shape.sampled], shape.clusters, np.random.default_rng(0))  # compile
        for seed in range(seeds):
            points = counts[np.random.default_rng([seed, 1]).choice(clients, shape.sampled, replace=False)]
            began = time.process_time()
            ours = equal_size_clusters(points, shape.clusters, np.random.default_rng(seed)).objective[-1]
            middle = time.process_time()
            start = points[plus_plus_start(points, shape.clusters, np.random.default_rng(seed))]
            theirs = constrained(points, shape, start, 10, 0)
            ended = time.process_time()
            cost = sum(
                0.5 * float(((own - own.mean(axis=0)) ** 2).sum())
                for own in (points[theirs == i] for i in range(shape.clusters))
            )
            rows.append((middle - began, ended - middle, ours / cost))
        mine, other, ratio = np.median(rows, axis=0)
        print(
            f"{clients:>6}{groups:>6}{shape.clusters:>5}{mine:>9.4f}{other:>9.4f}{other / mine:>7.1f}{ratio:>19.5f}", flush=True
        )


def clustering_cost(points: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """The paper's objective: half the sum of squared distances to the own centroid."""
    clusters = (points[labels == label] for label in np.unique(labels))
    return sum(0.5 * float(((own - own.mean(axis=0)) ** 2).sum()) for own in clusters)


def exact(_: argparse.Namespace) -> None:
    print("\nHow often Balanced finds the optimum of its objective (200 federations each), and how often that has the least z")
    for clients, groups in ((8, 2), (8, 3), (9, 3), (10, 2), (10, 3), (12, 2)):
        labellings = every_grouping(clients, groups)
        one_hot = (labellings[:, :, None] == np.arange(groups)).astype(np.float64)
        hits = least = 0
        for seed in range(200):
            rng = np.random.default_rng(seed)
            counts = rng.multinomial(100, rng.dirichlet(np.full(5, 0.4), clients)).astype(np.int64)
            vectors = balance_vectors(counts, -(-clients // groups), 0.5)[:-1]
            squares = (np.einsum("nkg,kf->ngf", one_hot, vectors) ** 2).sum(axis=(1, 2))
            labels = Balanced(n_groups=groups, random_state=seed).fit(counts).labels_
            hits += bool((group_sums(vectors, labels, groups) ** 2).sum() == squares.min())
            sums = np.einsum("nkg,kf->ngf", one_hot, counts.astype(np.float64))
            z = sum(np.sqrt(((sums[:, a] - sums[:, b]) ** 2).sum(axis=1)) for a, b in combinations(range(groups), 2))
            least += bool(
                summarise_pairs(group_sums(counts, labels), "euclid").mean * groups * (groups - 1) / 2 <= np.min(z) * (1 + 1e-9)
            )
        print(f"K = {clients:>2}, M = {groups}: optimum {hits / 2:.1f} %, least z {least / 2:.1f} %", flush=True)


def every_grouping(clients: int, groups: int) -> NDArray[np.int64]:
    """Labellings with sizes equal to within one, up to the names of groups where that is easy."""
    if groups == 2:
        return np.array([[int(k in own) for k in range(clients)] for own in combinations(range(clients), clients // 2)])
    slots = np.sort(np.arange(clients) % groups).tolist()
    if clients <= 9:
        return np.array(sorted(set(permutations(slots))))
    found = [np.full(clients, -1)]
    for group in range(groups):
        size = slots.count(group)
        grown = []
        for labels in found:
            free = np.flatnonzero(labels < 0)
            for own in combinations(free.tolist(), size):
                grown.append(labels.copy())
                grown[-1][list(own)] = group
        found = grown
    return np.array(found)


def scale(options: argparse.Namespace) -> None:
    print(f"\nBalanced in groups of 100, made-up writers\n{'K':>9}{'CPU s':>9}{'GiB':>7}")
    points = []
    for clients in (1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000):
        if clients <= options.largest:
            row = _child(options, "--case", str(clients), str(clients // 100), "--grouper", "balanced")["balanced"]
            points.append((clients, row[5], row[7]))
            print(f"{clients:>9}{row[5]:>9.2f}{row[7]:>7.2f}", flush=True)
    if options.plots:
        draw_scale(options.plots / "grouping-scale.png", points)


def draw_scale(path: Path, points: list[tuple[int, float, float]]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.2), layout="constrained")
    clients, seconds, memory = np.array(points).T
    for axes, values, name in zip(figure.subplots(1, 2), (seconds, memory), ("CPU seconds", "GiB, whole process"), strict=True):
        axes.loglog(clients, values, "o-")
        axes.loglog(clients, values[-1] * clients / clients[-1], ":", color="gray", label="linear")
        axes.set(xlabel="clients", ylabel=name)
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=80)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"cases": cases, "icg": icg, "exact": exact, "scale": scale}
    parser.add_argument("--femnist", help="femnist.npz")
    parser.add_argument("--only", nargs="+", choices=parts, default=list(parts))
    parser.add_argument("--largest", type=int, default=10**6)
    parser.add_argument("--smallest", type=int, default=1)
    parser.add_argument("--plots", type=Path)
    parser.add_argument("--case", nargs=2, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--population", default="synthetic", help=argparse.SUPPRESS)
    parser.add_argument("--grouper", default="all", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        case(*options.case, options)
        return
    for name in options.only:
        parts[name](options)


if __name__ == "__main__":
    main()
