"""What training costs: plain PyTorch against fedgsp, side by side and in turns; nothing is needed but the package.

    make bench        (or: python benchmarks/round.py --only epoch rounds tiny --repeats 5)

epoch   one client's epoch of leaf_cnn (100 images) in batches of 5, 10, 20: plain SGD of three kinds, fedgsp
rounds  a FedAvg round of small_cnn and leaf_cnn on 12 clients: a plain loop, fedgsp in this process and with 2 workers
tiny    a round of 1,000 clients of 20 samples, logistic regression: Python's overhead is everything

All contestants of a table alternate, so that a busy machine disturbs all alike. Ratios are of CPU time, workers' included.
"lazy" is the fast path where nothing can be compiled, "fast off" ordinary PyTorch steps inside fedgsp.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

import fedgsp
from fedgsp.client.train import Trainer
from fedgsp.core.chain import Chain, Hop, Plan
from fedgsp.core.seeds import Seeds
from fedgsp.core.state import ServerState
from fedgsp.data import FederatedData
from fedgsp.data.batches import gather
from fedgsp.engine import Engine, InlineEngine, ProcessEngine, WorkerSetup
from fedgsp.engine.base import planned_samples
from fedgsp.fast import PLAIN, Kernel, Obstacles, candidates
from fedgsp.models import classification, initial_tensors, resolve
from fedgsp.server import Mean

PLAIN_SGD = {"for-loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
Work = Callable[[], None]


def plain_epoch(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, size: int, lr: float, kind: str) -> None:
    """What one writes by hand."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, **PLAIN_SGD[kind])
    for at in range(0, len(y), size):
        optimizer.zero_grad(set_to_none=True)
        cross_entropy(model(x[at : at + size]), y[at : at + size]).backward()
        optimizer.step()


def plain_round(job: WorkerSetup, clients: range, start: dict[str, torch.Tensor]) -> None:
    """A model, an optimiser, a loop, a weighted mean."""
    model, total = job.model.build(), 0
    kind = "fused" if sum(t.numel() for t in start.values()) > 100_000 else "for-loop"
    mean = {name: torch.zeros_like(t) for name, t in start.items()}
    for client in clients:
        model.load_state_dict(start)
        rows = job.data.train[client]
        x, y = gather(job.data, rows[torch.randperm(len(rows)).numpy()])
        plain_epoch(model, x, y, job.rule.batch_size, job.rule.lr, kind)
        for name, tensor in model.state_dict().items():
            mean[name].add_(tensor, alpha=len(rows))
        total += len(rows)
    for tensor in mean.values():
        tensor /= total


def with_engine(engine: Engine, job: WorkerSetup, plan: Plan, state: ServerState) -> None:
    update = Mean().start(state, plan, planned_samples(plan, job.data))
    for result in engine.run(plan, state, lambda event: None):
        update.add(result)
    update.finish()


def cpu_seconds(processes: list[int]) -> float:
    """CPU time of this process and of some others so far."""
    ticks = os.sysconf("SC_CLK_TCK")
    others = [Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in processes]
    return time.process_time() + sum(int(fields[11]) + int(fields[12]) for fields in others) / ticks


def in_turns(contestants: dict[str, Work], repeats: int, processes: list[int], steps: int) -> None:
    """Time all, print a table; ratios are to the fastest that is called plain."""
    cpu: dict[str, list[float]] = {who: [] for who in contestants}
    wall: dict[str, list[float]] = {who: [] for who in contestants}
    for turn in range(repeats + 1):
        for who, work in contestants.items():
            began, used = time.perf_counter(), cpu_seconds(processes)
            work()
            if turn:  # the first turn warms up
                cpu[who].append(cpu_seconds(processes) - used)
                wall[who].append(time.perf_counter() - began)
    base = min(statistics.median(cpu[who]) for who in contestants if who.startswith("plain"))
    print("| | CPU s | plain / this | wall s | ms of CPU a step |\n| --- | --- | --- | --- | --- |")
    for who in contestants:
        used, took = statistics.median(cpu[who]), statistics.median(wall[who])
        print(f"| {who} | {used:.3f} | {base / used:.2f} | {took:.3f} | {1000 * used / steps:.3g} |", flush=True)


