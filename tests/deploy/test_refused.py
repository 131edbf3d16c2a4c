"""Who may not join a real SuperLink: a node that is not registered, without a key, without TLS, or with another authority."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedgsp.deploy import guardian
from fedgsp.deploy.certificates import Authority, make_node_key, read_node_key
from fedgsp.deploy.local import LocalDeployment, free_ports, presence, register, unregister
from fedgsp.deploy.sitecheck import check_site
from fedgsp.deploy.superlink import Distrusted, SuperLink, Unreachable
from tests.support.real_deployments import deployment
from tests.support.waiting import until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalDeployment]:
    """A SuperLink with TLS and node keys, and two registered sites that are not connected."""
    place = deployment(tmp_path_factory.mktemp("refused") / "d", 2, data="glyphs:clients=2")
    with LocalDeployment(place, print) as processes:
        processes.start_server()
        yield processes
    assert guardian.marked(processes.supervisor.mark) == {}


def tried(server: LocalDeployment, name: str, *flags: object) -> str:
    """A real SuperNode that gives up after one more try; what it said."""
    [port] = free_ports(1)
    command = ["flower-supernode", "--superlink", server.place.address, "--host", "127.0.0.1", "--port", str(port)]
    node = server.supervisor.start(name, [*command, "--max-retries", "1", "--max-wait-time", "5", *map(str, flags)])
    until(lambda: not node.alive, 60, f"{name} to give up")
    assert presence(server.place, server.link).online == []
    return (server.place.root / "logs" / f"{name}.log").read_text()


def test_an_unregistered_node_is_refused(server: LocalDeployment, tmp_path: Path) -> None:
    make_node_key(tmp_path / "node.key", tmp_path / "node.pub", "stranger")
    authority = server.place.site("site-0") / "ca.crt"
    said = tried(server, "stranger", "--root-certificates", authority, "--auth-supernode-private-key", tmp_path / "node.key")
    assert "Failed to activate SuperNode" in said


def test_a_node_without_a_key_is_refused(server: LocalDeployment) -> None:
    said = tried(server, "keyless", "--root-certificates", server.place.site("site-0") / "ca.crt")
    assert "All SuperNodes must be registered" in said


def test_a_plaintext_node_is_refused(server: LocalDeployment) -> None:
    said = tried(server, "plaintext", "--insecure")
    assert "could not establish a connection" in said


def test_a_node_that_trusts_another_authority_does_not_connect(server: LocalDeployment, tmp_path: Path) -> None:
    Authority.make("other").write(tmp_path / "ca.crt", tmp_path / "ca.key")
    key = server.place.site("site-0") / "node.key"
    said = tried(server, "elsewhere", "--root-certificates", tmp_path / "ca.crt", "--auth-supernode-private-key", key)
    assert "CERTIFICATE_VERIFY_FAILED" in said


def test_the_same_from_here(server: LocalDeployment, tmp_path: Path) -> None:
    """What our own client of the SuperLink makes of each refusal."""
    address = server.place.address
    Authority.make("other").write(tmp_path / "ca.crt", tmp_path / "ca.key")
    with pytest.raises(Distrusted, match="does not prove to be ours"):
        SuperLink(address, tmp_path / "ca.crt").nodes()
    with pytest.raises(Unreachable):
        SuperLink(address, None).nodes()
    make_node_key(tmp_path / "node.key", tmp_path / "node.pub", "stranger")
    assert server.link.knows(read_node_key(tmp_path / "node.key")) is False
    assert server.link.knows(read_node_key(server.place.site("site-1") / "node.key")) is True
    assert presence(server.place, server.link).online == []


def test_others_on_this_machine_get_no_task_of_the_server(server: LocalDeployment) -> None:
    """The ServerApp's token is only given out for the shared secret; a node's calls only for its signature."""
    host, _, port = server.place.address.partition(":")
    context = ssl.create_default_context(cafile=str(server.place.server / "ca.crt"))
    for path in ("/v1/runtime/acquire-task", "/v1/fleet/pull-messages"):
        connection = http.client.HTTPSConnection(host, int(port), context=context)
        connection.request("POST", path, b"", {"content-type": "application/protobuf", "accept": "application/protobuf"})
        assert connection.getresponse().status == 401, path
        connection.close()


def test_a_site_checks_itself_before_it_joins(server: LocalDeployment, tmp_path: Path) -> None:
    site = server.place.site("site-0")
    found = {check.name: check for check in check_site(site, None)}
    assert {name: check.verdict for name, check in found.items()} == dict.fromkeys(
        ("site.toml", "sizes", "shapes", "labels", "disk", "keys", "authority", "clock", "connection"), "ok"
    )
    for name in ("site.toml", "ca.crt", "superlink.txt", "federation.toml"):
        (tmp_path / name).write_bytes((site / name).read_bytes())
    make_node_key(tmp_path / "node.key", tmp_path / "node.pub", "site-0")
    stranger = {check.name: check for check in check_site(tmp_path, None)}
    assert stranger["connection"].verdict == "wrong"
    assert "does not know this node's key" in stranger["connection"].text


def test_registering_again_changes_nothing(server: LocalDeployment) -> None:
    before = server.link.nodes()
    assert register(server.place) == []
    assert server.link.nodes() == before


def test_a_site_that_is_shut_out_is_refused(server: LocalDeployment) -> None:
    key = read_node_key(server.place.site("site-1") / "node.key")
    assert unregister(server.place, ["site-1"]) == ["site-1"]
    assert server.link.knows(key) is False
    assert presence(server.place, server.link).unknown == ["site-1"]
