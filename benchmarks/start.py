"""What it costs to begin: CPU and wall seconds until a command answers, and until workers are ready, forked or not.

    python benchmarks/start.py                       everything
    python benchmarks/start.py --workers 1 2         only these numbers of workers

CPU seconds are nearly the same on a busy machine; wall seconds are those of the machine as it is. A worker's own memory is its
proportional share: pages that several processes share are counted once in all.
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


def measured(command: list[str]) -> tuple[float, float]:
    """(CPU seconds, wall seconds) of a command and all it started."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stderr[-1000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, time.perf_counter() - began


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4])
    told = parser.parse_args()
    program = [sys.executable, "-c", "from fedgsp.cli.main import main; main()"]
    print(f"load {os.getloadavg()[0]:.1f}\n\n| command | CPU s | wall s |\n| --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for words in (["--help"], ["methods"], ["data", "inspect", "glyphs:clients=8"], _run(folder, 0), _run(folder, 2)):
            cpu, wall = measured([*program, *words])
            shown = " ".join(word if Path(word).parent == Path() else "DIR" for word in words)
            print(f"| `fedgsp {shown}` | {cpu:.2f} | {wall:.2f} |", flush=True)
    print("\n| workers | how | ready after, s | CPU s a worker | CPU s of the server | MB a worker |")
    print("| --- | --- | --- | --- | --- | --- |")
    for workers in told.workers:
        for how in ("forked", "started"):
            done = subprocess.run(
                [sys.executable, "-c", WORKERS, how, str(workers)], capture_output=True, text=True, check=True
            )
            for line in done.stdout.splitlines():
                turn, wall_seconds, cpu_seconds, server, share = line.split()
                print(
                    f"| {workers} | {how}, {turn} | {float(wall_seconds):.2f} | {float(cpu_seconds):.2f} | "
                    f"{float(server):.2f} | {float(share):.0f} |",
                    flush=True,
                )


def _run(folder: str, workers: int) -> list[str]:
    common = ["run", "--data", "glyphs:clients=8", "--rounds", "1", "--quiet"]
    return [*common, "--workers", str(workers), "--out", f"{folder}/run-{workers}"]


if __name__ == "__main__":
    main()
