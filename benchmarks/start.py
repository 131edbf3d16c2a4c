"""What it costs to begin: CPU and wall seconds until a command answers, and until workers are ready, forked or not.

    python benchmarks/start.py                       everything
    python benchmarks/start.py --workers 1 2         only these numbers of workers
    python benchmarks/start.py --before f48226b      the commands by another commit too, side by side

The least of several turns counts, since what disturbs a measurement only adds to it. CPU seconds are nearly the same on a busy
machine; wall seconds are those of the machine as it is. A worker's own memory is its proportional share: pages that several
processes share are counted once in all.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WORKERS = """
import os, sys, time
from pathlib import Path
from fedgsp.core import forked
from fedgsp.core.seeds import Seeds
from fedgsp.client import SGD
from fedgsp.data import load
from fedgsp.engine import ProcessEngine, WorkerSetup
from fedgsp.models import classification, resolve

forked.FORK = sys.argv[1] == "forked"
data = load("glyphs:clients=8")
setup = WorkerSetup(resolve("leaf_cnn", data.sample_shape, data.classes), SGD(lr=0.05), classification(), data, Seeds(1))

def used(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), int(fields[1])

for turn in ("first", "again"):
    began = time.perf_counter()
    engine = ProcessEngine(setup, int(sys.argv[2]))
    engine.wait_until_ready()
    wall, ids = time.perf_counter() - began, engine.process_ids()
    share = [int(line.split()[1]) for pid in ids for line in open(f"/proc/{pid}/smaps_rollup") if line.startswith("Pss:")]
    servers = {used(pid)[1] for pid in ids} - {os.getpid()}
    print(turn, wall, sum(used(pid)[0] for pid in ids) / len(ids), sum(used(pid)[0] for pid in servers), max(share) / 1000)
    engine.close()
"""


PROGRAM = [sys.executable, "-c", "from fedgsp.cli.main import main; main()"]
HERE = Path(__file__).parents[1]


def measured(command: list[str], source: Path, turns: int) -> tuple[float, float]:
    """(CPU seconds, wall seconds) of a command and all it started: the least of some turns."""
    found = []
    environment = {**os.environ, "PYTHONPATH": str(source / "src")}
    for _ in range(turns):
        with tempfile.TemporaryDirectory() as out:
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            words = [word.format(out=f"{out}/run") for word in command]
            done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
            wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: {done.stderr[-1000:]}")
        found.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall))
    return min(cpu for cpu, _ in found), min(wall for _, wall in found)


def commands(trees: dict[str, Path], workers: list[int], turns: int) -> None:
    """The table of commands; what is kept between calls is there already."""
    names = [f"{what}, {name}" for name in trees for what in ("CPU s", "wall s")]
    print(f"| command | {' | '.join(names)} |\n| --- |{' --- |' * len(names)}")
    one = ["run", "--data", "glyphs:clients=8", "--rounds", "1", "--quiet", "--out", "{out}", "--workers"]
    rounds = [[*one, str(count)] for count in (0, *workers)]
    for words in (["--help"], ["methods"], ["data", "inspect", "glyphs:clients=8"], *rounds):
        figures = []
        for tree in trees.values():
            measured([*PROGRAM, *words], tree, 1)
            figures += [f"{seconds:.2f}" for seconds in measured([*PROGRAM, *words], tree, turns)]
        print(f"| `fedgsp {' '.join(words).replace(' --quiet --out {out}', '')}` | {' | '.join(figures)} |", flush=True)


def workers_ready(counts: list[int]) -> None:
    """The table of workers: forked, and as processes of their own."""
    print("\n| workers | how | ready after, s | CPU s a worker | CPU s of the server | MB a worker |")
    print("| --- | --- | --- | --- | --- | --- |")
    environment = {**os.environ, "PYTHONPATH": str(HERE / "src")}
    for count in counts:
        for how in ("forked", "started"):
            command = [sys.executable, "-c", WORKERS, how, str(count)]
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
            for line in done.stdout.splitlines():
                turn, wall, cpu, server, share = line.split()
                figures = f"{float(wall):.2f} | {float(cpu):.2f} | {float(server):.2f} | {float(share):.0f}"
                print(f"| {count} | {how}, {turn} | {figures} |", flush=True)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--before", metavar="REV", help="another commit, whose commands are measured too")
    parser.add_argument("--turns", type=int, default=3, help="0: no commands, only workers")
    told = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}\n")
    with tempfile.TemporaryDirectory() as folder:
        trees = {"now": HERE}
        if told.before:
            packed = subprocess.run(["git", "archive", told.before], cwd=HERE, capture_output=True, check=True).stdout
            subprocess.run(["tar", "-x", "-C", folder], input=packed, check=True)
            trees = {told.before: Path(folder), **trees}
        if told.turns:
            commands(trees, told.workers, told.turns)
    workers_ready(told.workers)
    print(f"\nload at the end {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
