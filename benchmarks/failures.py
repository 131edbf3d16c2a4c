"""What failures of a deployment cost: seconds from a death to when it is known, and to the next hop.

    OMP_NUM_THREADS=1 python benchmarks/failures.py DIR --kind warm
    OMP_NUM_THREADS=1 python benchmarks/failures.py DIR --kind warm --only cut      (root, iproute2, nginx)

Three sites on this machine, TLS and node keys on, one chain, hops that train for some seconds. In turn, while a site trains:
its app's process is killed, its node, its node with all its processes (a machine's death); its node is stopped (SIGSTOP); the
server's app is killed; the SuperLink is killed, and started again as its unit does. After these two `fedgsp deploy resume` is
run at once, as a command; the same where `fedgsp deploy run` has started all processes itself. Stock nodes end when their
SuperLink is gone and are started again at once. `cut`: a server and two sites in network namespaces, the wire of the one that
trains pulled for 20 s. A death is known when the event log has the site's hop as skipped.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1]))

from usage import tree

from fedgsp.client import SGD
from fedgsp.data import load
from fedgsp.deploy.generate import SiteData, Wanted, write_deployment
from fedgsp.deploy.layout import Deployment
from fedgsp.deploy.local import LocalDeployment, environment, presence, submission
from fedgsp.deploy.options import loopback
from fedgsp.deploy.supervise import Supervisor
from fedgsp.engine.transports.flower.board import read_board
from fedgsp.parts import encode
from fedgsp.plan import ICG, Constant, Grouped

FEDGSP = [sys.executable, "-c", "from fedgsp.cli.main import main; main()"]
RESTART_SECONDS = 1.0
"""As the SuperLink's unit waits until it starts it again."""
NAMES = ("site-0", "site-1", "site-2")
HERE = ("one machine: server app", "one machine: superlink")
ALL = ("child", "node", "machine", "stopped", "server app", "superlink", *HERE, "cut")
WORDS = {
    "child": "SIGKILL of the app's process of a node in training",
    "node": "SIGKILL of a node in training",
    "machine": "SIGKILL of a node with all its processes",
    "stopped": "SIGSTOP of a node with all its processes, for 30 s",
    "server app": "SIGKILL of the server's app, resumed at once",
    "superlink": "SIGKILL of the SuperLink, started again and resumed at once",
    "one machine: server app": "`deploy run` on one machine: SIGKILL of the server's app (known: the command ends), resumed",
    "one machine: superlink": "`deploy run` on one machine: SIGKILL of the SuperLink (known: the command ends), resumed",
    "cut": "a network cut of 20 s at a site in training",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("place", type=Path)
    parser.add_argument("--kind", choices=("warm", "stock"), default="warm")
    parser.add_argument("--epochs", type=int, default=400, help="so many that a hop trains for some seconds")
    parser.add_argument("--only", default=",".join(name for name in ALL if name != "cut"), help="which of: " + ", ".join(ALL))
    told = parser.parse_args()
    chosen = told.only.split(",")
    print("| what happens | known after s | next hop after s | load |\n| --- | --- | --- | --- |")
    if kills := [name for name in chosen if name not in ("cut", *HERE)]:
        place, ports = loopback(told.place.resolve(), len(NAMES), insecure=False)
        place = replace(place, one_machine=False)  # its processes are this program's, and `deploy resume` only submits
        _write(place, NAMES, told.kind, told.epochs, ports)
        with LocalDeployment(place, lambda text: None) as processes:
            processes.start_server()
            processes.start_nodes(NAMES)
            for name in kills:
                report(name, Kills(processes, name.replace(" ", "-"), told.kind).happen(name))
    for name in HERE:
        if name in chosen:
            report(name, one_machine(told.place.resolve(), name, told.kind, told.epochs))
    if "cut" in chosen:
        report("cut", cut(told.place.resolve(), told.kind, told.epochs))


def report(name: str, found: tuple[float | None, float]) -> None:
    """A row of the table."""
    known, on = found
    print(f"| {WORDS[name]} | {'' if known is None else f'{known:.1f}'} | {on:.1f} | {os.getloadavg()[0]:.1f} |", flush=True)


def _write(place: Deployment, names: tuple[str, ...], kind: str, epochs: int, ports: tuple[int, ...] | list[int]) -> None:
    source = f"glyphs:clients={len(names)}"
    sites = {name: SiteData(source, load(source).clients[k], k) for k, name in enumerate(names)}
    planner = encode(Grouped(growth=Constant(1), grouper=ICG(), kappa=1.0))
    wanted = Wanted(sites, rounds=1000, planner=planner, node_ports=ports, stock_nodes=kind == "stock")
    write_deployment(place, wanted)
    text = place.config.read_text().replace("eval_every = ", "eval_every = 1000  # was ")
    rule = encode(SGD(epochs=epochs, lr=0.001))
    lines = "\n".join(f"{name} = {json.dumps(value)}" for name, value in rule.items() if not isinstance(value, dict))
    place.config.write_text(text.replace("\n[deploy]", f"\n[method.local]\n{lines}\n\n[deploy]", 1))


def command_line(pid: int) -> bytes:
    """What a process was started with."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


class Run:
    """A run's event log as it grows."""

    def __init__(self, path: Path, names: tuple[str, ...]) -> None:
        self.path, self.names = path, names

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Those of a kind by now."""
        with suppress(OSError, ValueError):
            found = map(json.loads, (self.path / "events.jsonl").read_text().splitlines())
            return [event for event in found if event["event"] == kind]
        return []

    def training(self) -> str | None:
        """The site that has the model."""
        board = read_board(self.path)
        groups = [] if board is None else [one for one in board[1] if one["state"] == "training"]
        return str(groups[0]["client"]) if groups else None

    def seconds_until(self, done: Callable[[], Any], limit: float = 300.0) -> float:
        """How long it takes."""
        begun = time.monotonic()
        while not done():
            if time.monotonic() - begun > limit:
                raise SystemExit(f"waited {limit:g} s in vain; see {self.path}")
            time.sleep(0.05)
        return time.monotonic() - begun

    def victim(self, ready: Callable[[str], bool]) -> str:
        """Wait until a site trains, and has for a second; its name."""
        while True:
            self.seconds_until(self.training)
            name = self.training()
            hops = len(self.events("hop"))
            if name is not None and ready(name):
                time.sleep(1.0)
                if self.training() == name and len(self.events("hop")) == hops:
                    return name
            time.sleep(0.05)


class Kills:
    """One run, and one death in it."""

    def __init__(self, processes: LocalDeployment, name: str, kind: str) -> None:
        self.processes, self.kind = processes, kind
        self.place = processes.place
        self.run = Run(self.place.runs / name, NAMES)

    def happen(self, name: str) -> tuple[float | None, float]:
        """Seconds until it is known and until the next hop."""
        number, run = self.processes.submit(self.run.path, resume=False), self.run
        facts = {"schema": 1, "run": str(run.path), "number": number}  # as `fedgsp deploy run` leaves them
        (self.place.root / "submitted.json").write_text(json.dumps(facts))
        run.seconds_until(lambda: len(run.events("hop")) >= 2)
        victim = run.victim(lambda site: bool(self.children(site)))
        if name in ("server app", "superlink"):
            found: tuple[float | None, float] = None, self.resumed(name)
        else:
            found = self.lost(name, victim)
            self.processes.link.stop(number)
        if name in ("node", "machine"):
            run.seconds_until(lambda: victim not in presence(self.place, self.processes.link).online)
            self.processes.start_nodes([victim])
        else:
            run.seconds_until(self.all_there)
        time.sleep(5.0)
        return found

    def lost(self, name: str, victim: str) -> tuple[float, float]:
        """A site's processes are killed or stopped; seconds until it is known and until the next hop."""
        run = self.run
        skipped, began = len(run.events("skipped")), time.monotonic()
        pids = self.kill(name, victim)
        run.seconds_until(lambda: len(run.events("skipped")) > skipped)
        known = time.monotonic() - began
        hops = len(run.events("hop"))
        run.seconds_until(lambda: len(run.events("hop")) > hops)
        on = time.monotonic() - began
        if name == "stopped":
            time.sleep(max(0.0, 30 - (time.monotonic() - began)))
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        return known, on

    def all_there(self) -> bool:
        """Whether all nodes are connected; those that have ended are started again, as their unit would."""
        running = {one.name for one in self.processes.supervisor.running()}
        for name in NAMES:
            if f"node-{name}" not in running:
                self.processes.supervisor.start(f"node-{name}", [str(self.place.site(name) / "start.sh")])
        return set(presence(self.place, self.processes.link).online) == set(NAMES)

    def pid(self, name: str) -> int:
        """The number of a process of the deployment."""
        return next(one.pid for one in self.processes.supervisor.running() if one.name == name)

    def children(self, site: str) -> list[int]:
        """The processes in which a site's app is called: always there at a warm node, for each message anew at a stock one."""
        word = b"app_process" if self.kind == "warm" else b"flwr-clientapp"
        return [pid for pid in tree(self.pid(f"node-{site}")) if word in command_line(pid)]

    def kill(self, name: str, victim: str) -> list[int]:
        """Let it happen to a site."""
        node = self.pid(f"node-{victim}")
        whole = tree(node)
        chosen = {"child": self.children(victim), "node": whole[:1]}.get(name, whole)
        for pid in chosen:
            os.kill(pid, signal.SIGSTOP if name == "stopped" else signal.SIGKILL)
        return chosen

    def resumed(self, name: str) -> float:
        """Kill a process of the server and `fedgsp deploy resume`; seconds from the kill to the next hop."""
        run, root, before = self.run, str(self.place.root), time.monotonic()
        hops = len(run.events("hop"))
        if name == "server app":
            app = next(pid for pid in tree(self.pid("superexec")) if b"flwr-serverapp" in command_line(pid))
            os.kill(app, signal.SIGKILL)
        else:
            os.kill(self.pid("superlink"), signal.SIGKILL)
            time.sleep(RESTART_SECONDS)
            self.processes.supervisor.start("superlink", [str(self.place.server / "superlink.sh")])
            subprocess.run([*FEDGSP, "deploy", "register", root, "--restore"], check=True, env=environment(self.place))
        display = subprocess.Popen([*FEDGSP, "deploy", "resume", root, "--quiet"], env=environment(self.place))

        def on() -> bool:
            if name == "superlink" and self.kind == "stock":
                self.all_there()
            if display.poll() is not None:
                raise SystemExit(f"fedgsp deploy resume ended with code {display.returncode}")
            return bool(run.events("resumed")) and len(run.events("hop")) > hops

        run.seconds_until(on)
        seconds = time.monotonic() - before
        subprocess.run([*FEDGSP, "deploy", "stop", root], check=True, env=environment(self.place), stdout=subprocess.DEVNULL)
        display.wait()
        return seconds


def one_machine(root: Path, name: str, kind: str, epochs: int) -> tuple[float | None, float]:
    """`fedgsp deploy run` with all processes its own; one of the server's is killed, and when the command has ended: resume."""
    place, ports = loopback(root.with_name(f"{root.name}-{name.split()[-1]}"), len(NAMES), insecure=False)
    _write(place, NAMES, kind, epochs, ports)
    command = [*FEDGSP, "deploy", "run", str(place.root), "--quiet"]
    display = subprocess.Popen(command, env=environment(place), stderr=subprocess.DEVNULL)
    waiting = Run(place.root, NAMES)
    waiting.seconds_until(place.newest_run)
    path = place.newest_run()
    assert path is not None
    run = Run(path, NAMES)
    run.seconds_until(lambda: len(run.events("hop")) >= 2)
    run.victim(lambda site: True)
    word = b"flwr-serverapp" if name == "one machine: server app" else b"flower-superlink"
    hops, before = len(run.events("hop")), time.monotonic()
    os.kill(next(pid for pid in tree(display.pid) if word in command_line(pid)), signal.SIGKILL)
    display.wait(120)
    known = time.monotonic() - before
    resumed = subprocess.Popen([*FEDGSP, "deploy", "resume", str(place.root), "--quiet"], env=environment(place))
    run.seconds_until(lambda: bool(run.events("resumed")) and len(run.events("hop")) > hops)
    on = time.monotonic() - before
    resumed.terminate()
    resumed.wait(60)
    return known, on


def cut(root: Path, kind: str, epochs: int) -> tuple[float | None, float]:
    """Namespaces: a server and two sites, the wire of the one that trains pulled for 20 s."""
    from tests.support.network_namespaces import Machines

    names = ("north", "south")
    with Machines(names) as machines:
        place = Deployment(root.with_name(root.name + "-cut"), f"{machines.server}:8443", "127.0.0.1:9443")
        _write(place, names, kind, epochs, [9094, 9094])
        nginx = place.root / "nginx.conf"
        nginx.write_text(
            f"daemon off; pid {place.root}/pid; error_log {place.root}/error.log; events {{}}\n"
            f'http {{ access_log off; include "{place.server}/nginx.conf"; }}\n'
        )
        run = Run(place.runs / "cut", names)
        with Supervisor(place.root, environment(place)) as processes:
            processes.start("server", machines.on("server", place.server / "start.sh"))
            processes.start("nginx", machines.on("server", "nginx", "-p", place.root, "-c", nginx))

            def there(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
                return subprocess.run(
                    machines.on("server", *command), capture_output=True, text=True, env=environment(place), **options
                )  # fmt: skip

            run.seconds_until(lambda: "new" in there([*FEDGSP, "deploy", "register", str(place.root)]).stdout)
            for name in names:
                processes.start(name, machines.on(name, place.site(name) / "start.sh"))
            status = [*FEDGSP, "deploy", "status", str(place.root), "--json"]
            run.seconds_until(lambda: len((json.loads(there(status).stdout)["nodes"] or {"online": []})["online"]) == 2)
            there(submission(place, run.path, False), check=True)
            run.seconds_until(lambda: len(run.events("hop")) >= 2)
            victim = run.victim(lambda site: True)
            skipped, port = len(run.events("skipped")), f"port{1 + names.index(victim)}"
            hub = machines.namespace("server")
            began = time.monotonic()
            subprocess.run(["ip", "-n", hub, "link", "set", port, "down"], check=True)
            known: float | None = None
            with suppress(SystemExit):
                run.seconds_until(lambda: len(run.events("skipped")) > skipped, 20)
                known = time.monotonic() - began
            time.sleep(max(0.0, 20 - (time.monotonic() - began)))
            subprocess.run(["ip", "-n", hub, "link", "set", port, "up"], check=True)
            client = names.index(victim)
            trained = len([event for event in run.events("hop") if event["client"] == client])
            run.seconds_until(lambda: len([e for e in run.events("hop") if e["client"] == client]) > trained)
            return known, time.monotonic() - began


if __name__ == "__main__":
    main()
