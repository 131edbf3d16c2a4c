"""What a hop of a real deployment costs: seconds and bytes, and where the seconds go.

    OMP_NUM_THREADS=1 python benchmarks/hops.py DIR --nodes 8 --model leaf_cnn --rounds 1

Runs `fedgsp deploy local` (TLS and node keys on) and watches it. A hop is a message to a client and its answer. The event log
has what the server waited for, and what of it was training; the life and the CPU time of every client process are read off
/proc. What is left of the waiting is the node's: it asks for work every three seconds, and models travel down and up.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedgsp.deploy import guardian
from fedgsp.deploy.layout import read_deployment

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Life:
    """A client process: when it was first and last seen, and the CPU seconds it had used by then."""

    first: float
    last: float
    cpu: float = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("place", type=Path)
    parser.add_argument("--nodes", default="8")
    parser.add_argument("--model", default="leaf_cnn")
    parser.add_argument("--rounds", default="1")
    told = parser.parse_args()
    command = "from fedgsp.cli.main import main; main()"
    options = ["--nodes", told.nodes, "--model", told.model, "--rounds", told.rounds]
    run = subprocess.Popen([sys.executable, "-c", command, "deploy", "local", str(told.place), *options])
    lives: dict[int, Life] = {}
    while run.poll() is None:
        watch(told.place / "processes.json", lives)
        time.sleep(0.1)
    report(told.place, [life for life in lives.values() if life.cpu > 0])


def watch(record: Path, lives: dict[int, Life]) -> None:
    """Look at all client processes of the deployment."""
    try:
        mark = json.loads(record.read_text())["mark"]
    except (OSError, ValueError):
        return
    now = time.monotonic()
    for pid in guardian.marked(mark):
        try:
            if b"flwr-clientapp" not in Path(f"/proc/{pid}/cmdline").read_bytes():
                continue
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        life = lives.setdefault(pid, Life(now, now))
        life.last, life.cpu = now, (int(fields[11]) + int(fields[12])) / TICKS


def report(place: Path, lives: Sequence[Life]) -> None:
    """The figures as a table."""
    run = read_deployment(place).newest_run()
    assert run is not None
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    hops = [event for event in events if event["event"] == "hop" and "waited" in event]
    rows = {
        "the server waited (s)": [hop["waited"] for hop in hops],
        "of it training (s)": [hop["trained"] for hop in hops],
        "down (MB)": [hop["down"] / 1e6 for hop in hops],
        "up (MB)": [hop["up"] / 1e6 for hop in hops],
        "life of a client process (s)": [life.last - life.first for life in lives],
        "CPU of a client process (s)": [life.cpu for life in lives],
    }
    print(f"{len(hops)} hops, {len(lives)} client processes (also for introductions and evaluation); load {os.getloadavg()}")
    print("| | median | least | most |\n| --- | --- | --- | --- |")
    for name, values in rows.items():
        print(f"| {name} | {statistics.median(values):.2f} | {min(values):.2f} | {max(values):.2f} |")
    for text in (run / "journal.jsonl").read_text().splitlines():
        entry = json.loads(text)
        laps = {name: value for name, value in entry["timings"].items() if name != "at"}
        print(f"round {entry['round']}: {entry['chains']} chains, {entry['clients']} clients, {laps}")


if __name__ == "__main__":
    main()
