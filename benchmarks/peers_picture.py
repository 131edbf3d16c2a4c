"""Draws the comparison with other simulators from the tables of docs/performance.md, so that picture and page cannot differ.

python benchmarks/peers_picture.py docs/performance.md docs/images/peers
"""

from __future__ import annotations

import sys
from pathlib import Path

TITLES = {
    "## A FedAvg round": "leaf_cnn, 16 clients of 100 images",
    "## A thousand tiny": "1,000 tiny clients, logistic regression",
}


def rows(text: str, heading: str) -> list[tuple[str, float]]:
    """(contestant, CPU seconds a round) of the tables under a heading, the last figure of each who could be run."""
    section = text.split(heading, 1)[1].split("\n## ", 1)[0]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("|")]
    found = {row[0]: float(row[1].split()[0]) for row in cells if row[1][:1].isdigit()}
    return sorted(found.items(), key=lambda one: one[1])


def main(page: str, place: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    text = Path(page).read_text()
    figure, panels = pyplot.subplots(1, len(TITLES), figsize=(11, 3.8))
    for axes, (heading, title) in zip(panels, TITLES.items(), strict=True):
        found = rows(text, heading)[::-1]
        colours = ["#D55E00" if who.startswith("fedgsp") else "#0072B2" for who, _ in found]
        axes.barh([who for who, _ in found], [cpu for _, cpu in found], color=colours)
        *_, second, largest = sorted(cpu for _, cpu in found)
        edge = 1.2 * (largest if largest < 5 * second else second)
        for at, (_, cpu) in enumerate(found):
            inside = cpu <= edge
            where, side = (cpu, "left") if inside else (edge, "right")
            axes.text(where, at, f" {cpu:.3g} " + ("" if inside else ">> "), va="center", ha=side, fontsize=8)
        axes.set_xlim(0, edge)
        axes.set_xlabel("CPU seconds a round, whole process tree")
        axes.set_title(title, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    for ending in (".png", ".svg"):
        figure.savefig(Path(place).with_suffix(ending), dpi=110)


if __name__ == "__main__":
    main(*sys.argv[1:])
