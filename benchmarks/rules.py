"""What a step of each local rule takes: by the fast path and by plain PyTorch steps, side by side.

    OMP_NUM_THREADS=1 python benchmarks/rules.py [--model small_cnn] [--samples 100] [--repeats 5] [--only mmd moon ...]

One client, batches of 5, one epoch a visit; CPU time, the contestants take turns, medians. Before the timed visit a rule that
keeps something has made one, so that its term is not idle.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from dataclasses import replace

import numpy as np
import torch

import fedgsp
from fedgsp.client import MMD, SGD, Distill, Dyn, Fusion, Moon, Prox, Scaffold
from fedgsp.client.client_state import ClientStates
from fedgsp.client.kernel_choice import obstacles
from fedgsp.client.train import Trainer
from fedgsp.core.chain import Hop
from fedgsp.core.seeds import Seeds
from fedgsp.core.tensors import Tensors, clone
from fedgsp.data import FederatedData
from fedgsp.data.batches import gather
from fedgsp.engine import WorkerSetup
from fedgsp.fast import PLAIN, Kernel, candidates
from fedgsp.models import classification, resolve
from fedgsp.models.state import model_tensors

RULES: dict[str, SGD] = {
    "sgd": SGD(),
    "prox": Prox(),
    "dyn": Dyn(),
    "scaffold": Scaffold(),
    "mmd": MMD(),
    "mmd-features": MMD(on="features"),
    "fusion-conv": Fusion(),
    "fusion-multi": Fusion(operator="multi"),
    "fusion-single": Fusion(operator="single"),
    "moon": Moon(),
    "distill": Distill(),
}


def client(samples: int) -> FederatedData:
    """One client with this many images of glyphs."""
    whole = fedgsp.load("glyphs")
    rows = np.concatenate([whole.train[k] for k in range(len(whole))])[:samples]
    features, labels = np.asarray(whole.features[rows]), np.asarray(whole.labels[rows])
    owner = np.zeros(samples, dtype=np.int64)
    return replace(
        fedgsp.from_arrays(features, labels, owner, classes=whole.classes, test_fraction=0.0), divisor=whole.divisor
    )  # fmt: skip


def shared_for(rule: SGD, model: torch.nn.Module, classes: int) -> Tensors:
    """What a server could have sent along."""
    if isinstance(rule, Scaffold):
        return {name: torch.full_like(tensor, 1e-3) for name, tensor in rule.initial_client_state(model).items()}
    if isinstance(rule, Distill):
        counts = torch.full((classes,), 3)
        return {"distill.sum": torch.ones(classes, classes), "distill.count": counts, "distill.round": torch.tensor(0)}
    return {}


class Contestant:
    """One rule on one path."""

    def __init__(self, job: WorkerSetup, kernel: Kernel) -> None:
        self.trainer = Trainer(job.fresh_model(), job.rule, job.task, job.data, torch.device("cpu"), job.seeds, kernel)
        self.client_states, self.times = ClientStates(), list[float]()
        self.shared = shared_for(job.rule, self.trainer.model, job.data.classes)
        self.start = clone(model_tensors(self.trainer.model))

    def visit(self, timed: bool) -> None:
        """One epoch from the same start."""
        self.trainer.load(self.start)
        began = time.process_time()
        report = self.trainer.train(1, Hop(0, 0, 0), self.start, self.shared, client_states=self.client_states)
        if timed:
            self.times.append(1000 * (time.process_time() - began) / report.steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="small_cnn")
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=list(RULES), default=list(RULES))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data = client(arguments.samples)
    print(f"{time.strftime('%Y-%m-%d %H:%M')}, torch {torch.__version__}, load {os.getloadavg()[0]:.1f}")
    print(f"\n{arguments.model}, {arguments.samples} samples in batches of 5, median of {arguments.repeats}\n")
    print("| rule | kernel | ms of CPU a step, fast | plain | plain / fast |\n| --- | --- | --- | --- | --- |")
    for name in arguments.only:
        spec = resolve(arguments.model, data.sample_shape, data.classes)
        job = WorkerSetup(spec, RULES[name], classification(), data, Seeds(0))
        example, _ = gather(data, np.arange(2))
        told = candidates(job.fresh_model(), example, obstacles(job.rule, job.task), largest_batch=job.rule.batch_size)
        kernel = next((one for one in told if isinstance(one, Kernel)), PLAIN)
        fast, plain = Contestant(job, kernel), Contestant(job, PLAIN)
        for turn in range(arguments.repeats + 1):
            for contestant in (fast, plain):
                contestant.visit(timed=turn > 0)
        took, base = statistics.median(fast.times), statistics.median(plain.times)
        print(f"| {name} | {kernel.name[:1]} | {took:.3g} | {base:.3g} | {base / took:.1f} |", flush=True)


if __name__ == "__main__":
    main()
