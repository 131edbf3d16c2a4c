"""What the engine costs on top of training: one FedAvg round, by a plain PyTorch loop and by fedgsp, side by side.

    make bench        (or: python benchmarks/round.py --model leaf_cnn --clients 16 --repeats 3)

The three alternate in one run, so that a busy machine disturbs all alike; ratios are of CPU time (workers' included).
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

import fedgsp
from fedgsp.core.chain import Chain, Plan
from fedgsp.core.seeds import Seeds
from fedgsp.core.state import ServerState
from fedgsp.data.batches import gather
from fedgsp.engine import Engine, InlineEngine, Job, PoolEngine
from fedgsp.engine.job import planned_samples
from fedgsp.models import classification, initial_tensors, resolve
from fedgsp.server import Mean


def plain_pytorch(job: Job, clients: range, start: dict[str, torch.Tensor]) -> None:
    """What one writes by hand: a model, an optimiser, a loop, a weighted mean."""
    model, total = job.model.build(), 0
    mean = {name: torch.zeros_like(t) for name, t in start.items()}
    for client in clients:
        model.load_state_dict(start)
        optimizer = torch.optim.SGD(model.parameters(), lr=job.rule.lr, foreach=True)
        rows = job.data.train[client]
        x, y = gather(job.data, rows[torch.randperm(len(rows)).numpy()])
        for at in range(0, len(y), job.rule.batch_size):
            optimizer.zero_grad(set_to_none=True)
            part = slice(at, at + job.rule.batch_size)
            torch.nn.functional.cross_entropy(model(x[part]), y[part]).backward()
            optimizer.step()
        for name, tensor in model.state_dict().items():
            mean[name] += tensor * len(rows)
        total += len(rows)
    for tensor in mean.values():
        tensor /= total


def with_engine(engine: Engine, job: Job, plan: Plan, state: ServerState) -> None:
    update = Mean().start(state, plan, planned_samples(plan, job.data))
    for result in engine.run(plan, state, lambda event: None):
        update.add(result)
    update.finish()


def cpu_seconds(processes: list[int]) -> float:
    """CPU time of this process and of some others so far."""
    ticks = os.sysconf("SC_CLK_TCK")
    others = [Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in processes]
    return time.process_time() + sum(int(fields[11]) + int(fields[12]) for fields in others) / ticks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", default=["small_cnn", "leaf_cnn"])
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data = fedgsp.load("glyphs")
    for name in arguments.model:
        spec = resolve(name, data.sample_shape, data.classes)
        job = Job(spec, fedgsp.named("fedavg").local, classification(), data, Seeds(0))
        clients = range(arguments.clients)
        plan = Plan(1, tuple(Chain((client,)) for client in clients), groups=len(data))
        state = ServerState(0, {"global": initial_tensors(spec, 0)})
        inline, pool = InlineEngine(job), PoolEngine(job, 2)
        contestants: dict[str, Callable[[], None]] = {
            "plain PyTorch loop": lambda job=job, state=state, clients=clients: plain_pytorch(job, clients, state.model),
            "fedgsp, this process": lambda job=job, state=state, e=inline, plan=plan: with_engine(e, job, plan, state),
            "fedgsp, 2 workers": lambda job=job, state=state, e=pool, plan=plan: with_engine(e, job, plan, state),
        }
        cpu: dict[str, list[float]] = {who: [] for who in contestants}
        wall: dict[str, list[float]] = {who: [] for who in contestants}
        try:
            for turn in range(arguments.repeats + 1):
                for who, work in contestants.items():
                    began, used = time.perf_counter(), cpu_seconds(pool.process_ids())
                    work()
                    if turn:  # the first turn warms up
                        cpu[who].append(cpu_seconds(pool.process_ids()) - used)
                        wall[who].append(time.perf_counter() - began)
        finally:
            pool.close()
        steps = sum(-(-len(data.train[client]) // 5) for client in clients)
        base = statistics.median(cpu["plain PyTorch loop"])
        print(f"\n{name}: {arguments.clients} clients, {steps} SGD steps of batch 5, median of {arguments.repeats}")
        for who in contestants:
            used, took = statistics.median(cpu[who]), statistics.median(wall[who])
            per_step, ratio = 1000 * used / steps, used / base
            print(f"  {who:<22} CPU {used:7.2f} s ({ratio:4.2f} x plain)  wall {took:7.2f} s  {per_step:.2f} ms a step")


if __name__ == "__main__":
    main()
