"""A model that the server trains on samples of its own before round 1: the run's initial weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import torch
from torch import nn

from fedgsp.client.rules import SGD
from fedgsp.client.stepping import Stepping
from fedgsp.client.train import Trainer
from fedgsp.core.chain import Hop
from fedgsp.core.machine import one_math_thread
from fedgsp.core.tensors import Tensors, clone
from fedgsp.data.federated import FederatedData, Split
from fedgsp.models.state import load_tensors, model_tensors

if TYPE_CHECKING:
    from fedgsp.core.seeds import Seeds
    from fedgsp.models.task import Task
    from fedgsp.prepare.preparation import WarmUp


def warmed_up(
    warm_up: WarmUp, initial: Tensors, fresh_model: Callable[[], nn.Module], local: SGD, task: Task, data: FederatedData,
    seeds: Seeds, device: str,
) -> Tensors:  # fmt: skip
    """The initial weights after the clients' own steps, learning rate and batch size, with one math thread."""
    if not warm_up.epochs or not len(warm_up.rows):
        return initial
    rule = SGD(
        lr=local.lr, batch_size=local.batch_size, epochs=warm_up.epochs, momentum=local.momentum,
        weight_decay=local.weight_decay, drop_last=local.drop_last, merge_last=local.merge_last,
        **{one.name: getattr(local, one.name) for one in fields(Stepping)},
    )  # fmt: skip
    servers = replace(
        data, clients=("the server's samples",), train=Split.of([warm_up.rows]), test=Split.empty(1), validation=Split.empty(1)
    )
    with one_math_thread(), torch.random.fork_rng(devices=[]):
        place = torch.device(device)
        model = fresh_model().to(place)
        load_tensors(model, initial)
        Trainer(model, rule, task, servers, place, seeds).train(0, Hop(0, 0, 0), initial, {})
        return clone({name: tensor.cpu() for name, tensor in model_tensors(model).items()})
