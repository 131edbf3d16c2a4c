"""Whether compressing answers pays: one hop's update, squeezed as `[deploy] squeeze` does it, and the model itself.

    OMP_NUM_THREADS=1 python benchmarks/squeeze.py

A model is trained for five rounds of fedgsp on glyphs, then one client trains it once more. CPU seconds are those of squeezing
and of restoring; it pays where a link moves the bytes that are saved more slowly than that.
"""

from __future__ import annotations

import time

import torch

import fedgsp
from fedgsp.core.tensors import Wire, rounded
from fedgsp.engine.transports.flower.records import FLAT, pack, restore, squeeze

WIRES: tuple[Wire, ...] = ("float32", "bfloat16")


def main() -> None:
    print("| model | wire | what | MB | of it left | CPU s | pays below |\n| --- | --- | --- | --- | --- | --- | --- |")
    for model in ("small_cnn", "leaf_cnn"):
        five = fedgsp.train("fedgsp", "glyphs:clients=8", model, rounds=5, seed=0, workers=0)
        before = five.state.model
        one = fedgsp.train("fedavg", "glyphs:clients=1", five.model(), rounds=1, seed=0, workers=0).state.model
        for wire in WIRES:
            handed, after = (pack(rounded(tensors, wire), wire) for tensors in (before, one))
            nothing = pack({name: torch.zeros_like(tensor) for name, tensor in before.items()}, wire)
            for what, against in (("an update", handed), ("a model", nothing)):
                begun = time.process_time()
                squeezed = squeeze(after, against, wire)
                restored = restore(squeezed, against, wire, "it")
                spent = time.process_time() - begun
                size, left = len(after[FLAT].data), len(squeezed[FLAT].data)
                assert restored[FLAT].data == after[FLAT].data
                pays = 8 * (size - left) / spent / 1e6
                row = f"{size / 1e6:.2f} | {left / size:.0%} | {spent:.3f} | {pays:.0f} Mbit/s"
                print(f"| {model} | {wire} | {what} | {row} |", flush=True)


if __name__ == "__main__":
    main()
