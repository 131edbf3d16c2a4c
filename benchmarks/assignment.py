"""The equal-size assignment of ICG by several solvers, side by side: CPU milliseconds for one assignment, and what it costs.

    OMP_NUM_THREADS=1 python benchmarks/assignment.py [--femnist ../shared/femnist/femnist.npz] [--turns 5]

n points go to L clusters of n / L points each so that the sum of costs is least: the first step of k-means on class counts of
clients, from a k-means++ start with no prices known. All solvers take turns; a figure is the least of the turns, over three
problems. All must find the same optimum, which is checked. OR-Tools and POT are in the extra `bench`.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from fedgsp.plan.icg import _costs
from fedgsp.plan.kmeans_start import plus_plus_start
from fedgsp.plan.transport import assign_equally

Costs = NDArray[np.float64]
SIZES = ((364, 7), (360, 36), (3549, 3), (3535, 35), (3550, 355))
SEEDS = 3
SLOW = {"SciPy, clusters repeated": 400 * 400}
"""Costs (n squared, here) above which a solver takes too long to wait for."""


def counts(clients: int, femnist: Path | None, rng: np.random.Generator) -> Costs:
    """Class counts of real writers, drawn with replacement; without the file, of made-up skewed clients."""
    if femnist is None:
        shares = rng.dirichlet(np.full(62, 0.5), size=clients)
        return np.stack([rng.multinomial(int(n), p) for n, p in zip(rng.integers(20, 200, clients), shares, strict=True)]) * 1.0
    with np.load(femnist) as file:
        table = np.zeros((len(file["writers"]), 62))
        np.add.at(table, (file["writer_index"], file["labels"]), 1)
    return table[rng.choice(len(table), clients)]


def problem(points: int, clusters: int, femnist: Path | None, seed: int) -> Costs:
    rng = np.random.default_rng(seed)
    clients = counts(points, femnist, rng)
    size = points // clusters
    return _costs(clients, size * clients[plus_plus_start(clients, clusters, rng)], size, "squared")


def ours(compile_from: int) -> Callable[[Costs], NDArray[np.int64]]:
    return lambda cost: assign_equally(cost, compile_from=compile_from).labels


def by_scipy(cost: Costs) -> NDArray[np.int64]:
    size = len(cost) // cost.shape[1]
    return np.asarray(linear_sum_assignment(np.repeat(cost, size, axis=1))[1] // size)


def by_ortools(cost: Costs) -> NDArray[np.int64]:
    """Whole-number costs as they are: points with a supply of 1, clusters with a demand of n / L."""
    from ortools.graph.python import min_cost_flow

    points, clusters = cost.shape
    flow = min_cost_flow.SimpleMinCostFlow()
    tails = np.repeat(np.arange(points, dtype=np.int32), clusters)
    heads = np.tile(np.arange(points, points + clusters, dtype=np.int32), points)
    whole = (cost - cost.min()).astype(np.int64).ravel()
    arcs = flow.add_arcs_with_capacity_and_unit_cost(tails, heads, np.ones(len(tails), dtype=np.int64), whole)
    supplies = np.concatenate([np.ones(points), np.full(clusters, -(points // clusters))]).astype(np.int64)
    flow.set_nodes_supplies(np.arange(points + clusters, dtype=np.int32), supplies)
    if flow.solve() != flow.OPTIMAL:
        raise RuntimeError("OR-Tools found no optimum")
    return np.asarray(flow.flows(arcs)).reshape(points, clusters).argmax(axis=1)


def by_pot(cost: Costs) -> NDArray[np.int64]:
    import ot

    points, clusters = cost.shape
    plan = ot.emd(np.ones(points), np.full(clusters, points / clusters), cost - cost.min(), numItermax=10_000_000)
    return np.asarray(plan).argmax(axis=1)


def solvers() -> dict[str, Callable[[Costs], NDArray[np.int64]]]:
    found = {"fedgsp, compiled": ours(0), "fedgsp, NumPy": ours(10**12), "OR-Tools": by_ortools, "POT": by_pot}
    for name, module in (("OR-Tools", "ortools"), ("POT", "ot")):
        try:
            __import__(module)
        except ImportError:
            print(f"{name} is not installed (extra 'bench'), so it is left out")
            del found[name]
    return found | {"SciPy, clusters repeated": by_scipy}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--femnist", type=Path)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--only", nargs="+", help="only these solvers, as they are called in the table")
    arguments = parser.parse_args()
    contestants = {who: solve for who, solve in solvers().items() if not arguments.only or who in arguments.only}
    print(f"load {os.getloadavg()[0]:.1f}, {arguments.turns} turns, {SEEDS} problems each\n")
    print("| n, L | " + " | ".join(contestants) + " |\n" + "| --- " * (len(contestants) + 1) + "|")
    for points, clusters in SIZES:
        problems = [problem(points, clusters, arguments.femnist, seed) for seed in range(SEEDS)]
        least: dict[str, list[float]] = {who: [float("inf")] * SEEDS for who in contestants}
        for _ in range(arguments.turns):
            for seed, cost in enumerate(problems):
                optimum = None
                for who, solve in contestants.items():
                    if points * points > SLOW.get(who, points * points):
                        continue
                    began = time.process_time()
                    labels = solve(cost)
                    least[who][seed] = min(least[who][seed], 1000 * (time.process_time() - began))
                    paid = float(cost[np.arange(points), labels].sum())
                    optimum = paid if optimum is None else optimum
                    if paid != optimum or (np.bincount(labels, minlength=clusters) != points // clusters).any():
                        raise RuntimeError(f"{who} found {paid}, fedgsp {optimum}")
        row = [sum(times) / SEEDS for times in least.values()]
        print(
            f"| {points}, {clusters} | " + " | ".join(f"{ms:.3g}" if np.isfinite(ms) else "-" for ms in row) + " |", flush=True
        )


if __name__ == "__main__":
    main()
