"""A deployment's processes: the server's two and the nodes', started on this machine, watched, and stopped together."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedgsp.core.cache_folder import cache_root
from fedgsp.core.errors import InputError, RunFailed
from fedgsp.deploy.certificates import read_node_public
from fedgsp.deploy.layout import Deployment, split_address
from fedgsp.deploy.registered_keys import read_keys, write_keys
from fedgsp.deploy.superlink import FlowerRun, SuperLink, Unreachable
from fedgsp.deploy.supervise import Supervisor, recorded

START_SECONDS = 300.0
"""How long a SuperLink may take to answer, and nodes to be there: a new process takes seconds, many at once far longer."""
POLL = 0.5

Say = Callable[[str], None]


def environment(place: Deployment) -> dict[str, str]:
    """What Flower's processes are told: this Python's programs, a home of their own, nothing sent or fetched."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {
        **os.environ,
        "PATH": path,
        "FEDGSP_BIN": str(Path(sys.executable).parent),
        "FLWR_HOME": str(place.flwr_home),
        "FEDGSP_CACHE": str(cache_root()),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nobody uses now."""
    taken = [socket.socket() for _ in range(count)]
    try:
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in taken]
    finally:
        for one in taken:
            one.close()


def control(place: Deployment) -> SuperLink:
    """The SuperLink of a deployment as its server's machine reaches it."""
    return SuperLink(place.listen, place.authority)


def register(place: Deployment, names: Sequence[str] | None = None) -> list[str]:
    """Make the nodes' public keys known to the SuperLink; the names of those that were new."""
    if place.insecure:
        return []
    link = control(place)
    keys = {name: read_node_public(place.site(name) / "node.pub") for name in (place.sites() if names is None else names)}
    new = [name for name, key in keys.items() if link.register(key, name) is not None]
    write_keys(place, {**read_keys(place), **keys})
    return new


def unregister(place: Deployment, names: Sequence[str]) -> list[str]:
    """Forget sites' public keys: their nodes are refused from then on; the names of those that were known."""
    link = control(place)
    known = {node.public_key: node.id for node in link.nodes()}
    keys = {name: read_node_public(place.site(name) / "node.pub") for name in names}
    for key in keys.values():
        if key in known:
            link.unregister(known[key])
    write_keys(place, {name: key for name, key in read_keys(place).items() if name not in keys})
    return [name for name, key in keys.items() if key in known]


@dataclass(frozen=True)
class Presence:
    """Which sites are connected, which are known but away, and which were never registered."""

    online: list[str]
    away: list[str]
    unknown: list[str]


def presence(place: Deployment, link: SuperLink | None = None) -> Presence:
    """Who is there, by the sites' keys."""
    nodes = (link or control(place)).nodes()
    if place.insecure:
        return Presence([str(node.id) for node in nodes if node.online], [], [])
    known = {node.public_key: node for node in nodes}
    found = Presence([], [], [])
    for name in place.sites():
        node = known.get(read_node_public(place.site(name) / "node.pub"))
        (found.unknown if node is None else found.online if node.online else found.away).append(name)
    return found


class LocalDeployment:
    """All processes of a deployment on this machine. To be entered; leaving it stops everything that it started."""

    def __init__(self, place: Deployment, say: Say) -> None:
        at_work, _ = recorded(place.root)
        if at_work:
            raise InputError(f"{place.root} is running already; stop that first, or see: fedgsp deploy status {place.root}")
        self.place = place
        self.supervisor = Supervisor(place.root, environment(place))
        self._say = say
        self._nodes: list[str] = []
        self.link = control(place)

    def __enter__(self) -> LocalDeployment:
        _check_port(self.place.listen)
        self.supervisor.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.supervisor.stop()

    def start_server(self) -> None:
        """The SuperLink, and what runs the server's app; returns when it answers."""
        for name in ("superlink", "superexec"):
            self.supervisor.start(name, [str(self.place.server / f"{name}.sh")])
        self._await("the SuperLink to answer", self.link.answers, "superlink")
        register(self.place)
        self._say(f"SuperLink at {self.place.listen}{' (INSECURE)' if self.place.insecure else ', TLS and node keys on'}")

    def start_nodes(self, names: Sequence[str]) -> None:
        """The nodes of some sites; returns when all are connected.

        A SuperLink that was killed, or ended before its nodes, still takes them for connected when it is back, and refuses the
        same keys until it misses their heartbeats.
        """

        def of_before() -> bool:
            there = presence(self.place, self.link).online
            return bool(there) if self.place.insecure else not set(names).isdisjoint(there)

        if of_before():
            self._say("waiting until the SuperLink has noticed that the nodes of before are gone; about a minute")
            self._await("the SuperLink to notice that nodes are gone", lambda: not of_before(), "superlink")
        for name in names:
            self.supervisor.start(f"node-{name}", [str(self.place.site(name) / "start.sh")])
        nodes = [f"node-{name}" for name in names]

        def all_there() -> bool:
            there = presence(self.place, self.link).online
            return len(there) >= len(names) if self.place.insecure else set(names) <= set(there)

        self._await(f"{len(names)} nodes to connect", all_there, "superlink", *nodes)
        self._nodes += names
        self._say(f"{len(names)} nodes connected")

    def submit(self, run: Path, resume: bool, back: int | None = None) -> int:
        """Submit the app for a run directory; the number of Flower's run."""
        command = submission(self.place, run, resume, back)
        return started_run(self.supervisor.run("submit", command, START_SECONDS))

    def trouble(self) -> list[str]:
        """Nodes that have ended since this was asked last, in a sentence each; without its server a deployment is over."""
        self.supervisor.check("superlink", "superexec")
        alive = {process.name for process in self.supervisor.running()}
        gone = [name for name in self._nodes if f"node-{name}" not in alive]
        self._nodes = [name for name in self._nodes if name not in gone]
        return [f"the node of {name} has ended; see {self.place.root / 'logs'}/node-{name}.log" for name in gone]

    def _await(self, what: str, there: Callable[[], bool], *processes: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            self.supervisor.check(*processes)
            try:
                if there():
                    return
            except Unreachable:
                pass
            if time.monotonic() > deadline:
                raise RunFailed(f"waited {START_SECONDS:g} seconds for {what}; see the logs in {self.place.root / 'logs'}.")
            time.sleep(POLL)


def submission(place: Deployment, run: Path, resume: bool, back: int | None = None) -> list[str]:
    """The command that submits the app to the SuperLink; `back` is the round that a run goes back to."""
    told = f'run-dir="{run}" config="{place.config}" resume={"true" if resume else "false"}'
    told += "" if back is None else f" round={back}"
    flwr = str(Path(sys.executable).with_name("flwr"))
    return [flwr, "run", str(place.app), "deployment", "--format", "json", "-c", told]


def started_run(said: str) -> int:
    """The number of the run in what `flwr run --format json` printed."""
    try:
        facts = json.loads(said[said.index("{") : said.rindex("}") + 1])
    except ValueError:
        facts = {}
    if not facts.get("success"):
        words = " ".join(said.split())
        raise RunFailed(f"the SuperLink did not start the run: {facts.get('error-message') or words[-300:]}")
    return int(facts["run-id"])


def ended_run(link: SuperLink, number: int) -> FlowerRun | None:
    """Flower's run once it is over; None while it goes on, or while the SuperLink cannot be asked."""
    try:
        run = link.run(number)
    except Unreachable:
        return None
    return run if run is not None and run.over else None


def _check_port(address: str) -> None:
    host, port = split_address(address)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise InputError(f"port {port} on {host} cannot be used ({error.strerror}); is another SuperLink there?") from error
