"""The model, the task and a local rule that is not ours on one batch of the run's own data, before anything is written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch
from torch import nn

from fedgsp.client.context import GradientTerm, LocalContext
from fedgsp.client.kernel_choice import odd_labels
from fedgsp.client.rules import SGD, trained
from fedgsp.core.errors import InputError, ours, refusal, where_defined
from fedgsp.core.tensors import Tensors, clone, misfit
from fedgsp.data.batches import gather
from fedgsp.models import Task
from fedgsp.models.split import Level, halves_of
from fedgsp.models.state import load_tensors
from fedgsp.run.part_checks import asking

if TYPE_CHECKING:
    from fedgsp.engine.base import WorkerSetup

HOOKS = ("initial_client_state", "upload_spec", "looks_at", "loss_term", "objective", "gradient_term", "finish", "optimizer")
"""What gives something back: a rule that leaves all of these as they are in SGD need not be tried."""
MOST_ROWS = 64
"""Samples of the batch that a rule is tried on, at most."""


def check_task(task: Any) -> None:
    """A task with functions in it."""
    if not isinstance(task, Task):
        hint = "; call it" if callable(task) else ""
        raise InputError(f"the task is {where_defined(task)}, not a fedgsp.Task{hint}.")
    for name, function in (("loss", task.loss), *task.metrics.items()):
        if not callable(function):
            raise InputError(
                f"the task '{task.name}': {name} is {type(function).__name__}, not a function of outputs and targets."
            )


def check_model(job: WorkerSetup) -> nn.Module:
    """One forward pass of one batch, so that a model that does not fit the data is refused before anything starts.

    Returns a model that can be experimented with.
    """
    wrong = odd_labels(job.data) if job.task.name == "classification" else None
    if wrong is not None:
        raise InputError(f"{wrong}; number the classes from 0 on (from_arrays does).")
    x, y = _batch(job)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        model = job.fresh_model()
        model.eval()
        who = f"the model '{job.model.name}'" if ours(model) else f"the model '{job.model.name}', {where_defined(model)},"
        try:
            outputs: Any = model(x)
            if isinstance(outputs, torch.Tensor):
                losses: Any = job.task.loss(outputs, y)
        except Exception as error:
            shapes = f"samples of shape {job.data.sample_shape}, {job.data.classes or 'no'} classes"
            raise refusal(InputError, f"{who} does not fit the data ({shapes})", error) from error
        if not isinstance(outputs, torch.Tensor):
            raise InputError(
                f"{who} gives {type(outputs).__name__}, and not a tensor of outputs; pick the tensor in 'forward'."
            )
        _check_values(job.task, losses, len(y))
        if job.task.name == "classification" and tuple(outputs.shape) != (len(y), job.data.classes):
            raise InputError(
                f"{who} gives outputs of shape {tuple(outputs.shape[1:])} a sample; the data has {job.data.classes} classes."
            )
        if not outputs.requires_grad:
            raise InputError(
                f"{who} gives outputs ({str(outputs.dtype).removeprefix('torch.')}) that no gradient leads through to its "
                f"parameters, so nothing could be trained; leave out detach, no_grad, argmax and the like in 'forward'."
            )
        if not losses.requires_grad:
            raise InputError(f"{_loss(job.task)} cannot be differentiated: no gradient leads from it to the model's outputs.")
        _check_metrics(job.task, outputs.detach(), y)
    if job.rule.looks_at() == "features" and not isinstance(getattr(model, "between", None), nn.Module):
        halves_of(model, x[:1], f"the local rule {type(job.rule).__name__}")
    return model.train()


def try_local(job: WorkerSetup, initial: Tensors, shared: Tensors) -> None:
    """A visit of one batch with a local rule that is not ours, whose hooks are looked at one by one."""
    rule = job.rule
    if ours(rule) or all(getattr(type(rule), hook) is getattr(SGD, hook) for hook in HOOKS):
        return
    x, y = _batch(job, min(rule.batch_size, MOST_ROWS))
    with torch.random.fork_rng(devices=[]), torch.enable_grad(), asking("local rule", rule, "on its first batch", InputError):
        model = job.fresh_model()
        load_tensors(model, initial)
        model.train()
        _Visited(rule, model, job, initial, shared).check(x, y)


class _Visited:
    """One client's turn, hook by hook."""

    def __init__(self, rule: SGD, model: nn.Module, job: WorkerSetup, initial: Tensors, shared: Tensors) -> None:
        self._rule, self._model, client = rule, model, _largest(job)
        rows = job.data.train[client]
        self._ctx = LocalContext(
            model, job.task, 1, client, 0, rule.lr, torch.device("cpu"), initial, shared,
            batches=lambda: iter([gather(job.data, rows)]), wire=job.wire,
        )  # fmt: skip

    def check(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """In the order in which a client's turn goes."""
        rule, ctx = self._rule, self._ctx
        keeps, sends = (
            self._tensors("initial_client_state", rule.initial_client_state(self._model)),
            self._tensors("upload_spec", rule.upload_spec(self._model)),
        )
        level, reports = rule.looks_at(), rule.reports()
        if level not in get_args(Level):
            self._refuse("looks_at", f"{level!r}", f"one of {', '.join(map(repr, get_args(Level)))}")
        ctx.state = clone(keeps)
        rule.begin(ctx)
        self._check_pull(rule.gradient_term(ctx))
        if not isinstance(rule.optimizer(self._model, ctx.lr), torch.optim.Optimizer):
            self._refuse("optimizer", "something else", "a torch.optim.Optimizer")
        if level != "loss" and type(rule).objective is SGD.objective:
            term: Any = rule.loss_term(ctx, ctx.forward(level, x), y)
            if term is not None:
                self._check_scalar("loss_term", "", term, differentiable=True)
        found: Any = rule.objective(ctx, x, y)
        if not isinstance(found, tuple) or len(found) != 2:
            what = f"{len(found)} values" if isinstance(found, tuple) else f"one value ({_shape(found)})"
            self._refuse("objective", what, "two: what is minimised, and the plain loss that is reported")
        self._check_scalar("objective", "first", found[0], differentiable=True)
        self._check_scalar("objective", "second", found[1], differentiable=False)
        found[0].backward()
        rule.adjust(ctx)
        ctx.steps = 1
        self._check_end(rule.finish(ctx), reports, keeps, sends)

    def _check_end(self, metrics: Any, reports: Iterable[str], keeps: Tensors, sends: Tensors) -> None:
        if not isinstance(metrics, dict) or not all(isinstance(value, int | float) for value in metrics.values()):
            self._refuse("finish", _shape(metrics), "a dict of numbers by name; begin with super().finish(ctx)")
        missing = sorted(set(reports) - metrics.keys())
        if missing:
            self._refuse("finish", f"no '{missing[0]}'", "all that 'reports' names; begin with super().finish(ctx)")
        for name, hook, found, like in (
            ("state", "initial_client_state", self._ctx.state, keeps),
            ("sent", "upload_spec", self._ctx.sent, sends),
        ):
            wrong = misfit(found, like)
            if wrong is not None:
                wrong = wrong.replace("which the model has not", f"which '{hook}' has not").replace("the model", f"'{hook}'")
                raise InputError(f"{self._who}: ctx.{name} after 'finish' {wrong}; it must be like what '{hook}' gives.")

    def _check_pull(self, pull: Any) -> None:
        if pull is None:
            return
        if not isinstance(pull, GradientTerm):
            self._refuse("gradient_term", _shape(pull), "a fedgsp.client.GradientTerm, or None")
        for name, given in (("reference", pull.reference), ("drift", pull.drift)):
            if given is None:
                continue
            for key, own in trained(self._model).items():
                if key not in given or given[key].shape != own.shape:
                    self._refuse(
                        "gradient_term", f"a {name} that does not fit the parameter '{key}'", "a tensor for each parameter"
                    )

    def _check_scalar(self, hook: str, place: str, value: Any, differentiable: bool) -> None:
        which = f"{place} value ".lstrip() if place else ""
        if not isinstance(value, torch.Tensor) or value.numel() != 1:
            self._refuse(hook, f"{which}{_shape(value)}", "a mean over the batch, a tensor of one number")
        if differentiable and not value.requires_grad:
            self._refuse(
                hook,
                f"{which or 'something '}without a gradient",
                "one that leads to the model's parameters; leave out detach, item and no_grad",
            )

    def _tensors(self, hook: str, found: Any) -> Tensors:
        if not isinstance(found, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in found.values()):
            self._refuse(hook, _shape(found), "a dict of tensors by name")
        return dict(found)

    @property
    def _who(self) -> str:
        return f"the local rule {where_defined(self._rule)}"

    def _refuse(self, hook: str, gave: str, wanted: str) -> None:
        raise InputError(f"{self._who}: '{hook}' gave {gave}; it must give {wanted}.")


def _check_values(task: Task, losses: Any, samples: int) -> None:
    if not isinstance(losses, torch.Tensor) or tuple(losses.shape) != (samples,):
        shape = tuple(losses.shape) if isinstance(losses, torch.Tensor) else type(losses).__name__
        raise InputError(f"{_loss(task)} must give one value a sample, shape ({samples},), not {shape}.")


def _check_metrics(task: Task, outputs: torch.Tensor, y: torch.Tensor) -> None:
    for name, metric in task.metrics.items():
        who = f"the task's metric '{name}', {where_defined(metric)},"
        try:
            found: Any = metric(outputs, y)
        except Exception as error:
            raise refusal(InputError, f"{who} failed on the first batch", error) from error
        if not isinstance(found, torch.Tensor) or tuple(found.shape) != (len(y),):
            raise InputError(f"{who} must give one value a sample, shape ({len(y)},), not {_shape(found)}.")


def _loss(task: Task) -> str:
    return "the task's loss" if ours(task.loss) else f"the task's loss, {where_defined(task.loss)},"


def _largest(job: WorkerSetup) -> int:
    return int(np.argmax(job.data.train.sizes))


def _batch(job: WorkerSetup, rows: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    """Some samples of the client that has the most."""
    return gather(job.data, job.data.train[_largest(job)][:rows])


def _shape(value: Any) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
