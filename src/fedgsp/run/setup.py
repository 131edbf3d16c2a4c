"""From a configuration to the things that run: data, model, task, method, all checked before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fedgsp.client.batching import Batching
from fedgsp.client.choice import choose
from fedgsp.client.keep import ClientStore
from fedgsp.client.proof import Trial
from fedgsp.client.rules import trained as trained_in
from fedgsp.core.blame import blamed
from fedgsp.core.errors import InputError
from fedgsp.core.machine import cores
from fedgsp.core.seeds import Seeds
from fedgsp.core.state import ServerState, Setting
from fedgsp.core.tensors import Tensors
from fedgsp.core.where import where_defined
from fedgsp.data import FederatedData, load
from fedgsp.data.batches import gather
from fedgsp.data.progress import Progress, silent
from fedgsp.engine import Engine, InlineEngine, Job, PoolEngine
from fedgsp.engine.bench import ServerBench
from fedgsp.engine.patience import Patience
from fedgsp.engine.ray.settings import RaySettings, parse_resources
from fedgsp.models import Task, classification, initial_tensors, regression, resolve
from fedgsp.models.catalog import load_initial
from fedgsp.prepare import Once, Prepared, warmed_up
from fedgsp.run.checks import (
    batch_notes,
    check_addends,
    check_bench,
    check_disk,
    check_memory,
    checked_device,
    live_model_bytes,
)
from fedgsp.run.config import RunConfig
from fedgsp.run.first_batch import check_model, check_task, try_local
from fedgsp.run.roster import Outline, made_up
from fedgsp.run.trial import begun, try_planner
from fedgsp.server import Bench, ServerRule

IN_MEMORY = "memory"
"""What a configuration says of data that was given as an object and has no source text."""


class Judge(Protocol):
    """Figures of a state, from somewhere else than the run's clients."""

    def figures(self, state: ServerState) -> dict[str, Any] | None:
        """An entry for the journal."""
        ...


