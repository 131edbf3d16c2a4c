"""This tree against another commit, side by side: CPU time of a client's epoch and of whole rounds, as ratios.

    python benchmarks/against.py REV [--turns 7]

The two take turns, each in a process of its own with one thread; a figure is the median of the turns. Where nothing was to
become slower, ratios lie within a few per cent of 1.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parents[1]
WORK = """
import json, time
import numpy as np, torch
torch.set_num_threads(1)
import fedgsp
from fedgsp.client.train import Trainer
from fedgsp.core.chain import Stop
from fedgsp.core.tensors import clone
from fedgsp.models.state import model_tensors

def spent(work, times):
    work()
    began = time.process_time()
    for _ in range(times):
        work()
    return 1000 * (time.process_time() - began) / times

data, found = fedgsp.load("glyphs:clients=12,seed=3"), {}
for model, times in (("leaf_cnn", 1), ("small_cnn", 5)):
    setup = fedgsp.train("fedavg", data, model, rounds=1, workers=0).setup
    job = setup.job
    turn = Trainer(job.fresh_model(), job.rule, job.task, job.data, torch.device("cpu"), job.seeds, job.kernel)
    start = clone(model_tensors(turn.model))
    steps = -(-len(data.train[0]) // 5)
    found[f"{model}, ms a step of a client's epoch"] = spent(lambda: turn.visit(1, Stop(0, 0, 0), start, {}), times) / steps
for method in ("fedavg", "fedgsp"):
    for model, rounds in (("leaf_cnn", 2), ("small_cnn", 20)):
        few = fedgsp.load("glyphs:clients=40,seed=3") if model == "small_cnn" else data
        times = {}
        for n in (1, 1 + rounds):
            began = time.process_time()
            fedgsp.train(method, few, model, rounds=n, workers=0)
            times[n] = time.process_time() - began
        found[f"{model}, ms a round of {method}"] = 1000 * (times[1 + rounds] - times[1]) / rounds
print(json.dumps(found))
"""


def measured(tree: Path) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", WORK], env=environment, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


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
    print(f"| | here | {arguments.rev} | here / there |\n| --- | --- | --- | --- |")
    for what in turns[0][0]:
        ours, theirs = (statistics.median(turn[who][what] for turn in turns) for who in (0, 1))
        ratio = statistics.median(turn[0][what] / turn[1][what] for turn in turns)
        print(f"| {what} | {ours:.3g} | {theirs:.3g} | {ratio:.3f} |")


if __name__ == "__main__":
    main()
