"""One client's hop, by the kernel one asks for."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from fedgsp.client import SGD, kernel_choice
from fedgsp.client.kernel_check import KernelCheck
from fedgsp.client.kernel_choice import obstacles
from fedgsp.client.train import Trainer
from fedgsp.core.chain import Hop
from fedgsp.core.seeds import Seeds
from fedgsp.core.tensors import Tensors, clone
from fedgsp.data.batches import gather
from fedgsp.data.federated import FederatedData
from fedgsp.fast import Kernel, Mode, candidates
from fedgsp.models import Task, classification
from fedgsp.models.state import model_tensors


def trained(model: nn.Module, rule: SGD, data: FederatedData, kernel: Kernel) -> tuple[dict[str, torch.Tensor], float]:
    """The model after one hop, and the loss that was reported."""
    turn = Trainer(copy.deepcopy(model), rule, classification(), data, torch.device("cpu"), Seeds(3), kernel)
    report = turn.train(1, Hop(0, 0, 0), clone(model_tensors(turn.model)), {})
    return clone(model_tensors(turn.model)), report.metrics["loss"]


def compiled(model: nn.Module, rule: SGD, data: FederatedData) -> Kernel:
    """The compiled kernel for this model and rule, whether or not it would prove itself."""
    example, _ = gather(data, np.arange(min(2, data.samples)))
    found = next(candidates(model, example, obstacles(rule, classification()), largest_batch=rule.batch_size))
    assert isinstance(found, Kernel), found
    assert found.compiled
    return found


def choose(
    mode: Mode,
    model: nn.Module,
    data: FederatedData,
    rule: SGD | None = None,
    task: Task | None = None,
    shared: Tensors | None = None,
    **options: Any,
) -> Kernel:
    """What a run of this model on this data would be trained by."""
    rule = rule or SGD()
    with torch.random.fork_rng(devices=[]):
        scratch = copy.deepcopy(model)
    start = clone(model_tensors(scratch))
    check = KernelCheck.of(scratch, rule, task or classification(), data, Seeds(3), start, shared or {})
    return kernel_choice.choose(mode, check, largest_batch=rule.batch_size, **options)


def seeded(build: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        return build()