def kernels(job: WorkerSetup) -> dict[str, Kernel]:
    """The compiled kernel, the one in torch, and none, as far as they are to be had for this model."""
    example, _ = gather(job.data, np.arange(2))
    found = list(candidates(job.fresh_model(), example, Obstacles(), largest_batch=job.rule.batch_size))
    named = {f"fedgsp, {'compiled' if k.compiled else k.name}": k for k in found if isinstance(k, Kernel)}
    return named | {"fedgsp, fast off": PLAIN}


def job_for(model: str | Callable[[], torch.nn.Module], data: FederatedData, size: int = 5) -> WorkerSetup:
    spec = resolve(model, data.sample_shape, data.classes)
    rule = replace(fedgsp.named("fedavg").local, batch_size=size)
    return WorkerSetup(spec, rule, classification(), data, Seeds(0))


def epoch(repeats: int) -> None:
    whole = fedgsp.load("glyphs")
    rows = np.concatenate([whole.train[k] for k in range(len(whole))])[:100]
    features, labels = np.asarray(whole.features[rows]), np.asarray(whole.labels[rows])
    data = fedgsp.from_arrays(features, labels, np.zeros(100, dtype=np.int64), classes=whole.classes, test_fraction=0.0)
    for size in (5, 10, 20):
        one_epoch(job_for("leaf_cnn", replace(data, divisor=whole.divisor), size), repeats)


def one_epoch(job: WorkerSetup, repeats: int) -> None:
    start, size = initial_tensors(job.model, 0), job.rule.batch_size
    x, y = gather(job.data, job.data.train[0])

    def by_hand(kind: str) -> Work:
        model = job.fresh_model()

        def work() -> None:
            model.load_state_dict(start)
            plain_epoch(model, x, y, size, job.rule.lr, kind)

        return work

    def by_us(kernel: Kernel) -> Work:
        trainer = Trainer(job.fresh_model(), job.rule, job.task, job.data, torch.device("cpu"), job.seeds, kernel)

        def work() -> None:
            trainer.model.load_state_dict(start)
            trainer.train(1, Hop(0, 0, 0), start, {})

        return work

    contestants = {f"plain PyTorch, {kind} SGD": by_hand(kind) for kind in PLAIN_SGD}
    contestants |= {who: by_us(kernel) for who, kernel in kernels(job).items()}
    print(f"\nOne client's epoch of leaf_cnn: {len(y)} images in batches of {size}, median of {repeats}\n")
    in_turns(contestants, repeats, [], -(-len(y) // size))


def one_round(title: str, job: WorkerSetup, clients: range, repeats: int) -> None:
    chosen = kernels(job)
    state = ServerState(0, {"global": initial_tensors(job.model, 0)})
    plan = Plan(1, tuple(Chain((client,)) for client in clients), groups=len(job.data))
    best = replace(job, kernel=next(iter(chosen.values())))
    pool = ProcessEngine(best, 2)
    contestants: dict[str, Work] = {"plain PyTorch": lambda: plain_round(job, clients, state.model)}
    for who, kernel in chosen.items():
        own = replace(job, kernel=kernel)
        engine = InlineEngine(own)
        contestants[f"{who}, this process"] = lambda engine=engine, own=own: with_engine(engine, own, plan, state)
    contestants["fedgsp, 2 workers"] = lambda: with_engine(pool, best, plan, state)
    steps = sum(-(-len(job.data.train[client]) // job.rule.batch_size) for client in clients)
    print(f"\n{title}: {len(clients)} clients, {steps} steps of batch {job.rule.batch_size}, median of {repeats}\n")
    try:
        in_turns(contestants, repeats, pool.process_ids(), steps)
    finally:
        pool.close()


def rounds(repeats: int) -> None:
    data = fedgsp.load("glyphs")
    for name in ("small_cnn", "leaf_cnn"):
        one_round(f"A FedAvg round of {name}", job_for(name, data), range(12), repeats)


def tiny(repeats: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20_000, 32)).astype(np.float32)
    y = (x @ rng.normal(size=(32, 10))).argmax(axis=1)
    data = fedgsp.from_arrays(x, y, np.repeat(np.arange(1000), 20), test_fraction=0.0)
    one_round("A round of tiny clients", job_for(lambda: torch.nn.Linear(32, 10), data), range(1000), repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=("epoch", "rounds", "tiny"), default=["epoch", "rounds", "tiny"])
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{time.strftime('%Y-%m-%d %H:%M')}, torch {torch.__version__}, load {os.getloadavg()[0]:.1f}")
    for name in arguments.only:
        {"epoch": epoch, "rounds": rounds, "tiny": tiny}[name](arguments.repeats)


if __name__ == "__main__":
    main()
