"""What a hop of a real deployment costs: seconds and bytes, and where the seconds go. Read off a run's event log.

    fedgsp deploy local DIR --nodes 8 --model leaf_cnn --rounds 1
    python benchmarks/hops.py DIR

A hop is a message to a client and its answer. `waited` is what the server saw, `trained` what the client's training took; the
rest is Flower's: the node asks for work every three seconds, starts a new process for every message, which imports torch and
builds the model, and the model travels down and up. The node's own log has when a message came, which tells waiting and
downloading from the rest.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from fedgsp.deploy.layout import read_deployment


def main() -> None:
    place = read_deployment(Path(sys.argv[1]))
    run = place.newest_run()
    if run is None:
        raise SystemExit(f"{place.root} has no run.")
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    hops = [event for event in events if event["event"] == "hop" and "waited" in event]
    rows = {
        "waited (s)": [hop["waited"] for hop in hops],
        "of it training (s)": [hop["trained"] for hop in hops],
        "of it everything else (s)": [hop["waited"] - hop["trained"] for hop in hops],
        "down (MB)": [hop["down"] / 1e6 for hop in hops],
        "up (MB)": [hop["up"] / 1e6 for hop in hops],
        "samples": [hop["samples"] for hop in hops],
    }
    print(f"{run}: {len(hops)} hops")
    print("| | median | least | most |\n| --- | --- | --- | --- |")
    for name, values in rows.items():
        print(f"| {name} | {statistics.median(values):.2f} | {min(values):.2f} | {max(values):.2f} |")
    for line in journal_lines(run):
        print(line)


def journal_lines(run: Path) -> Sequence[str]:
    """Where each round's time went."""
    lines = []
    for text in (run / "journal.jsonl").read_text().splitlines():
        entry = json.loads(text)
        laps = {name: value for name, value in entry["timings"].items() if name != "at"}
        lines.append(
            f"round {entry['round']}: {entry['chains']} chains, {entry['clients']} clients, {entry['bytes']} bytes, {laps}"
        )
    return lines


if __name__ == "__main__":
    main()
