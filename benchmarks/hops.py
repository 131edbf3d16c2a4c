"""What a hop of a real deployment costs: warm nodes and stock ones side by side, in one federation and one run.

    OMP_NUM_THREADS=1 python benchmarks/hops.py DIR
    OMP_NUM_THREADS=1 python benchmarks/hops.py DIR --nodes 8 --models leaf_cnn --chains 4 --kinds warm

A SuperLink with TLS and node keys, and as many nodes, every second one Flower's own SuperNode. Every client trains once a
round, in so many chains, so both kinds of nodes meet the same load. A hop is a message to a client and its answer; the event
log has what the server waited for, what of it was training and what was pushing and pulling bytes at the server. CPU time and
memory are those of a node's whole tree of processes, read off /proc: CPU from the first round to the end, dead processes
included, divided by the messages that it answered (hops and evaluations).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))

from usage import proportional_memory, tree_cpu_seconds

from fedgsp.data import load
from fedgsp.deploy.generate import SiteData, Wanted, write_deployment
from fedgsp.deploy.local import LocalDeployment, ended_run
from fedgsp.deploy.options import loopback
from fedgsp.parts import encode
from fedgsp.plan import ICG, Constant, Grouped


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("place", type=Path)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--models", default="small_cnn,leaf_cnn")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--chains", default="1,4")
    parser.add_argument("--kinds", default="warm,stock", help="which kinds of nodes, in turn")
    told = parser.parse_args()
    for model in told.models.split(","):
        for chains in told.chains.split(","):
            print(f"\n{model}, {chains} chain(s), {told.nodes} nodes")
            measure(told, told.place.resolve() / f"{model}-{chains}", model, int(chains))


def measure(told: argparse.Namespace, folder: Path, model: str, chains: int) -> None:
    """One federation, one run."""
    names = [f"site-{k}" for k in range(told.nodes)]
    kinds = told.kinds.split(",")
    kind_of = {name: kinds[k % len(kinds)] for k, name in enumerate(names)}
    place, ports = loopback(folder, told.nodes, insecure=False)
    source = f"glyphs:clients={told.nodes}"
    sites = {name: SiteData(source, load(source).clients[k], k) for k, name in enumerate(names)}
    planner = encode(Grouped(growth=Constant(chains), grouper=ICG(), kappa=1.0))
    write_deployment(place, Wanted(sites, model=model, rounds=told.rounds, planner=planner, node_ports=ports))
    text = place.config.read_text()
    place.config.write_text(text.replace("eval_every = 1", f"eval_every = {told.rounds}"))
    for name in names:
        script = place.site(name) / "start.sh"
        script.write_text(script.read_text().replace("NODE:-warm", f"NODE:-{kind_of[name]}"))
    run = place.runs / "hops"
    loads = [os.getloadavg()[0]]
    with LocalDeployment(place, lambda text: None) as processes:
        processes.start_server()
        processes.start_nodes(names)
        pids = {one.name.removeprefix("node-"): one.pid for one in processes.supervisor.running()}
        number = processes.submit(run, resume=False)
        before: dict[str, float] = {}
        while ended_run(processes.link, number) is None:
            if not before and any(event["event"] == "round" for event in events(run)):
                before = {name: tree_cpu_seconds(pids[name]) for name in (*names, "superlink")}
            time.sleep(2.0)
            loads.append(os.getloadavg()[0])
        cpu = {name: tree_cpu_seconds(pids[name]) - before.get(name, 0.0) for name in (*names, "superlink")}
        memory = {name: proportional_memory(pids[name]) for name in (*names, "superlink")}
    report(run, kind_of, cpu, memory)
    print(f"load average {min(loads):.1f} to {max(loads):.1f}")


def events(run: Path) -> list[dict[str, Any]]:
    """What the event log has by now."""
    try:
        return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    except (OSError, ValueError):
        return []


def report(run: Path, kind_of: dict[str, str], cpu: dict[str, float], memory: dict[str, int]) -> None:
    """The figures as a table, a row a kind of node; the first round is left out, in which nothing is warm."""
    names = list(kind_of)
    waited, parts = defaultdict[str, list[float]](list), defaultdict[str, list[tuple[float, float]]](list)
    counted = defaultdict[str, int](int)
    for event in events(run):
        if event["event"] == "hop":
            kind = kind_of[names[event["client"]]]
            counted[kind] += 1
            if event["round"] > 1:
                waited[kind].append(event["waited"])
                parts[kind].append((event["trained"], event["moving"]))
    print("| node | hops | median s | 90 % s | training s | transfer s | CPU s a message | MB a node |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for kind in dict.fromkeys(kind_of.values()):
        mine = [name for name in names if kind_of[name] == kind]
        times = sorted(waited[kind])
        late = times[min(len(times) - 1, int(0.9 * len(times)))]
        trained, moving = (statistics.median(column) for column in zip(*parts[kind], strict=True))
        spent, held = sum(cpu[name] for name in mine), statistics.median(memory[name] for name in mine) / 1e6
        messages = counted[kind] + len(mine)  # the last round is evaluated
        print(
            f"| {kind} | {len(times)} | {statistics.median(times):.2f} | {late:.2f} | {trained:.2f} | {moving:.2f} "
            f"| {spent / messages:.2f} | {held:.0f} |"
        )
    hops = sum(counted.values()) + len(names)
    print(f"SuperLink: {cpu['superlink'] / hops:.2f} CPU s a message, {memory['superlink'] / 1e6:.0f} MB")
    for text in (run / "journal.jsonl").read_text().splitlines():
        entry = json.loads(text)
        print(f"round {entry['round']}: {dict(list(entry['timings'].items())[1:])}")


if __name__ == "__main__":
    main()
