"""From a configuration to a `Run`: data, model, task and method, all checked before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fedgsp.client.batching import Batching
from fedgsp.client.kernel_check import KernelCheck
from fedgsp.client.kernel_choice import choose
from fedgsp.client.rules import trained as trained_in
from fedgsp.core.errors import InputError, blamed, where_defined
from fedgsp.core.machine import cores
from fedgsp.core.seeds import Seeds
from fedgsp.core.state import ServerState, Setting
from fedgsp.core.tensors import clone
from fedgsp.data import FederatedData, load
from fedgsp.data.batches import gather
from fedgsp.data.cache import Progress, silent
from fedgsp.data.outline import DataOutline, stand_in
from fedgsp.engine.base import WorkerSetup
from fedgsp.engine.transports.ray.settings import parse_resources
from fedgsp.models import ModelSpec, Task, initial_tensors, resolve, usual_task
from fedgsp.models.catalog import load_initial
from fedgsp.models.state import model_tensors
from fedgsp.prepare import Once, Prepared
from fedgsp.prepare.warm_up import warmed_up
from fedgsp.run.accounting import check_private, privacy_notes
from fedgsp.run.checks import (
    batch_notes,
    check_addends,
    check_bench,
    check_disk,
    check_memory,
    checked_device,
    live_model_bytes,
)
from fedgsp.run.config import RunConfig, read_config
from fedgsp.run.first_batch import check_model, check_task, try_local
from fedgsp.run.part_checks import begun, try_planner
from fedgsp.run.plan_notes import plan_notes
from fedgsp.run.run import Run
from fedgsp.run.trust import Trust

if TYPE_CHECKING:
    from fedgsp.core.tensors import Tensors
    from fedgsp.method import Method
    from fedgsp.server import Bench

IN_MEMORY = "memory"
"""What a configuration says of data that was given as an object and has no source text."""

Clients = NDArray[np.int64]


@dataclass(frozen=True)
class RunBuilder:
    """Makes a `Run` of a configuration and of objects given in Python, which take the place of what the configuration names.

    Attributes:
        data: The federation.
        model: The model, or what makes one.
        task: The loss and the metrics.
        method: The method.
        once: Preparations that were made already, for many runs on the same data.
        trust: Whether code that a file names may run.
    """

    data: FederatedData | None = None
    model: Callable[..., nn.Module] | nn.Module | None = None
    task: Task | None = None
    method: Method | None = None
    once: Once | None = None
    trust: Trust = False

    def read(self, path: Path) -> RunConfig:
        """The configuration in a file; code that it names must be trusted, but where an object takes its place."""
        given = frozenset(name for name in ("data", "model", "method") if getattr(self, name) is not None)
        return read_config(path, self.method, trust=self.trust, unread=given)

    @blamed("setting the run up", InputError)
    def build(self, config: RunConfig, *, progress: Progress = silent, kernel: str | None = None) -> Run:
        """Resolve and check a configuration.

        Args:
            config: What is to be run.
            progress: Hears of data that must be converted first.
            kernel: The fast path that the run was begun with, where it goes on.

        Returns:
            The run. Nothing is written yet.

        Raises:
            InputError: Something cannot be had, or makes no sense together.
        """
        if self.method is not None:
            config = replace(config, method=self.method)
        data = self._federation(config, progress)
        evaluated, held_out = _split(config, data)
        participants = _with_training_samples(data, evaluated)
        task, device = self._checked_task(config.method, data), _device(config)
        spec = _resolved(config.model.name if self.model is None else self.model, data)
        prepared = self._prepared(config, data, participants)
        evaluated = np.setdiff1d(evaluated, prepared.set_aside)
        at_server = np.asarray(prepared.at_server, dtype=np.int64)
        participants = np.concatenate([np.setdiff1d(participants, prepared.set_aside), at_server])

        local, seeds = config.method.local, Seeds(config.run.seed)
        setup = WorkerSetup(spec, local, task, prepared.data, seeds, device, at_server=frozenset(prepared.at_server))
        initial = initial_tensors(spec, seeds.init(), setup.wrap_model)
        if config.model.init is not None:
            initial = load_initial(config.model.init, initial)
        scratch = check_model(setup)
        try_planner(config.method.planner, setup, participants, config.run.rounds)
        if prepared.warm_up is not None:
            fresh = setup.fresh_model
            initial = warmed_up(prepared.warm_up, initial, fresh, local, task, prepared.data, seeds, device)
        state = _initial_state(config, setup, scratch, initial, participants)
        try_local(setup, initial, state.shared)
        setup = _with_kernel(setup, config, scratch, state, kernel)

        config = replace(config, model=replace(config.model, name=spec.name))
        check_addends(config, len(participants))
        check_disk(config, initial, len(participants))
        check_memory(live_model_bytes(config, initial, len(participants)))
        bench = _bench(setup, prepared) if len(prepared.server_rows) else None
        check_bench(config.method, bench)
        check_private(config.method, lambda: bool(setup.beside_model()[1]))
        notes = (
            *prepared.notes, *_notes(config, data, participants, evaluated), *batch_notes(setup, scratch),
            *_held_out_notes(config.method, held_out), *privacy_notes(config, len(participants)),
        )  # fmt: skip
        return Run(
            config, data, participants, evaluated, held_out, setup, initial, state, notes, prepared.bytes, bench
        )  # fmt: skip

    def _federation(self, config: RunConfig, progress: Progress) -> FederatedData:
        """All samples, the validation part carved out."""
        data = _loaded(config, progress) if self.data is None else self.data
        if not config.data.validation:
            return data
        return replace(data.with_validation(config.data.validation, config.data.seed), source=data.source)

    def _checked_task(self, method: Method, data: FederatedData) -> Task:
        """The task, which must have what the method's clients report."""
        task = usual_task(data.classes, data.target_shape) if self.task is None else self.task
        check_task(task)
        method.check()
        if "accuracy" in method.local.reports() and "accuracy" not in task.metrics:
            raise InputError(f"clients cannot report their training accuracy: the task '{task.name}' has no such metric.")
        return task

    def _prepared(self, config: RunConfig, data: FederatedData, participants: Clients) -> Prepared:
        preparation = config.method.preparation
        if preparation is None:
            return Prepared(data)
        prepared = (self.once or Once()).prepare(preparation, data, participants, config.data.seed)
        if not isinstance(prepared, Prepared):
            raise InputError(f"the preparation {where_defined(preparation)} gave {type(prepared).__name__}, not a Prepared.")
        return prepared


