"""The grids over which a method is tuned, on validation samples, before it is compared."""

from __future__ import annotations

from collections.abc import Mapping

LR = "lr=0.003,0.01,0.03,0.1"
SEQUENTIAL = "lr=0.001,0.003,0.01,0.03"
GRIDS: Mapping[str, tuple[str, ...]] = {
    "fedprox": (LR, "mu=0.01,0.1,1"),
    "fedmmd": (LR, "lam=0.01,0.1,1"),
    "fedadagrad": ("lr=0.01,0.03,0.1", "server_lr=0.01,0.0316,0.1"),
    "fedadam": ("lr=0.01,0.03,0.1", "server_lr=0.00316,0.01,0.0316"),
    "fedyogi": ("lr=0.01,0.03,0.1", "server_lr=0.00316,0.01,0.0316"),
    "fedavgm": ("lr=0.01,0.03,0.1", "server_lr=0.1,0.316,1"),
    "fedgsp+momentum": ("lr=0.003,0.01,0.03", "server_lr=0.1,0.316,1"),
    "fedgsp+yogi": ("lr=0.003,0.01,0.03", "server_lr=0.00316,0.01,0.0316"),
    "fedgsp+prox": (LR, "mu=0.01,0.1"),
    "fedseq": (SEQUENTIAL,),
    "fedseq-inter": (SEQUENTIAL, "period=5,10"),
    "cwt": (SEQUENTIAL,),
    "cyclic-fl": (SEQUENTIAL, "planner.rounds=5,10"),
    "feddc": (LR, "period=5,10"),
}
"""What is tuned over which values where it is more than the learning rate; the server's defaults stand for the paper's."""
