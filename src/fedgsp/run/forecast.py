"""What a run will take, before it is started: from the analytic schedule and a few timed steps of a scratch model."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedgsp.client.batching import Batching
from fedgsp.client.train import Trainer
from fedgsp.core.chain import Stop
from fedgsp.core.tensors import total_bytes
from fedgsp.method import Method
from fedgsp.run.checks import live_model_bytes
from fedgsp.run.keeping import disk_bytes, state_bytes
from fedgsp.run.setup import Setup

PROCESS_BYTES = 330e6
"""Resident memory of a Python process with torch loaded, before any model or data."""
TIMED_STEPS = 30


@dataclass(frozen=True)
class Forecast:
    """A run's expected size. `schedule` has a row for every round at which the plan changes shape.

    `bytes` is the traffic, `beside_bytes` what of it goes beside the model in a visit, `hands_on` whether models are in it;
    `state_bytes` is what one client keeps between visits, `disk` the most that all of them take.
    """

    schedule: list[dict[str, int]]
    steps: int
    bytes: int
    model_bytes: int
    memory: float
    step_ms: float
    seconds: float
    workers: int
    notes: tuple[str, ...] = ()
    beside_bytes: int = 0
    state_bytes: int = 0
    disk: int = 0
    hands_on: bool = True

    def as_dict(self) -> dict[str, Any]:
        """For --json."""
        return asdict(self)


def forecast(setup: Setup) -> Forecast:
    """Expect a run: every client of average size, every planned client present."""
    planner, rounds, clients = setup.config.method.planner, setup.config.run.rounds, len(setup.roster)
    rows = [planner.schedule(r, clients) for r in range(1, rounds + 1)]
    shapes: list[dict[str, int]] = []
    for row in rows:
        shape = {key: value for key, value in asdict(row).items() if isinstance(value, int)}
        if not shapes or any(shapes[-1].get(key) != shape[key] for key in ("groups", "sampled", "shortest", "longest")):
            shapes.append(shape)
    rule = setup.config.method.local
    visits = sum(row.trained * row.passes for row in rows)
    model_bytes = total_bytes(setup.initial)
    beside = total_bytes(setup.first.shared) + total_bytes(setup.job.beside_model()[1])
    step_seconds = timed_step(setup)
    workers = max(1, setup.workers())
    steps = expected_steps(setup.config.method, rounds, setup.job.data.train.sizes[setup.roster])
    evaluation = rounds // setup.config.run.eval_every * len(setup.data.test.rows) / rule.batch_size / 3
    data_bytes = setup.job.data.features.nbytes + setup.job.data.labels.nbytes
    processes = workers + (1 if setup.workers() else 0)
    live = live_model_bytes(setup.config, setup.initial, clients)
    memory = processes * PROCESS_BYTES + model_bytes * (workers * 5 + 5) + data_bytes + live
    sent = 2 * model_bytes * rule.hands_on + beside
    at_server = rounds * len(setup.job.at_server)  # the server's own samples train every round, and nothing is sent for it
    traffic = (visits - at_server) * sent + setup.prepared_bytes
    return Forecast(
        shapes, steps, traffic, model_bytes, memory, step_seconds * 1000, (steps + evaluation) * step_seconds / workers,
        workers, setup.notes, beside, state_bytes(setup), disk_bytes(setup), rule.hands_on,
    )  # fmt: skip


def expected_steps(method: Method, rounds: int, sizes: NDArray[np.int64]) -> int:
    """SGD steps of a run on clients of these sizes (those that train), each as often as one of average size."""
    rule = method.local
    per_visit = float(np.mean(Batching(rule.batch_size, rule.drop_last, bool(rule.merge_last)).steps(sizes))) * rule.epochs
    rows = (method.planner.schedule(r, len(sizes)) for r in range(1, rounds + 1))
    return round(sum(row.trained * row.passes for row in rows) * per_visit)


def timed_step(setup: Setup) -> float:
    """Seconds per SGD step of a scratch model, one thread; the run's own model is not touched."""
    job = setup.job
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            device = torch.device(job.device)
            rule = replace(job.rule, lr=1e-9)  # timed, not trained: it must not diverge
            trainer = Trainer(job.fresh_model().to(device), rule, job.task, job.data, device, job.seeds, job.kernel)
            stop = Stop(0, _typical_client(setup), 0)
            trainer.visit(1, stop, setup.initial, setup.first.shared)  # warms up
            steps, began = 0, time.perf_counter()
            while steps < TIMED_STEPS:
                steps += trainer.visit(1, stop, setup.initial, setup.first.shared).steps
            return (time.perf_counter() - began) / steps
    finally:
        torch.set_num_threads(threads)


def _typical_client(setup: Setup) -> int:
    """The client of median size among those that train."""
    by_size = np.argsort(setup.job.data.train.sizes[setup.roster], kind="stable")
    return int(setup.roster[by_size[len(by_size) // 2]])
