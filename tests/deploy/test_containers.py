"""The containers that `fedgsp deploy init` writes: what they may do, and that every command in them works, outside of one."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")
pytest.importorskip("yaml")

import yaml  # type: ignore[import-untyped]

from fedgsp.deploy import guardian
from fedgsp.deploy.generate import SiteData, Wanted, write_deployment
from fedgsp.deploy.layout import Deployment
from fedgsp.deploy.local import environment, free_ports, presence, register
from fedgsp.deploy.supervise import Supervisor
from tests.support.real_deployments import deployment, until

SERVICE = {
    "build", "image", "command", "restart", "read_only", "cap_drop", "security_opt", "environment", "tmpfs", "volumes",
    "secrets", "healthcheck", "ports", "depends_on", "network_mode",
}  # fmt: skip
"""Entries of a service in the compose specification, as far as they are used here."""
HEALTH = {"test", "interval", "timeout", "start_period"}
MOUNT = {"type", "source", "target", "read_only"}


@pytest.fixture
def place(tmp_path: Path) -> Deployment:
    port, listen = free_ports(2)
    made = Deployment(tmp_path / "fed", f"127.0.0.1:{listen}", f"127.0.0.1:{listen}")
    sites = {"North": SiteData("glyphs:clients=2", "0", 0), "south": SiteData("glyphs:clients=2", "1", 1)}
    write_deployment(made, Wanted(sites, node_ports=(port, port)))
    return made


def composed(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((folder / "compose.yaml").read_text())
    return found


def test_only_entries_of_the_specification_and_little_is_allowed(place: Deployment) -> None:
    for folder in (place.server, place.site("North"), place.site("south")):
        file = composed(folder)
        assert file.keys() <= {"name", "services", "secrets", "volumes"}
        assert re.fullmatch("[a-z0-9][a-z0-9_-]*", file["name"])
        assert not (folder / file["name"]).exists()
        for secret in file["secrets"].values():
            assert (folder / secret["file"]).stat().st_mode & 0o077 == 0
        for name, service in file["services"].items():
            assert service.keys() <= SERVICE, name
            assert service["read_only"] is True
            assert service["restart"] == "unless-stopped"
            if name != "proxy":  # nginx changes its user by itself
                assert (service["cap_drop"], service["security_opt"]) == (["ALL"], ["no-new-privileges:true"])
            assert service.get("healthcheck", {}).keys() <= HEALTH
            for mount in service["volumes"]:
                assert mount.keys() <= MOUNT
                if mount["type"] == "bind":
                    assert (folder / mount["source"]).exists()
                else:
                    assert mount["source"] in file["volumes"]
            assert all(one["source"] in file["secrets"] for one in service.get("secrets", ()))
            for other in service.get("depends_on", {}):
                assert other in file["services"]


def test_a_site_cannot_write_its_data_and_opens_no_port(place: Deployment) -> None:
    [node] = composed(place.site("North"))["services"].values()
    assert [mount["target"] for mount in node["volumes"] if not mount.get("read_only")] == ["/site/state"]
    assert "ports" not in node
    assert "node.key" not in [mount["source"] for mount in node["volumes"]]


def test_images_have_nothing_of_the_deployment_in_them(place: Deployment) -> None:
    for folder in (place.server, place.site("North")):
        lines = [line for line in (folder / "Dockerfile").read_text().splitlines() if line and not line.startswith("#")]
        assert lines[0].startswith("FROM python:3.11")
        assert [line.split()[1:-1] for line in lines if line.startswith("COPY")] == [["Dockerfile", "*.whl"]]
        assert "USER fedgsp" in lines


def test_a_deployment_on_one_machine_needs_none(tmp_path: Path) -> None:
    assert not list(deployment(tmp_path / "fed", 2).root.rglob("compose.yaml"))


@pytest.mark.slow
def test_every_command_works_outside_a_container(place: Deployment) -> None:
    server, site = composed(place.server)["services"], place.site("North")
    [node] = composed(site)["services"].values()
    told = environment(place)

    def outside(words: list[str]) -> list[str]:
        return [word.replace("/site", str(site)) for word in words]

    def healthy(test: list[str]) -> bool:
        kind, *words = test
        shell = kind == "CMD-SHELL"
        command = outside(words)
        ran = subprocess.run(
            command[0].replace("$$", "$") if shell else command, shell=shell, env=told, capture_output=True, timeout=300
        )  # fmt: skip
        return ran.returncode == 0

    with Supervisor(place.root, told) as processes:
        assert not healthy(node["healthcheck"]["test"])
        processes.start("superlink", server["superlink"]["command"])
        processes.start("superexec", server["superexec"]["command"])
        assert healthy(server["superlink"]["healthcheck"]["test"])
        processes.start("node", outside(node["command"]))  # waits until it is known
        register(place, ["North"])
        until(lambda: presence(place).online == ["North"], 300, "the node")
        until(lambda: healthy(node["healthcheck"]["test"]), 60, "the node's health")
        processes.check("superlink", "superexec", "node")
    assert guardian.marked(processes.mark) == {}
    assert shutil.which("fedgsp", path=told["PATH"])
