"""The path of docs/deploy.md to several machines: a server and two sites with addresses of their own, behind a real nginx."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from fedgsp.deploy import guardian
from fedgsp.deploy.layout import read_deployment
from fedgsp.deploy.local import environment
from fedgsp.deploy.supervise import Supervisor
from tests.support.network_namespaces import Machines, permitted
from tests.support.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not permitted(), reason="network namespaces may not be made here"),
    pytest.mark.skipif(shutil.which("nginx") is None, reason="needs nginx"),
]
FEDGSP = [sys.executable, "-c", "from fedgsp.cli.main import main; main()"]
ROUNDS = 25
"""Enough that the run still goes on when it is told to stop."""
SITES = ("north", "south")


def test_the_path_to_several_machines(tmp_path: Path) -> None:
    with Machines(SITES) as machines:
        fed = tmp_path / "server machine" / "fed"

        def ran(machine: str, *command: object, code: int = 0) -> str:
            made = subprocess.run(machines.on(machine, *command), capture_output=True, text=True, timeout=600)
            assert made.returncode == code, f"{command}: {made.stdout}{made.stderr}"
            return made.stdout + made.stderr

        def status() -> dict[str, Any]:
            found: dict[str, Any] = json.loads(ran("server", *FEDGSP, "deploy", "status", fed, "--json"))
            return found

        sites = [word for name in SITES for word in ("--site", name)]
        address = f"{machines.server}:8443"
        run = ("--data", "glyphs:clients=2", "--rounds", ROUNDS)
        ran("server", *FEDGSP, "deploy", "init", fed, *sites, "--address", address, *run)
        place = read_deployment(fed)
        patient = place.config.read_text().replace("# hop_seconds_floor = 60.0", "hop_seconds_floor = 300.0")
        place.config.write_text(patient)  # machines that run tests are busy
        nginx = tmp_path / "nginx.conf"
        nginx.write_text(
            f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/error.log; events {{}}\n"
            f'http {{ access_log {tmp_path}/access.log; include "{place.server}/nginx.conf"; }}\n'
        )
        with Supervisor(tmp_path, environment(place)) as processes:
            processes.start("server", machines.on("server", place.server / "start.sh"))
            processes.start("nginx", machines.on("server", "nginx", "-p", tmp_path, "-c", nginx))
            processes.start("metrics", machines.on("server", *FEDGSP, "deploy", "metrics", fed, "--port", 9109))
            until(lambda: status()["superlink"]["reachable"], 120, "the SuperLink")
            assert status()["nodes"]["unknown"] == list(SITES)

            folders = {name: tmp_path / f"{name} machine" for name in SITES}
            for name, folder in folders.items():
                shutil.copytree(place.site(name), folder)
                (place.site(name) / "node.key").unlink()
            for name in ("node.key", "node.pub"):
                (folders["south"] / name).unlink()
            ran("south", *FEDGSP, "site", "key", folders["south"])  # its private key never leaves it
            shutil.copy(folders["south"] / "node.pub", place.site("south") / "node.pub")
            assert "does not know this node's key" in ran("north", *FEDGSP, "site", "check", folders["north"], code=1)
            assert "2 of 2 sites were new" in ran("server", *FEDGSP, "deploy", "register", fed)
            for name, folder in folders.items():
                assert "ready to join" in ran(name, *FEDGSP, "site", "check", folder)
                processes.start(name, machines.on(name, folder / "start.sh"))
            until(lambda: status()["nodes"]["online"] == list(SITES), 120, "the sites")

            for port, said in ((8443, "403"), (9443, "000")):  # the Control API: neither by the proxy nor past it
                url = f"https://{machines.server}:{port}/v1/control/list-nodes"
                command = ("curl", "-s", "-k", "-o", "/dev/null", "-w", "%{http_code}", "-X", "POST", url)
                assert ran("north", *command, code=0 if said == "403" else 7) == said

            following = processes.start("run", machines.on("server", *FEDGSP, "deploy", "run", fed))
            until(lambda: any(path.stat().st_size for path in fed.glob("runs/*/journal.jsonl")), 600, "the first round")
            ran("server", *FEDGSP, "deploy", "stop", fed)
            until(lambda: not following.alive, 60, "the display to notice")
            assert status()["run"]["status"] in ("interrupted", "stopped", "failed")
            assert f"{ROUNDS} of {ROUNDS} rounds" in ran("server", *FEDGSP, "deploy", "resume", fed)
            assert status()["run"]["status"] == "finished"
            figures = ran("server", "curl", "-s", "http://127.0.0.1:9109/metrics")
            assert 'status="finished"} 1.0' in figures
            assert "fedgsp_round{" in figures
        assert guardian.marked(processes.mark) == {}
        addresses = {line.split()[0] for line in (tmp_path / "access.log").read_text().splitlines()}
        assert addresses == {"10.77.0.2", "10.77.0.3"}