def _resolved(model: str | Callable[..., nn.Module] | nn.Module, data: FederatedData) -> ModelSpec:
    return resolve(model, data.sample_shape, data.classes, data.target_shape, data.count_tokens, data.padding)


def _loaded(config: RunConfig, progress: Progress) -> FederatedData:
    if config.data.source == IN_MEMORY:
        raise InputError("this run was started in Python on data in memory; give it again: fedgsp.resume(directory, data=...).")
    data = load(config.data.source, data_seed=config.data.seed, clients=config.data.clients, progress=progress)
    return replace(data, source=config.data.source)


def _split(config: RunConfig, data: FederatedData) -> tuple[Clients, Clients]:
    """Clients that may train, and those that never do."""
    held_out = config.run.holdout_clients
    if held_out >= len(data):
        raise InputError(
            f"too few clients: {len(data)} in the data, {held_out} to be held out; at least one must be left to train."
        )
    return data.holdout(held_out, config.data.seed)


def _with_training_samples(data: FederatedData, clients: Clients) -> Clients:
    found = clients[data.train.sizes[clients] > 0]
    if len(found) == 0:
        raise InputError("too few samples: no client has a training sample.")
    return found


def _device(config: RunConfig) -> str:
    parse_resources(config.engine.resources)
    only_elsewhere = config.engine.name == "ray" and config.method.preparation is None  # else something is trained here too
    return checked_device(config.run.device, only_elsewhere)


def _bench(setup: WorkerSetup, prepared: Prepared) -> Bench:
    """The server's own samples, to train on."""
    from fedgsp.engine.server_gradient import ServerGradient

    return ServerGradient(setup, prepared.server_rows)


def _initial_state(
    config: RunConfig, setup: WorkerSetup, scratch: nn.Module, initial: Tensors, participants: Clients
) -> ServerState:  # fmt: skip
    """The server rule's state before round 1."""
    trained, clients = frozenset(trained_in(scratch)), len(participants)
    samples = int(setup.data.train.counted[participants].sum())
    setting = Setting(clients, setup.data.classes, trained, *_how_clients_train(config, clients), samples, config.run.seed)
    return replace(begun(config.method.server, initial, setting), trained=trained)


def _how_clients_train(config: RunConfig, clients: int) -> tuple[bool, bool]:
    """Whether every chain has one client, and whether besides every client trains in every round."""
    rounds = config.run.rounds
    shapes = [config.method.planner.schedule(r, clients) for r in {1, (rounds + 1) // 2, rounds}]
    alone = all(shape.longest == 1 and shape.passes == 1 for shape in shapes)
    return alone, alone and all(shape.trained == clients for shape in shapes)


def _with_kernel(
    setup: WorkerSetup, config: RunConfig, scratch: nn.Module, state: ServerState, recorded: str | None
) -> WorkerSetup:
    """The worker setup with how its steps are made: decided here once, for all processes."""
    start = next(iter(state.models.values()), None)
    if start is None:
        start = clone(model_tensors(scratch))
    samples = stand_in(setup.data) if isinstance(setup.data, DataOutline) else setup.data
    check = KernelCheck.of(scratch, setup.rule, setup.task, samples, setup.seeds, start, state.shared)
    workers = config.run.workers if isinstance(config.run.workers, int) else cores()
    example, _ = gather(samples, check.data.train.rows[:1])
    largest = Batching.of(setup.rule, scratch, example).largest(int(setup.data.train.sizes.max()))
    kernel = choose(
        config.run.fast, check, largest_batch=largest, workers=workers, device=setup.device, recorded=recorded
    )  # fmt: skip
    return replace(setup, kernel=kernel)


def _notes(config: RunConfig, data: FederatedData, participants: Clients, evaluated: Clients) -> tuple[str, ...]:
    notes = list(data.notes)
    idle = int((data.train.sizes[evaluated] == 0).sum())
    if idle:
        notes.append(f"{idle} client(s) have no training samples: they never train, and are only evaluated.")
    notes.extend(plan_notes(config.method.planner, config.run.rounds, len(participants)))
    if data.test.sizes[evaluated].sum() == 0:
        notes.append("no client has a test sample, so nothing can be evaluated.")
    return tuple(notes)


def _held_out_notes(method: Method, held_out: Clients) -> tuple[str, ...]:
    if method.yields != "none" or not len(held_out):
        return ()
    return (f"the {len(held_out)} clients held out have no model, since there is no global one: they are not evaluated.",)
