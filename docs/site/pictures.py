"""The picture of chains in docs/ideas.md, from real plans.

python -m docs.site.pictures npz:femnist.npz:federation=femnist-368
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

import fedgsp
from fedgsp.core.seeds import Seeds
from fedgsp.report.colours import looks

ROUNDS = (1, 2, 4, 10, 50, 500)
IMAGES = Path(__file__).parents[1] / "images"


def chains(source: str) -> None:
    """FedGSP's chains round by round: a lane is a chain, a dot a client."""
    data, planner = fedgsp.load(source), fedgsp.named("fedgsp").planner
    figure, axes = plt.subplots(1, len(ROUNDS), figsize=(9, 3.9), width_ratios=[8, 4, 2.6, 1.6, 1.3, 1.3], sharey=True)
    for axis, round_ in zip(axes, ROUNDS, strict=True):
        plan = planner.plan(round_, data.profiles(), Seeds(0))
        for lane, chain in enumerate(plan.chains):
            axis.plot(range(len(chain.clients)), [lane] * len(chain.clients), ".-", color=COLOUR, markersize=4, linewidth=0.6)
        longest = max(len(chain.clients) for chain in plan.chains)
        axis.set_title(f"round {round_}\n{plan.groups} groups\n{len(plan.chains)} train", fontsize=8, loc="left")
        axis.set_xlim(-0.8, max(longest, 2) + 0.2)
        axis.axis("off")
    axes[0].invert_yaxis()
    figure.tight_layout()
    figure.savefig(IMAGES / "chains.svg", metadata={"Date": None})


COLOUR = looks(["fedgsp"])[0].colour

if __name__ == "__main__":
    chains(sys.argv[1])
