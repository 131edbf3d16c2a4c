"""What does privacy cost grouping? CPD of groups formed on noised counts, by epsilon, on real writers.

python benchmarks/grouping_privacy.py --data npz:femnist.npz:federation=femnist-368 --groups 50 --plot privacy.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from fedgsp.data.sources import load
from fedgsp.plan import ICG, Balanced, Grouper, Random, group_sums, private_counts, summarise_pairs

EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
DELTA = 1e-5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--groups", type=int, nargs="+", default=[10, 50])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    counts = np.asarray(load(options.data).profiles().counts, dtype=np.int64)
    base = summarise_pairs(counts).median

    def ratio(grouper: Grouper, groups: int, epsilon: float | None, delta: float) -> float:
        """The median over seeds of the median CPD over pairs of groups, as a share of that over pairs of clients."""
        found = []
        for seed in range(options.seeds):
            rng = np.random.default_rng(seed)
            seen = counts if epsilon is None else private_counts(counts, epsilon, delta, rng)
            found.append(summarise_pairs(group_sums(counts, grouper.assign(seen, groups, rng), groups)).median / base)
        return float(np.median(found))

    curves = {}
    for groups in options.groups:
        print(f"\n{groups} groups; without noise: random {ratio(Random(), groups, None, 0):.6f}")
        print(f"{'epsilon':>9}" + "".join(f"{e:>9g}" for e in EPSILONS) + f"{'none':>9}")
        for name, grouper, delta in (
            ("balanced", Balanced(), 0.0),
            ("balanced, gauss", Balanced(), DELTA),
            ("icg", ICG(), 0.0),
        ):
            values = [ratio(grouper, groups, e, delta) for e in (*EPSILONS, None)]
            curves[groups, name] = values
            print(f"{name:<16}" + "".join(f"{value:>9.5f}" for value in values), flush=True)
    if options.plot:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5 * len(options.groups), 3.6), layout="constrained")
        for axes, groups in zip(np.atleast_1d(figure.subplots(1, len(options.groups))), options.groups, strict=True):
            for (own, name), values in curves.items():
                if own == groups:
                    line = axes.loglog(EPSILONS, values[:-1], "o-", label=name)[0]
                    axes.axhline(values[-1], color=line.get_color(), linestyle=":", linewidth=1)
            axes.axhline(ratio(Random(), groups, None, 0), color="gray", linewidth=1, label="random")
            axes.set(xlabel="epsilon (dotted: no noise)", ylabel="CPD of groups / of clients", title=f"{groups} groups")
            axes.legend(fontsize="small")
            axes.grid(alpha=0.3)
        figure.savefig(options.plot, dpi=80)


if __name__ == "__main__":
    main()
