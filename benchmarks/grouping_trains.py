"""Does better grouping train better? FedGSP with Balanced, ICG and random groups, same seeds, the rest equal.

    python benchmarks/grouping_trains.py --data npz:femnist.npz:federation=femnist-368 --out runs/grouping-trains

Every unit (method, seed) is a run directory below --out: stop the script whenever you like and give the same command to go
on. It prints the accuracy over rounds and, at the end, paired differences over the seeds with 95 % intervals (Student's t).
`--plot FILE` draws the curves.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

import fedgsp

METHODS = {"balanced": "fedgsp-balanced", "icg": "fedgsp", "random": "stp-random"}
Curves = dict[str, NDArray[np.float64]]


def unit(out: Path, method: str, seed: int, data: str, rounds: int, every: int) -> dict[int, float]:
    """Accuracy (LEAF-weighted) by round of one run, which is begun, gone on with, or only looked up."""
    directory = out / f"{method}-{seed}"
    if (directory / "config.toml").exists():
        result = fedgsp.resume(directory, workers=1)
    else:
        result = fedgsp.train(method, data, "small_cnn", rounds=rounds, seed=seed, out=directory, workers=1, eval_every=every)
    return {row["round"]: row["accuracy"] for row in result.history if "accuracy" in row}


def interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Mean and half-width of its 95 % interval."""
    half = student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean()), float(half)


def draw(path: Path, rounds: list[int], curves: Curves) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    for name, values in curves.items():
        middle, half = np.array([interval(column) for column in values.T]).T
        axes.plot(rounds, middle, label=name)
        axes.fill_between(rounds, middle - half, middle + half, alpha=0.2)
    axes.set(xlabel="round", ylabel="test accuracy", title=f"FedGSP by grouping, {len(values)} seeds, mean and 95 % interval")
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=80)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--every", type=int, default=2)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    found: dict[str, list[dict[int, float]]] = {name: [] for name in METHODS}
    for seed in range(options.seeds):
        for name, method in METHODS.items():
            found[name].append(unit(options.out, method, seed, options.data, options.rounds, options.every))
            last = found[name][-1]
            print(f"seed {seed} {name:<9} accuracy {last[max(last)]:.4f} after {max(last)} rounds", flush=True)
    rounds = sorted(found["icg"][0])
    curves = {name: np.array([[run[r] for r in rounds] for run in runs]) for name, runs in found.items()}
    print(f"\n{'round':>6}" + "".join(f"{name:>20}" for name in METHODS))
    for at, round_ in enumerate(rounds):
        cells = (interval(values[:, at]) for values in curves.values())
        print(f"{round_:>6}" + "".join(f"{mean:.4f} +-{half:.4f}".rjust(20) for mean, half in cells))
    print(f"\npaired differences of accuracy over {options.seeds} seeds, mean and 95 % interval")
    for what, part in (("last evaluation", slice(-1, None)), ("mean of all evaluations", slice(None))):
        for first, second in (("balanced", "icg"), ("balanced", "random"), ("icg", "random")):
            mean, half = interval((curves[first] - curves[second])[:, part].mean(axis=1))
            print(f"{what:<24} {first} - {second:<8} {100 * mean:+.2f} +- {100 * half:.2f} points")
    if options.plot:
        draw(options.plot, rounds, curves)


if __name__ == "__main__":
    main()
