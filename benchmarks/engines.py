"""What a hop costs beside training, by engine: in this process, a local worker, Ray, and Ray with divided samples.

    OMP_NUM_THREADS=1 python benchmarks/engines.py [--turns 5]

One client trains at a time, so a round's time less what the clients report as training is what the engine takes: handing
models over, adding results up, messages. All engines take turns in one run. Chains of one client are FedAvg's, on one worker;
one chain of all clients is the most that a model can be handed on, also between two workers that have half of the samples each.
What a hop costs on real clients through Flower measures benchmarks/hops.py.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from fedgsp.core.chain import Chain, Plan
from fedgsp.engine import Engine, EngineEvent, HopDone, InlineEngine, ProcessEngine, WorkerSetup
from fedgsp.engine.base import planned_samples
from fedgsp.engine.transports.ray.cluster import Cluster
from fedgsp.engine.transports.ray.settings import RaySettings
from fedgsp.engine.transports.ray.transport import RayEngine
from fedgsp.methods import named
from fedgsp.run.build import RunBuilder
from fedgsp.run.config import DataSection, ModelSection, RunConfig
from fedgsp.run.run import Run

CLIENTS = 24
DIVIDED = "Ray, samples divided among two workers"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    told = parser.parse_args()
    began = time.perf_counter()
    cluster = Cluster(RaySettings(workers=3))
    print(f"starting Ray: {time.perf_counter() - began:.1f} s")
    print("| model | chains | engine | ms a hop beside training | ms of training a hop |\n| --- | --- | --- | --- | --- |")
    for model, megabytes in (("small_cnn", 0.05), ("leaf_cnn", 26.4)):
        config = RunConfig(data=DataSection(f"glyphs:clients={CLIENTS}"), model=ModelSection(model), method=named("fedavg"))
        run = RunBuilder().build(config)
        shapes = {
            f"{CLIENTS} of one client": tuple(Chain((k,)) for k in range(CLIENTS)),
            "one of all": (Chain(tuple(range(CLIENTS))),),
        }
        with engines(run.worker_setup) as known:
            for shape, chains in shapes.items():
                serial = {name: engine for name, engine in known.items() if len(chains) == 1 or name != DIVIDED}
                costs: dict[str, list[tuple[float, float]]] = {name: [] for name in serial}
                for turn in range(told.turns + 1):  # the first is for starting and page faults
                    for name, engine in serial.items():
                        cost = one_round(engine, run, Plan(turn + 1, chains, len(chains)))
                        costs[name] += [cost] if turn else []
                for name, found in costs.items():
                    beside, training = (1000 * statistics.median(column) for column in zip(*found, strict=True))
                    print(f"| {model} ({megabytes} MB) | {shape} | {name} | {beside:.2f} | {training:.1f} |", flush=True)
    cluster.close()


@contextmanager
def engines(job: WorkerSetup) -> Iterator[dict[str, Engine]]:
    """All of them, ready."""
    known: dict[str, Engine] = {
        "this process": InlineEngine(job),
        "local worker": ProcessEngine(job, 1),
        "Ray, one worker": RayEngine(job, RaySettings(workers=1, data="store"), 1),
        DIVIDED: RayEngine(job, RaySettings(workers=2, data="shards"), 2),
    }
    yield known
    for engine in known.values():
        engine.close()


def one_round(engine: Engine, run: Run, plan: Plan) -> tuple[float, float]:
    """(seconds beside training, seconds of training) a hop."""
    trained: list[float] = []

    def listen(event: EngineEvent) -> None:
        if isinstance(event, HopDone):
            trained.append(event.report.seconds)

    update = run.server.start(run.initial_state, plan, planned_samples(plan, run.worker_setup.data))
    elsewhere = getattr(update, "elsewhere", None)
    began = time.perf_counter()
    for result in engine.run(plan, replace(run.initial_state), listen, None, None, elsewhere() if elsewhere else None):
        update.add(result)
    took = time.perf_counter() - began
    return (took - sum(trained)) / len(trained), sum(trained) / len(trained)


if __name__ == "__main__":
    main()
