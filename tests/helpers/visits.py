"""One client's visit, by the kernel one asks for."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from fedgsp.client import SGD
from fedgsp.client.rules import obstacles
from fedgsp.client.train import Trainer
from fedgsp.core.chain import Stop
from fedgsp.core.seeds import Seeds
from fedgsp.core.tensors import clone
from fedgsp.data.batches import gather
from fedgsp.data.federated import FederatedData
from fedgsp.fast import Kernel, choose
from fedgsp.models import classification
from fedgsp.models.state import model_tensors


def trained(model: nn.Module, rule: SGD, data: FederatedData, kernel: Kernel) -> tuple[dict[str, torch.Tensor], float]:
    """The model after one visit, and the loss that was reported."""
    turn = Trainer(copy.deepcopy(model), rule, classification(), data, torch.device("cpu"), Seeds(3), kernel)
    report = turn.visit(1, Stop(0, 0, 0), clone(model_tensors(turn.model)), {})
    return clone(model_tensors(turn.model)), report.metrics["loss"]


def compiled(model: nn.Module, rule: SGD, data: FederatedData) -> Kernel:
    example, _ = gather(data, np.arange(min(2, data.samples)))
    chosen = choose("on", model, example, batch_size=rule.batch_size, device="cpu", obstacles=obstacles(rule, classification()))
    assert chosen.name.startswith("c-"), chosen.why
    return chosen


def seeded(build: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        return build()
