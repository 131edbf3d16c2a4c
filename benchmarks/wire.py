"""What two bytes on the wire cost in accuracy: the same run with models rounded at every hop as a deployment rounds them.

python benchmarks/wire.py
"""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

from fedgsp.methods import named
from fedgsp.run.build import RunBuilder
from fedgsp.run.config import DataSection, ModelSection, RunConfig, RunSection
from fedgsp.run.lifecycle import start

ROUNDS, SEEDS = 15, 5


def main() -> None:
    method = named("fedgsp")
    for wire in ("float32", "float16", "bfloat16"):
        found, traffic = [], 0.0
        for seed in range(SEEDS):
            options = RunSection(rounds=ROUNDS, seed=seed, workers=0, eval_every=ROUNDS)
            run = RunBuilder().build(RunConfig(options, DataSection("glyphs:clients=40"), ModelSection("small_cnn"), method))
            last = start(replace(run, worker_setup=replace(run.worker_setup, wire=wire)), None).history[-1]
            found.append(last["accuracy"])
            traffic = last["bytes_total"] / 1e6
        print(f"{wire}: accuracy {fmean(found):.4f} ({min(found):.4f} to {max(found):.4f}), {traffic:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
