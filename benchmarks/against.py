"""This tree against another commit, side by side: CPU time of whole rounds, as ratios.

    python benchmarks/against.py REV [--turns 7]

The two take turns, each in a process of its own with one thread. Both train the same rounds of the same plans, so every round
is compared with itself: the least CPU time that it took in any turn counts, since what disturbs a measurement only adds to it.
Where nothing was to become slower, ratios lie within three per cent of 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parents[1]
WORK = """
import json, time
import torch
torch.set_num_threads(1)
import fedgsp
from fedgsp.server import Mean

begun = []
start = Mean.start
def started(self, *given, **named):
    begun.append(time.process_time())
    return start(self, *given, **named)
Mean.start = started

found = {}
for model, clients, rounds in (("leaf_cnn", 12, 9), ("small_cnn", 40, 30)):
    data = fedgsp.load(f"glyphs:clients={clients},seed=3")
    for method in ("fedavg", "fedgsp"):
        begun.clear()
        fedgsp.train(method, data, model, rounds=rounds, workers=0)
        found[f"{model}, {method}"] = [after - before for before, after in zip(begun, begun[1:])]
print(json.dumps(found))
"""
Rounds = dict[str, list[float]]


def measured(tree: Path) -> Rounds:
    """CPU seconds of each round, by what was trained; the last round has no end."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", WORK], env=environment, capture_output=True, text=True, check=True)
    found: Rounds = json.loads(done.stdout.splitlines()[-1])
    return found


def least(turns: list[Rounds], what: str) -> float:
    """Milliseconds a round: the least that each round took in any turn, on average."""
    rounds = [min(times) for times in zip(*(turn[what] for turn in turns), strict=True)]
    return 1000 * sum(rounds) / len(rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rev")
    parser.add_argument("--turns", type=int, default=7)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "other"
        subprocess.run(["git", "worktree", "add", "--detach", "--quiet", other, arguments.rev], cwd=HERE, check=True)
        try:
            turns = [(measured(HERE), measured(other)) for _ in range(arguments.turns)]
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", other], cwd=HERE, check=True)
    print(f"load {os.getloadavg()[0]:.1f}, {arguments.turns} turns\n")
    print(f"| CPU ms a round | here | {arguments.rev} | here / there |\n| --- | --- | --- | --- |")
    for what in turns[0][0]:
        ours, theirs = (least([turn[who] for turn in turns], what) for who in (0, 1))
        print(f"| {what} | {ours:.3g} | {theirs:.3g} | {ours / theirs:.3f} |")


if __name__ == "__main__":
    main()
