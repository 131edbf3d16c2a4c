"""The containers that `fedgsp deploy init` writes: what they may do, and that every command in them works, outside of one.

`compose-spec.json` is the schema of the Compose specification (github.com/compose-spec/compose-spec, schema/compose-spec.json,
Apache License 2.0), as the package check-jsonschema 0.39.0 ships it.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")
pytest.importorskip("yaml")
pytest.importorskip("jsonschema")

import jsonschema
import yaml  # type: ignore[import-untyped]
from packaging.requirements import Requirement

from fedgsp.deploy import guardian
from fedgsp.deploy.generate import SiteData, Wanted, write_deployment
from fedgsp.deploy.layout import Deployment
from fedgsp.deploy.local import environment, free_ports, presence, register
from fedgsp.deploy.supervise import Supervisor
from tests.support.real_deployments import deployment
from tests.support.waiting import until

SCHEMA = Path(__file__).with_name("compose-spec.json")


@pytest.fixture
def place(tmp_path: Path) -> Deployment:
    port, listen, proxy = free_ports(3)
    made = Deployment(tmp_path / "fed", f"127.0.0.1:{proxy}", f"127.0.0.1:{listen}")
    sites = {"North": SiteData("glyphs:clients=2", "0", 0), "south": SiteData("glyphs:clients=2", "1", 1)}
    write_deployment(made, Wanted(sites, node_ports=(port, port)))
    return made


def composed(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((folder / "compose.yaml").read_text())
    return found


def test_the_files_are_as_the_specification_says(place: Deployment) -> None:
    check = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
    for folder in (place.server, place.site("North"), place.site("south")):
        file = composed(folder)
        assert [error.message for error in check.iter_errors(file)] == []
        first = next(iter(file["services"].values()))
        wrong: dict[str, Any]
        for wrong in ({"healthcheck": {"tests": []}}, {"readonly": True}, {"volumes": [{"typ": "bind"}]}):
            odd = {**file, "services": {"one": {**first, **wrong}}}
            assert next(check.iter_errors(odd), None) is not None, wrong


def test_little_is_allowed(place: Deployment) -> None:
    for folder in (place.server, place.site("North"), place.site("south")):
        file = composed(folder)
        assert re.fullmatch("[a-z0-9][a-z0-9_-]*", file["name"])
        assert not (folder / file["name"]).exists()
        for secret in file["secrets"].values():
            assert (folder / secret["file"]).stat().st_mode & 0o077 == 0
        for name, service in file["services"].items():
            assert service["read_only"] is True
            assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
            assert service["restart"] == "unless-stopped"
            if name != "proxy":  # nginx changes its user by itself
                assert (service["cap_drop"], service["security_opt"]) == (["ALL"], ["no-new-privileges:true"])
            for mount in service["volumes"]:
                if mount["type"] == "bind":
                    assert (folder / mount["source"]).exists()
                    assert not (place.root / "authority").is_relative_to(folder / mount["source"])
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


def test_what_builds_an_image_runs(place: Deployment, tmp_path: Path) -> None:
    """`RUN`, with a pip that only says what it was asked for and a user of another root."""
    tools, files = tmp_path / "tools", tmp_path / "wheels"
    tools.mkdir()
    for folder in (place.server, place.site("North")):
        files.mkdir()
        text = (folder / "Dockerfile").read_text().replace("\\\n", "")
        [line] = re.findall("^RUN (.*)$", text, re.MULTILINE)
        [wanted] = re.findall('^ARG FEDGSP="(.*)"$', text, re.MULTILINE)
        assert Requirement(wanted).extras == {"flower"}
        for name in ("pip", "useradd"):
            tool = tools / name
            tool.write_text(f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/asked\n')
            tool.chmod(0o755)
        told = {"PATH": f"{tools}:/usr/bin:/bin", "FEDGSP": wanted}
        subprocess.run(["sh", "-euc", line.replace("/tmp/wheels", str(files))], env=told, check=True, timeout=300)
        assert not files.exists()
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked == [f"pip install --no-cache-dir {wanted}", "useradd --system --uid 10001 --no-create-home fedgsp"] * 2


@pytest.mark.slow
def test_every_command_works_outside_a_container(place: Deployment) -> None:
    server, site = composed(place.server)["services"], place.site("North")
    [node] = composed(site)["services"].values()
    told = environment(place)

    def outside(words: list[str]) -> list[str]:
        return [word.replace("/site", str(site)) for word in words]

    nginx = place.root / "nginx.conf"
    nginx.write_text(
        f"daemon off; pid {place.root}/pid; error_log {place.root}/error.log; events {{}}\n"
        f'http {{ access_log off; include "{place.server}/nginx.conf"; }}\n'
    )

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
        assert not healthy(server["superexec"]["healthcheck"]["test"])
        assert not healthy(server["proxy"]["healthcheck"]["test"])
        processes.start("superlink", server["superlink"]["command"])
        processes.start("superexec", server["superexec"]["command"])
        assert healthy(server["superlink"]["healthcheck"]["test"])
        assert healthy(server["superexec"]["healthcheck"]["test"])
        if shutil.which("nginx"):
            processes.start("proxy", ["nginx", "-p", str(place.root), "-c", str(nginx)])
            until(lambda: healthy(server["proxy"]["healthcheck"]["test"]), 60, "the proxy's health")
        processes.start("node", outside(node["command"]))  # waits until it is known
        register(place, ["North"])
        until(lambda: presence(place).online == ["North"], 300, "the node")
        until(lambda: healthy(node["healthcheck"]["test"]), 60, "the node's health")
        processes.check("superlink", "superexec", "node")
    assert guardian.marked(processes.mark) == {}
    assert shutil.which("fedgsp", path=told["PATH"])
