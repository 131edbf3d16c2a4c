"""What a client's visit costs beside its steps: loading the model, packing and checking it, the exact sum; and once a round.

    OMP_NUM_THREADS=1 python benchmarks/beside.py [--repeats 5]

One client of 100 images (glyphs), leaf_cnn, batches of 5: the least CPU time of the repeats.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import torch
from round import job_for, kernels

import fedgsp
from fedgsp.client.train import Trainer
from fedgsp.core.chain import Hop
from fedgsp.core.sums import ExactSum
from fedgsp.core.tensors import digest
from fedgsp.fast import Step
from fedgsp.models import initial_tensors

CLIENTS = 16
"""Of a round, to share out what a round costs once."""


def least(work: Callable[[], object], repeats: int) -> float:
    """Milliseconds of CPU; the first turn warms up."""
    times = []
    for _ in range(repeats + 1):
        began = time.process_time()
        work()
        times.append(1000 * (time.process_time() - began))
    return min(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    data = fedgsp.load("glyphs")
    client = next(k for k in range(len(data)) if len(data.train[k]) >= 100)
    data = fedgsp.from_arrays(
        data.features[data.train[client][:100]] / data.divisor, data.labels[data.train[client][:100]], [0] * 100,
        classes=data.classes, test_fraction=0.0,
    )  # fmt: skip
    job = job_for("leaf_cnn", data)
    trainer = Trainer(
        job.fresh_model(), job.rule, job.task, job.data, torch.device("cpu"), job.seeds, next(iter(kernels(job).values()))
    )
    start, net = initial_tensors(job.model, 0), trainer.fused
    assert net is not None
    total = ExactSum(start, 10_000.0)

    def visit() -> None:
        trainer.load(start)
        trainer.train(1, Hop(0, 0, 0), start, {})

    def added() -> None:
        total.add(trainer.tensors(), 100.0, "a client")

    once = {
        "a new sum": least(lambda: ExactSum(start, 10_000.0), repeats),
        "a state's digest": least(lambda: digest(start), repeats),
    }
    whole = least(visit, repeats)
    loading = least(lambda: trainer.load(start), repeats)
    packing = least(lambda: (net.begin(Step(0.0)), net.end()), repeats)
    adding = least(added, repeats)
    once["the mean"] = least(total.mean64, repeats)
    shared = sum(once.values()) / CLIENTS
    beside, all_ = loading + packing + adding + shared, whole + adding + shared
    print(f"load {os.getloadavg()[0]:.1f}; CPU ms of a client of 20 steps\n\n| what | ms |\n| --- | --- |")
    rows = {
        "20 steps": whole - loading - packing, "loading the model": loading, "packing, unpacking, checking": packing,
        "the exact sum": adding, f"once a round ({', '.join(once)}), a {CLIENTS}th": shared,
    }  # fmt: skip
    for what, ms in rows.items():
        print(f"| {what} | {ms:.2f} |")
    print(f"\nBeside the kernels: {100 * beside / all_:.1f} % of the round")


if __name__ == "__main__":
    main()
