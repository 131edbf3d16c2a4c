"""Plain PyTorch: what one writes by hand, one thread, with the fastest of three implementations of SGD (measured first).

`run_plain.py LENGTH`: clients train one after the other in chains of that length (1: FedAvg).
"""

from __future__ import annotations

import random
import sys
import time

import torch
from link import Link, Work
from torch.nn.functional import cross_entropy

torch.set_num_threads(1)
VARIANTS = {"for-loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
work = Work.read()
data, model = work.tensors(), work.model()
start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
steps, length = 0, int(sys.argv[1])


def epoch(client: int, variant: str) -> None:
    global steps
    x, y = data[client]
    order = torch.randperm(len(y))
    x, y = x[order], y[order]
    optimizer = torch.optim.SGD(model.parameters(), lr=work.lr, **VARIANTS[variant])
    for at in range(0, len(y), work.batch):
        optimizer.zero_grad(set_to_none=True)
        cross_entropy(model(x[at : at + work.batch]), y[at : at + work.batch]).backward()
        optimizer.step()
        steps += 1


def fastest() -> str:
    """Each variant trains the same few clients three times, in turns; the least CPU time counts."""
    took: dict[str, float] = dict.fromkeys(VARIANTS, float("inf"))
    for _ in range(3):
        for variant in VARIANTS:
            began = time.process_time()
            for client in range(1 if work.name == "cnn" else 20):
                epoch(client, variant)
            took[variant] = min(took[variant], time.process_time() - began)
    return min(took, key=lambda variant: took[variant])


best = fastest()
steps = 0
link = Link()
link.ready(torch.get_num_threads(), f"{best} SGD")
while True:
    chosen = random.sample(range(len(data)), work.per_round)
    total, mean = 0, {name: torch.zeros_like(tensor) for name, tensor in start.items()}
    for at in range(0, len(chosen), length):
        chain = chosen[at : at + length]
        model.load_state_dict(start)
        for client in chain:
            epoch(client, best)
        weight = sum(len(data[client][1]) for client in chain)
        for name, tensor in model.state_dict().items():
            mean[name].add_(tensor, alpha=weight)
        total += weight
    start = {name: tensor / total for name, tensor in mean.items()}
    model.load_state_dict(start)
    link.round_done(steps, lambda: work.loss(model))
