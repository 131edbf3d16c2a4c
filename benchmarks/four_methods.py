"""The paper's four methods side by side: accuracy against rounds and against serial SGD steps.

    D=npz:../shared/femnist/femnist.npz:federation=femnist-368
    python benchmarks/four_methods.py --data $D --model leaf_cnn --rounds 3
    python benchmarks/four_methods.py --rounds 60 --picture docs/images/four-methods.png

Runs are directories under --out: an interrupted comparison goes on where it was, a finished one is only read.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import fedgsp
from fedgsp.report.colours import looks

METHODS = ("fedavg", "naive-gsp", "naive-gsp-icg", "fedgsp")


def run(method: str, place: Path, arguments: argparse.Namespace) -> list[dict[str, float]]:
    if (place / "config.toml").exists():
        result = fedgsp.resume(place, rounds=arguments.rounds)
    else:
        result = fedgsp.train(
            method, arguments.data, arguments.model, rounds=arguments.rounds, seed=arguments.seed, out=place,
            workers=arguments.workers,
        )  # fmt: skip
    print(f"{method}: data {result.facts['data']['fingerprint'][:16]}, seed {arguments.seed}, files in {place}", flush=True)
    return result.history


def table(journals: dict[str, list[dict[str, float]]]) -> str:
    rows = [
        "| method | round | accuracy | loss | serial SGD steps so far | MB handed on so far |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for method, history in journals.items():
        shown = [e for e in history if e["round"] in (1, 2, 3, 10, 30) or e is history[-1]]
        rows += [
            f"| {method} | {e['round']} | {e['accuracy']:.4f} | {e['loss']:.4f} | {e['serial_steps_total']:,} "
            f"| {e['bytes_total'] / 1e6:,.1f} |"
            for e in shown
            if "accuracy" in e
        ]
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="glyphs")
    parser.add_argument("--model", default="small_cnn")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=lambda text: text if text == "auto" else int(text), default="auto")
    parser.add_argument("--out", type=Path, default=Path("runs/four-methods"))
    parser.add_argument("--picture", type=Path)
    arguments = parser.parse_args()
    journals = {method: run(method, arguments.out / method, arguments) for method in METHODS}
    print(table(journals))
    if arguments.picture:
        plans = [json.loads(line) for line in (arguments.out / "fedgsp" / "plans.jsonl").read_text().splitlines()[1:]]
        draw(journals, plans, arguments.picture)
        print(f"picture in {arguments.picture}")


def draw(journals: dict[str, list[dict[str, float]]], plans: list[dict[str, object]], path: Path) -> None:
    """FedGSP's real chains in some rounds (lanes of clients), and the four accuracy curves."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    colours = {name: look.colour for name, look in zip(METHODS, looks(METHODS), strict=True)}
    figure, (lanes, rounds, steps) = pyplot.subplots(1, 3, figsize=(13, 4.2), width_ratios=(1.25, 1, 1))
    shown = [plan for plan in plans if plan["round"] in (1, 2, 4, 8, 20, plans[-1]["round"])]
    for column, plan in enumerate(shown):
        for lane, chain in enumerate(plan["chains"]):  # type: ignore[arg-type, var-annotated]
            length = len(chain["clients"])
            x = [column * 12 + hop for hop in range(length)]
            lanes.plot(x, [-lane] * length, "-o", color=colours["fedgsp"], markersize=3, linewidth=1)
        lanes.text(column * 12, 1.3, f"round {plan['round']}", fontsize=8)
    lanes.set_title("FedGSP: a lane is a group, a dot a client.\nLanes multiply and shorten", fontsize=10, pad=14)
    lanes.axis("off")
    for method, history in journals.items():
        scored = [e for e in history if "accuracy" in e]
        accuracy = [e["accuracy"] for e in scored]
        rounds.plot([e["round"] for e in scored], accuracy, color=colours[method], label=method)
        steps.plot([e["serial_steps_total"] for e in scored], accuracy, color=colours[method])
    rounds.set_xlabel("round")
    rounds.set_ylabel("test accuracy (LEAF-weighted)")
    rounds.legend(fontsize=8, loc="lower right")
    rounds.set_title("against rounds", fontsize=10)
    steps.set_xscale("log")
    steps.set_xlabel("serial SGD steps")
    steps.set_title("against the longest serial path", fontsize=10)
    for axes in (rounds, steps):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
