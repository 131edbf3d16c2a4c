"""What a run will take, before it is started: from the analytic schedule and a few timed steps of a scratch model."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedgsp.client.batching import Batching
from fedgsp.client.train import Trainer
from fedgsp.core.chain import Hop
from fedgsp.core.tensors import total_bytes
from fedgsp.run.checks import live_model_bytes
from fedgsp.run.keeping import disk_bytes, state_bytes

if TYPE_CHECKING:
    from fedgsp.method import Method
    from fedgsp.run.run import Run

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


def forecast(run: Run) -> Forecast:
    """Expect a run: every client of average size, every planned client present."""
    planner, rounds, clients = run.config.method.planner, run.config.run.rounds, len(run.participants)
    rows = [planner.schedule(r, clients) for r in range(1, rounds + 1)]
    shapes: list[dict[str, int]] = []
    for row in rows:
        shape = {key: value for key, value in asdict(row).items() if isinstance(value, int)}
        if not shapes or any(shapes[-1].get(key) != shape[key] for key in ("groups", "sampled", "shortest", "longest")):
            shapes.append(shape)
    rule = run.config.method.local
    visits = sum(row.trained * row.passes for row in rows)
    model_bytes = total_bytes(run.initial_model)
    beside = total_bytes(run.initial_state.shared) + total_bytes(run.worker_setup.beside_model()[1])
    step_seconds = timed_step(run)
    workers = max(1, run.workers())
    steps = expected_steps(run.config.method, rounds, run.worker_setup.data.train.sizes[run.participants])
    evaluation = rounds // run.config.run.eval_every * len(run.data.test.rows) / rule.batch_size / 3
    data_bytes = run.worker_setup.data.features.nbytes + run.worker_setup.data.labels.nbytes
    processes = workers + (1 if run.workers() else 0)
    live = live_model_bytes(run.config, run.initial_model, clients)
    memory = processes * PROCESS_BYTES + model_bytes * (workers * 5 + 5) + data_bytes + live
    sent = 2 * model_bytes * rule.hands_on + beside
    at_server = rounds * len(run.worker_setup.at_server)  # the server's own samples train every round; nothing is sent
    traffic = (visits - at_server) * sent + run.prepared_bytes
    return Forecast(
        shapes, steps, traffic, model_bytes, memory, step_seconds * 1000, (steps + evaluation) * step_seconds / workers,
        workers, run.notes, beside, state_bytes(run), disk_bytes(run), rule.hands_on,
    )  # fmt: skip


def expected_steps(method: Method, rounds: int, sizes: NDArray[np.int64]) -> int:
    """SGD steps of a run on clients of these sizes (those that train), each as often as one of average size."""
    rule = method.local
    per_visit = float(np.mean(Batching(rule.batch_size, rule.drop_last, bool(rule.merge_last)).steps(sizes)))
    rows = (method.planner.schedule(r, len(sizes)) for r in range(1, rounds + 1))
    return round(sum(row.trained * row.passes * rule.epochs_in(row.round) for row in rows) * per_visit)


def timed_step(run: Run) -> float:
    """Seconds per SGD step of a scratch model, one thread; the run's own model is not touched."""
    job = run.worker_setup
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            device = torch.device(job.device)
            rule = replace(job.rule, lr=1e-9)  # timed, not trained: it must not diverge
            trainer = Trainer(job.fresh_model().to(device), rule, job.task, job.data, device, job.seeds, job.kernel)
            hop = Hop(0, _typical_client(run), 0)
            trainer.train(1, hop, run.initial_model, run.initial_state.shared)  # warms up
            steps, began = 0, time.perf_counter()
            while steps < TIMED_STEPS:
                steps += trainer.train(1, hop, run.initial_model, run.initial_state.shared).steps
            return (time.perf_counter() - began) / steps
    finally:
        torch.set_num_threads(threads)


def _typical_client(run: Run) -> int:
    """The client of median size among those that train."""
    by_size = np.argsort(run.worker_setup.data.train.sizes[run.participants], kind="stable")
    return int(run.participants[by_size[len(by_size) // 2]])
