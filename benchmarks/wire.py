"""What two bytes on the wire cost in accuracy: the same run with models rounded at every hop as a deployment rounds them.

python benchmarks/wire.py
"""

from __future__ import annotations

from dataclasses import replace

from fedgsp.methods import named
from fedgsp.run.config import DataSection, ModelSection, RunConfig, RunSection
from fedgsp.run.drive import Objects, start

ROUNDS = 15


def main() -> None:
    run = RunSection(rounds=ROUNDS, workers=0, eval_every=ROUNDS)
    config = RunConfig(run, DataSection("glyphs:clients=40"), ModelSection("small_cnn"), named("fedgsp"))
    for wire in ("float32", "float16", "bfloat16"):
        setup = Objects().prepare(config)
        result = start(replace(setup, job=replace(setup.job, wire=wire)), None)
        last = result.journal[-1]
        print(f"{wire}: accuracy {last['accuracy']:.4f}, {last['bytes_total'] / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