@dataclass(frozen=True)
class Setup:
    """Everything a run needs, resolved. `notes` are things the user should be told (a capped schedule, say).

    `data` is the federation as it came and what a run is judged on; `job.data` is what clients train on, the same unless the
    method has a preparation, which sent `prepared_bytes` and may have set clients aside or added the server's own samples as
    one more. `roster` are the clients that train, `judged` those whose test samples count (the roster, and clients that have
    only such), `held_out` those that never train.
    `first` is the state before round 1; `bench` is what the server itself can train on, if a preparation gave it data;
    `central` judges every evaluated model on samples of the server's own, in a deployment that has such.
    """

    config: RunConfig
    data: FederatedData
    roster: NDArray[np.int64]
    judged: NDArray[np.int64]
    held_out: NDArray[np.int64]
    job: Job
    initial: Tensors
    first: ServerState
    notes: tuple[str, ...]
    prepared_bytes: int = 0
    bench: Bench | None = None
    central: Judge | None = None

    @property
    def server(self) -> ServerRule:
        """The method's server rule, with the server's own data at hand where there is such."""
        bind = getattr(self.config.method.server, "bind", None)
        bound: ServerRule = self.config.method.server if self.bench is None or bind is None else bind(self.bench)
        return bound

    @property
    def seeds(self) -> Seeds:
        """The run's randomness."""
        return self.job.seeds

    def workers(self) -> int:
        """How many worker processes: as told, or one a core, never more than could have a chain to walk."""
        wanted = self.config.run.workers
        if isinstance(wanted, int):
            return wanted
        return max(1, min(cores(), self._most_chains()))

    def _most_chains(self) -> int:
        rounds, planner = self.config.run.rounds, self.config.method.planner
        return max(planner.schedule(r, len(self.roster)).sampled for r in {1, (rounds + 1) // 2, rounds})

    def engine(self, store: ClientStore | None = None) -> Engine:
        """Start the engine; `store` is where clients keep their states, for rules that have such."""
        workers, job = self.workers(), replace(self.job, store=store)
        patience = Patience(self.config.engine.hop_seconds)
        if self.config.engine.name == "ray":
            from fedgsp.engine.ray.engine import RayEngine

            return RayEngine(job, self._ray(), self._most_chains(), patience)
        return InlineEngine(job) if workers == 0 else PoolEngine(job, workers, patience)

    def reached(self) -> AbstractContextManager[object]:
        """Where the run is to take place: for a cluster, a connection to it, or a sentence why there is none."""
        if self.config.engine.name != "ray":
            return nullcontext()
        from fedgsp.engine.ray.cluster import Cluster

        return closing(Cluster(self._ray()))

    def _ray(self) -> RaySettings:
        told, wanted = self.config.engine, self.config.run.workers
        workers = wanted if isinstance(wanted, int) else None
        return RaySettings(told.address, parse_resources(told.resources), workers, told.data)


@blamed("setting the run up", InputError)
def prepare(
    config: RunConfig,
    *,
    data: FederatedData | None = None,
    model: Callable[..., nn.Module] | nn.Module | None = None,
    task: Task | None = None,
    once: Once | None = None,
    progress: Progress = silent,
    kernel: str | None = None,
) -> Setup:
    """Resolve and check a configuration; objects given in Python take the place of what it names.

    With `once`, a preparation that it made already is not made again. `kernel` names the one that a run was begun with.
    """
    federation = _loaded(config, progress) if data is None else data
    if config.data.validation:
        carved = federation.with_validation(config.data.validation, config.data.seed)
        federation = replace(carved, source=federation.source)
    if config.run.holdout_clients >= len(federation):
        raise InputError(
            f"too few clients: {len(federation)} in the data, {config.run.holdout_clients} to be held out; "
            f"at least one must be left to train."
        )
    judged, held_out = federation.holdout(config.run.holdout_clients, config.data.seed)
    roster = judged[federation.train.sizes[judged] > 0]
    if len(roster) == 0:
        raise InputError("too few samples: no client has a training sample.")
    parse_resources(config.engine.resources)
    only_elsewhere = config.engine.name == "ray" and config.method.preparation is None  # else something is trained here too
    device = checked_device(config.run.device, only_elsewhere)
    chosen_task = (classification() if federation.classes else regression()) if task is None else task
    check_task(chosen_task)
    spec = resolve(config.model.name if model is None else model, federation.sample_shape, federation.classes)
    method = config.method
    method.check()
    if "accuracy" in method.local.reports() and "accuracy" not in chosen_task.metrics:
        raise InputError(f"clients cannot report their training accuracy: the task '{chosen_task.name}' has no such metric.")
    prepared = Prepared(federation)
    if method.preparation is not None:
        prepared = (once or Once()).prepare(method.preparation, federation, roster, config.data.seed)
        if not isinstance(prepared, Prepared):
            raise InputError(
                f"the preparation {where_defined(method.preparation)} gave {type(prepared).__name__}, not a Prepared."
            )
    roster = np.concatenate([np.setdiff1d(roster, prepared.set_aside), np.asarray(prepared.at_server, dtype=np.int64)])
    judged = np.setdiff1d(judged, prepared.set_aside)
    seeds = Seeds(config.run.seed)
    job = Job(spec, method.local, chosen_task, prepared.data, seeds, device, at_server=frozenset(prepared.at_server))
    initial = initial_tensors(spec, seeds.init(), job.equip)
    if config.model.init is not None:
        initial = load_initial(config.model.init, initial)
    scratch = check_model(job)
    trained = frozenset(trained_in(scratch))
    try_planner(method.planner, job, roster, config.run.rounds)
    if prepared.warm_up is not None:
        initial = warmed_up(
            prepared.warm_up, initial, job.fresh_model, method.local, chosen_task, prepared.data, seeds, device
        )  # fmt: skip
    samples = int(prepared.data.train.sizes[roster].sum())
    setting = Setting(len(roster), federation.classes, trained, *_how_clients_train(config, len(roster)), samples)
    first = replace(begun(method.server, initial, setting), trained=trained)
    try_local(job, initial, first.shared)
    job = _with_kernel(job, config, scratch, first, kernel)
    resolved = replace(config, model=replace(config.model, name=spec.name))
    check_addends(resolved, len(roster))
    check_disk(resolved, initial, len(roster))
    check_memory(live_model_bytes(resolved, initial, len(roster)))
    bench = ServerBench(job, prepared.server_rows) if len(prepared.server_rows) else None
    check_bench(method, bench)
    notes = (*prepared.notes, *_notes(resolved, federation, roster, judged), *batch_notes(job, scratch))
    if method.yields == "none" and len(held_out):
        notes += (f"the {len(held_out)} clients held out have no model, since there is no global one: they are not judged.",)
    return Setup(resolved, federation, roster, judged, held_out, job, initial, first, notes, prepared.bytes, bench)


def _loaded(config: RunConfig, progress: Progress) -> FederatedData:
    if config.data.source == IN_MEMORY:
        raise InputError("this run was started in Python on data in memory; give it again: fedgsp.resume(directory, data=...).")
    data = load(config.data.source, data_seed=config.data.seed, clients=config.data.clients, progress=progress)
    return replace(data, source=config.data.source)


def _how_clients_train(config: RunConfig, clients: int) -> tuple[bool, bool]:
    """Whether every chain has one client, and whether besides every client trains in every round."""
    rounds = config.run.rounds
    shapes = [config.method.planner.schedule(r, clients) for r in {1, (rounds + 1) // 2, rounds}]
    alone = all(shape.longest == 1 and shape.passes == 1 for shape in shapes)
    return alone, alone and all(shape.trained == clients for shape in shapes)


def _with_kernel(job: Job, config: RunConfig, scratch: nn.Module, first: ServerState, recorded: str | None) -> Job:
    """The job with how its steps are made: decided here once, for all processes."""
    start = next(iter(first.models.values()), None)
    if start is None:
        start = {name: tensor.clone() for name, tensor in scratch.state_dict().items()}
    samples = made_up(job.data) if isinstance(job.data, Outline) else job.data
    trial = Trial.of(scratch, job.rule, job.task, samples, job.seeds, start, first.shared)
    workers = config.run.workers if isinstance(config.run.workers, int) else cores()
    example, _ = gather(samples, trial.data.train.rows[:1])
    largest = Batching.of(job.rule, scratch, example).largest(int(job.data.train.sizes.max()))
    kernel = choose(
        config.run.fast, trial, largest_batch=largest, workers=workers, device=job.device, recorded=recorded
    )  # fmt: skip
    return replace(job, kernel=kernel)


def _notes(
    config: RunConfig, data: FederatedData, roster: NDArray[np.int64], judged: NDArray[np.int64]
) -> tuple[str, ...]:  # fmt: skip
    notes = []
    idle = int((data.train.sizes[judged] == 0).sum())
    if idle:
        notes.append(f"{idle} client(s) have no training samples: they never train, and are only judged.")
    last = config.method.planner.schedule(config.run.rounds, len(roster))
    if last.capped:
        notes.append(
            f"the growth function asks for {last.wanted} groups by round {config.run.rounds}, but {len(roster)} clients train: "
            f"it is capped at {last.groups}, one client a group."
        )
    if data.test.sizes[judged].sum() == 0:
        notes.append("no client has a test sample, so nothing can be evaluated.")
    return tuple(notes)
