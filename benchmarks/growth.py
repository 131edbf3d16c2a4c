"""How a round's cost grows: with clients, with samples, with workers. Tables, a picture, and where it is not near-linear.

    OMP_NUM_THREADS=1 python benchmarks/growth.py [--largest 100000] [--picture docs/images/growth]
    OMP_NUM_THREADS=1 python benchmarks/growth.py --plans [--largest 1000000]
    OMP_NUM_THREADS=1 python benchmarks/growth.py --chains [--largest 1000000]

Logistic regression on 32 numbers, batches of 5, one epoch, FedAvg in which everybody trains, no evaluation: the model is so
small that what is left is what the simulator itself costs. Each setting runs in a process of its own; the first round is not
counted (but for the largest, which has no other). CPU is that of the process and its workers. With --plans, how long it takes
to group made-up writers (population.py), by grouper and clients, for groups of about 100 clients and for ten groups. With
--chains, FedGSP's rounds of such tiny clients: ICG's groups of 100, three in ten train. A model of their cost is made from all
sizes but the largest, held against that one, and carried on to ten million clients.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from usage import proportional_memory, tree_cpu_seconds

MOST_CLUSTERS = 10_000
"""Clusters up to which ICG is tried: 100,000 of them would be ten thousand million distances between clusters."""
CHAIN, SHARE = 100, 0.3
"""Clients of a chain and share of the groups that train, with --chains."""
BEYOND = 10_000_000
"""Clients that the model is carried on to."""
NEAR = 1.3
"""How much dearer a client (or a sample) may get from one row to the next for it to be called near-linear."""


def one(clients: int, samples: int, workers: int, rounds: int, groups: int = 0) -> None:
    """Train some rounds, print a line of JSON."""
    import torch

    import fedgsp
    from fedgsp.plan import Constant

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((clients * samples, 32), dtype=np.float32)
    y = rng.integers(0, 10, clients * samples)
    began = tree_cpu_seconds(os.getpid())
    data = fedgsp.from_arrays(x, y, np.repeat(np.arange(clients), samples), test_fraction=0.0)
    built = tree_cpu_seconds(os.getpid()) - began
    marks: list[tuple[float, float]] = []
    plans: list[float] = []
    planned: list[float] = []
    hops: list[int] = []

    class Clock(fedgsp.Callback):
        def mark(self) -> None:
            marks.append((tree_cpu_seconds(os.getpid()), time.perf_counter()))

        def on_run_start(self, run: Any, history: Any) -> None:
            self.mark()  # before the first round is planned

        def on_round_start(self, plan: Any) -> None:
            planned.append(tree_cpu_seconds(os.getpid()) - marks[-1][0])
            hops.append(sum(map(len, plan.chains)))

        def on_round_end(self, entry: dict[str, Any]) -> None:
            plans.append(entry["timings"]["plan"])
            self.mark()
            self.memory = proportional_memory(os.getpid())

    clock = Clock()
    method = fedgsp.named("fedavg")
    method = replace(method, planner=replace(method.planner, kappa=1.0))
    if groups:
        method = fedgsp.named("fedgsp")
        method = replace(method, planner=replace(method.planner, growth=Constant(groups), kappa=SHARE))
    fedgsp.train(
        method, data, lambda: torch.nn.Linear(32, 10), rounds=rounds, workers=workers, eval_every=rounds + 1, callbacks=[clock],
        lr=0.01, batch_size=5,
    )  # fmt: skip
    spent = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(marks)]
    counted = spent[1:] if len(spent) > 1 else spent
    print(json.dumps({
        "cpu": statistics.median(cpu for cpu, _ in counted), "wall": statistics.median(wall for _, wall in counted),
        "plan": statistics.median(plans[-len(counted) :]), "memory": clock.memory, "built": built,
        "planned": statistics.median(planned[-len(counted) :]), "hops": hops[-1],
    }))  # fmt: skip


def measured(clients: int, samples: int, workers: int, groups: int = 0) -> dict[str, float]:
    rounds = 1 if clients >= 100_000 else 3 if clients * samples > 100_000 else 10
    command = [sys.executable, __file__, "--one", *map(str, (clients, samples, workers, rounds, groups))]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def table(what: str, rows: list[tuple[int, dict[str, float]]], per: str) -> None:
    """A row a setting, and a sentence on where the cost of a unit does not stay the same."""
    print(f"\n| {what} | CPU s a round | wall s a round | microseconds of CPU a {per} | of the wall s, planning | GB (PSS) |")
    print("| --- | --- | --- | --- | --- | --- |")
    for count, row in rows:
        print(
            f"| {count:,} | {row['cpu']:.3g} | {row['wall']:.3g} | {1e6 * row['cpu'] / count:.1f} | {row['plan']:.3f} "
            f"| {row['memory'] / 1e9:.2f} |",
            flush=True,
        )
    units = [(count, row["cpu"] / count) for count, row in rows]
    steps = [(a[0], b[0], b[1] / a[1]) for a, b in pairwise(units)]
    odd = [
        f"from {a:,} to {b:,} a {per} costs {ratio:.2f} times as much" for a, b, ratio in steps if not 1 / NEAR <= ratio <= NEAR
    ]
    print(f"\n{'Not linear: ' + '; '.join(odd) if odd else 'Near-linear throughout'}.", flush=True)


def plans(largest: int) -> None:
    """CPU seconds to form a round's groups, a row for each number of clients."""
    from population import synthetic

    from fedgsp.plan import ICG, Balanced, Random, Stratified

    groupers = {"random": Random(), "stratified": Stratified(), "balanced": Balanced(), "ICG": ICG()}
    wanted = {**{name: (grouper, 100) for name, grouper in groupers.items()}, "ICG, 10 groups": (ICG(), 0)}
    print("\n| clients | " + " | ".join(wanted) + " |\n" + "| --- " * (len(wanted) + 1) + "|")
    for clients in (10**power for power in range(2, 7) if 10**power <= largest):
        counts, row = synthetic(clients), []
        for grouper, chain in wanted.values():
            groups = max(2, clients // chain) if chain else 10
            if isinstance(grouper, ICG) and clients // groups > MOST_CLUSTERS:
                row.append("not tried")
                continue
            began = time.process_time()
            grouper.assign(counts, groups, np.random.default_rng(0))
            row.append(f"{time.process_time() - began:.3g}")
        print(f"| {clients:,} | " + " | ".join(row) + " |", flush=True)


def chains(largest: int) -> None:
    """FedGSP's rounds by clients, and what a model made from all but the largest says of that and of more."""
    sizes = [10**power for power in range(3, 7) if 10**power <= largest]
    print(
        "\n| clients of 20 samples | groups | hops | CPU s a round | of it planning | microseconds a hop beside it | GB (PSS) |"
    )
    print("| --- " * 7 + "|")
    found = {}
    for count in sizes:
        row = found[count] = measured(count, 20, 0, count // CHAIN)
        beside = row["cpu"] - row["planned"]
        print(
            f"| {count:,} | {count // CHAIN:,} | {row['hops']:,} | {row['cpu']:.3g} | {row['planned']:.3g} "
            f"| {1e6 * beside / row['hops']:.0f} | {row['memory'] / 1e9:.2f} |",
            flush=True,
        )
    known = sizes[:-1]
    a_hop, once = fitted([found[n]["hops"] for n in known], [found[n]["cpu"] - found[n]["planned"] for n in known])
    a_client = found[known[-1]]["planned"] / known[-1]
    bytes_client, bytes_once = fitted(known, [found[n]["memory"] for n in known])
    print(
        f"\nModel of up to {known[-1]:,}: {1000 * once:.0f} ms + {1e6 * a_hop:.0f} microseconds a hop + {1e6 * a_client:.1f} a "
        f"client for planning; {bytes_once / 1e9:.2f} GB + {bytes_client / 1000:.1f} KB a client.\n"
    )
    print("| clients | CPU s a round by the model | measured | GB by the model | measured |\n" + "| --- " * 5 + "|")
    for count in (sizes[-1], BEYOND):
        hops = SHARE * count
        cpu, memory = once + a_hop * hops + a_client * count, bytes_once + bytes_client * count
        real = found.get(count)
        told = (f"{real['cpu']:.3g}", f"{real['memory'] / 1e9:.2f}") if real else ("", "")
        print(f"| {count:,} | {cpu:.3g} | {told[0]} | {memory / 1e9:.2f} | {told[1]} |", flush=True)


def fitted(x: list[float], y: list[float]) -> tuple[float, float]:
    """(slope, constant) of a line whose relative errors are least squares; the constant is not below zero."""
    weights = 1 / np.array(y)
    slope, once = np.linalg.lstsq(np.stack([x, np.ones(len(x))], axis=1) * weights[:, None], np.ones(len(x)), rcond=None)[0]
    if once < 0:
        slope, once = float((weights * np.array(x)).sum() / ((weights * np.array(x)) ** 2).sum()), 0.0
    return float(slope), float(once)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=100_000, help="most clients")
    parser.add_argument("--picture", type=Path, help="where to draw, without an ending: PNG and SVG are made")
    parser.add_argument("--plans", action="store_true", help="how long groups take to form, and nothing else")
    parser.add_argument("--chains", action="store_true", help="FedGSP's rounds and a model of their cost, and nothing else")
    parser.add_argument("--one", nargs=5, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(*options.one)
        return
    print(f"{time.strftime('%Y-%m-%d %H:%M')}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    if options.plans:
        plans(options.largest)
        return
    if options.chains:
        chains(options.largest)
        return
    sizes = [count for count in (100, 1000, 10_000, 100_000) if count <= options.largest]
    by_clients = [(count, measured(count, 20, 0)) for count in sizes]
    table("clients of 20 samples, this process", by_clients, "client")
    by_samples = [(100 * count, measured(100, count, 0)) for count in (10, 100, 1000, 5000)]
    table("samples of 100 clients, this process", by_samples, "sample")
    by_workers: dict[int, list[tuple[int, dict[str, float]]]] = {}
    for workers in (1, 2):
        by_workers[workers] = [
            (count, measured(count, 20, workers)) for count in (100, 1000, 10_000) if count <= options.largest
        ]
        table(f"clients of 20 samples, {workers} worker{'s' if workers > 1 else ''}", by_workers[workers], "client")
    if options.picture:
        draw(by_clients, by_samples, by_workers, options.picture)


def draw(
    clients: list[tuple[int, dict[str, float]]],
    samples: list[tuple[int, dict[str, float]]],
    workers: dict[int, list[tuple[int, dict[str, float]]]],
    place: Path,
) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4))
    left.plot([n for n, _ in clients], [row["cpu"] for _, row in clients], "-o", color="#0072B2", label="this process")
    for (count, rows), colour in zip(workers.items(), ("#E69F00", "#009E73"), strict=True):
        label = f"{count} worker{'s' if count > 1 else ''}"
        left.plot([n for n, _ in rows], [row["cpu"] for _, row in rows], "-s", color=colour, label=label)
    right.plot([n for n, _ in samples], [row["cpu"] for _, row in samples], "-o", color="#D55E00", label="100 clients")
    for axes, rows, what in ((left, clients, "clients of 20 samples"), (right, samples, "samples in all")):
        n, last = rows[-1][0], rows[-1][1]["cpu"]
        axes.plot([rows[0][0], n], [last * rows[0][0] / n, last], "--", color="grey", linewidth=1, label="linear")
        axes.set(xscale="log", yscale="log", xlabel=what, ylabel="CPU seconds a round")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle("What a round costs, logistic regression, everybody trains", fontsize=10)
    figure.tight_layout()
    place.parent.mkdir(parents=True, exist_ok=True)
    for ending in (".png", ".svg"):
        figure.savefig(place.with_suffix(ending), dpi=110)


if __name__ == "__main__":
    main()
