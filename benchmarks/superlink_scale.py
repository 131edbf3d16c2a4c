"""How many nodes a SuperLink bears: its CPU by the number of idle nodes, and how many questions a second saturate it.

    OMP_NUM_THREADS=1 python benchmarks/superlink_scale.py DIR --nodes 10,25,50,100

A SuperLink with TLS and node keys, and so many light nodes on this machine: each has the Fleet connection of `fedgsp node`,
with its intervals and heartbeats, and no app. First all are idle; then as in a run, where all together ask 30 times a second;
last all ask as often as they can, for the number of questions at which the SuperLink has no more to give. CPU is off /proc.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))

from usage import proportional_memory, tree_cpu_seconds

from fedgsp.deploy.certificates import read_node_key
from fedgsp.deploy.generate import SiteData, Wanted, write_deployment
from fedgsp.deploy.layout import Deployment
from fedgsp.deploy.local import LocalDeployment, free_ports, presence
from fedgsp.deploy.node.fleet import FleetConnection
from fedgsp.deploy.node.node import IDLE_SECONDS
from fedgsp.engine.transports.flower.site_messages import poll_hint

PROCESSES = 2
SECONDS = 15.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("place", type=Path)
    parser.add_argument("--nodes", default="10,25,50,100")
    told = parser.parse_args()
    numbers = [int(text) for text in told.nodes.split(",")]
    address = f"127.0.0.1:{free_ports(1)[0]}"
    place = Deployment(told.place.resolve(), address, address, one_machine=True)
    names = [f"site-{k}" for k in range(max(numbers))]
    write_deployment(place, Wanted({name: SiteData("glyphs", None, None) for name in names}))
    facts = [(place.address, str(place.server / "ca.crt"), str(place.site(name) / "node.key")) for name in names]
    print("| nodes | pace | questions a second | CPU of the SuperLink | ms CPU a request | an answer takes, median (90 %) |")
    print("| --- | --- | --- | --- | --- | --- |")
    with LocalDeployment(place, lambda text: None) as processes:
        processes.start_server()
        link = next(one.pid for one in processes.supervisor.running() if one.name == "superlink")
        for number in numbers:
            light = LightNodes(facts[:number])
            while len(presence(place, processes.link).online) < number:
                time.sleep(0.5)
            for pace, wait in (("idle", IDLE_SECONDS), ("in a run", poll_hint(number)), ("all they can", 0.0)):
                light.pace(wait)
                time.sleep(3.0)
                light.taken()
                cpu, begun = tree_cpu_seconds(link), time.monotonic()
                time.sleep(SECONDS)
                took, spent = light.taken(), tree_cpu_seconds(link) - cpu
                gone = time.monotonic() - begun
                beats = number / 5 * gone
                late = 1000 * statistics.quantiles(took, n=10)[-1]
                print(
                    f"| {number} | {pace} | {len(took) / gone:.1f} | {100 * spent / gone:.0f} % "
                    f"| {1000 * spent / (len(took) + beats):.1f} | {1000 * statistics.median(took):.0f} ms ({late:.0f}) |",
                    flush=True,
                )
            light.close()
            while presence(place, processes.link).online:
                time.sleep(0.5)
        print(f"SuperLink: {proportional_memory(link) / 1e6:.0f} MB; load average {os.getloadavg()[0]:.1f}")


class LightNodes:
    """Nodes without apps, in a few processes."""

    def __init__(self, facts: list[tuple[str, str, str]]) -> None:
        context = multiprocessing.get_context("spawn")
        self._wait: Any = context.Value("d", IDLE_SECONDS)
        self._took: Any = context.Queue()
        self._ends = context.Event()
        parts = [facts[k::PROCESSES] for k in range(PROCESSES)]
        self._all = [context.Process(target=_live, args=(part, self._wait, self._took, self._ends)) for part in parts if part]
        for process in self._all:
            process.start()

    def pace(self, seconds: float) -> None:
        """Ask so often from now on."""
        self._wait.value = seconds

    def taken(self) -> list[float]:
        """Seconds of the questions since this was asked last."""
        found: list[float] = []
        time.sleep(0.2)
        while not self._took.empty():
            found += self._took.get()
        return found

    def close(self) -> None:
        """All leave."""
        self._ends.set()
        for process in self._all:
            process.join(60)


def _live(facts: list[tuple[str, str, str]], wait: Any, took: Any, ends: Any) -> None:
    seen: list[float] = []
    threads = [threading.Thread(target=_node, args=(*one, wait, seen, ends)) for one in facts]
    for thread in threads:
        thread.start()
        time.sleep(0.02)
    while not ends.is_set():
        time.sleep(0.1)
        count = len(seen)
        took.put(seen[:count])
        del seen[:count]
    for thread in threads:
        thread.join()
    took.cancel_join_thread()


def _node(address: str, authority: str, key: str, wait: Any, seen: list[float], ends: Any) -> None:
    connection = FleetConnection(address, Path(authority), read_node_key(Path(key)))
    connection.activate()
    while not ends.is_set():
        begun = time.monotonic()
        connection.receive()
        seen.append(time.monotonic() - begun)
        ends.wait(wait.value)
    connection.close()


if __name__ == "__main__":
    main()
