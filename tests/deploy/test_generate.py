"""What `fedgsp deploy init` writes: complete, secure as it stands, and accepted by the programs it is written for."""

from __future__ import annotations

import shutil
import stat
import subprocess
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedgsp.core.errors import InputError
from fedgsp.deploy.generate import Expected, SiteData, Wanted, write_deployment
from fedgsp.deploy.layout import Deployment, checked_address, read_deployment

EXPECTED = Expected((28, 28), "uint8", 62)


def written(root: Path, *, insecure: bool = False, **wanted: object) -> Deployment:
    place = Deployment(root, "fed.example.org:8443", "127.0.0.1:9443", insecure)
    sites = {"north": SiteData("npz:/data/all.npz", "north", 0), "south": SiteData('csv:a "b".csv')}
    write_deployment(place, Wanted(sites, expected=EXPECTED, **wanted))  # type: ignore[arg-type]
    return place


def test_everything_is_there_and_reads_back(tmp_path: Path) -> None:
    place = written(tmp_path / "d")
    assert read_deployment(tmp_path / "d") == place
    assert place.sites() == ["north", "south"]
    names = {str(path.relative_to(place.root)) for path in place.root.rglob("*") if path.is_file()}
    site = {
        "site.toml",
        "node.key",
        "node.pub",
        "ca.crt",
        "start.sh",
        "fedgsp-node.service",
        "superlink.txt",
        "federation.toml",
        "Dockerfile",
        "compose.yaml",
    }
    server = {
        "fedgsp.toml", "ca.crt", "server.crt", "server.key", "superexec.secret", "environment.sh", "superlink.sh", "start.sh",
        "superexec.sh", "nginx.conf", "fedgsp-superlink.service", "fedgsp-superexec.service", "fedgsp-metrics.service",
        "flwr/config.toml", "Dockerfile", "compose.yaml",
    }  # fmt: skip
    app = {"pyproject.toml", "LICENSE", "README.md", "fedgsp_app/__init__.py", "fedgsp_app/server.py", "fedgsp_app/client.py"}
    assert names == {
        "deployment.toml", "README.md", "authority/ca.key",
        *(f"server/{name}" for name in server), *(f"app/{name}" for name in app),
        *(f"sites/{where}/{name}" for where in ("north", "south") for name in site),
    }  # fmt: skip


def test_secrets_are_their_owners_only_and_the_authority_is_apart(tmp_path: Path) -> None:
    place = written(tmp_path / "d")
    secret = {
        "authority/ca.key",
        "server/server.key",
        "server/superexec.secret",
        "sites/north/node.key",
        "sites/south/node.key",
    }
    for name in secret:
        assert stat.S_IMODE((place.root / name).stat().st_mode) == 0o600, name
    private = {
        str(p.relative_to(place.root)) for p in place.root.rglob("*") if p.is_file() and b"PRIVATE KEY" in p.read_bytes()
    }
    assert private == secret - {"server/superexec.secret"}


def test_tls_and_node_keys_are_on(tmp_path: Path) -> None:
    place = written(tmp_path / "d")
    link, node = (place.server / "superlink.sh").read_text(), (place.site("north") / "start.sh").read_text()
    for flag in (
        "--ssl-certfile",
        "--ssl-keyfile",
        "--enable-supernode-auth",
        "--superexec-auth-secret-file",
        "--host 127.0.0.1",
    ):
        assert flag in link
    assert "fedgsp node" in node
    assert "--root-certificates" in node
    assert "--auth-supernode-private-key" in node
    everything = "".join(p.read_text(errors="replace") for p in place.root.rglob("*") if p.is_file())
    assert "--insecure" not in everything
    assert "insecure = true" not in everything.lower()


def test_insecure_says_so_everywhere(tmp_path: Path) -> None:
    place = written(tmp_path / "d", insecure=True)
    assert "--insecure" in (place.server / "superlink.sh").read_text()
    assert "--insecure" in (place.site("north") / "start.sh").read_text()
    assert "INSECURE" in (place.root / "README.md").read_text()
    assert not list(place.root.rglob("*.key"))
    assert not (place.server / "nginx.conf").exists()


def test_its_settings_are_what_was_asked_for(tmp_path: Path) -> None:
    place = written(tmp_path / "d", method="fedavg", model="leaf_cnn", rounds=7, seed=3, server_data="glyphs:clients=2")
    table = tomllib.loads(place.config.read_text())
    assert table["run"] == {"rounds": 7, "seed": 3, "eval_every": 1}
    assert "An evaluation sends the whole model to every site once more" in place.config.read_text()
    assert table["method"]["name"] == "fedavg"
    assert table["model"]["name"] == "leaf_cnn"
    assert table["data"]["source"] == "glyphs:clients=2"
    north, south = (tomllib.loads((place.site(name) / "site.toml").read_text()) for name in ("north", "south"))
    assert north["site"] == {"name": "north", "number": 0}
    assert north["data"] == {"source": "npz:/data/all.npz", "client": "north"}
    assert south["data"] == {"source": 'csv:a "b".csv'}
    assert tomllib.loads((place.site("north") / "federation.toml").read_text())["shape"] == [28, 28]


def test_every_entry_of_deploy_is_shown_with_its_default(tmp_path: Path) -> None:
    from fedgsp.deploy.settings import DeploySettings, read_deployment

    config = written(tmp_path / "d").config
    text = config.read_text()
    shown = text[text.index("[deploy]") :]
    assert "\nsites = 2 " in shown
    for name in vars(DeploySettings()).keys() - {"sites", "shape", "dtype", "classes"}:
        assert f"# {name} = " in shown
    _, settings = read_deployment(config)  # what samples are like is stated, so that no site can say otherwise
    assert (settings.shape, settings.dtype, settings.classes) == ((28, 28), "uint8", 62)


def test_nodes_of_one_machine_have_ports_of_their_own(tmp_path: Path) -> None:
    place = written(tmp_path / "d", node_ports=(9101, 9102))
    assert "${PORT:-9101}" in (place.site("north") / "start.sh").read_text()
    assert "${PORT:-9102}" in (place.site("south") / "start.sh").read_text()


def test_scripts_are_shell_and_can_be_run(tmp_path: Path) -> None:
    place = written(tmp_path / "a folder with spaces")
    scripts = sorted(place.root.rglob("*.sh"))
    assert len(scripts) == 6
    for script in scripts:
        subprocess.run(["sh", "-n", str(script)], check=True)
        assert script.name == "environment.sh" or script.stat().st_mode & 0o111


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
def test_units_are_accepted_by_systemd(tmp_path: Path) -> None:
    place = written(tmp_path / "d")
    units = [str(path) for path in sorted(place.root.rglob("*.service"))]
    assert len(units) == 5
    found = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True)
    ours = [line for line in found.stderr.splitlines() if str(place.root) in line and "is not executable" not in line]
    assert ours == []


@pytest.mark.skipif(shutil.which("nginx") is None, reason="needs nginx")
def test_the_proxy_configuration_is_accepted_by_nginx(tmp_path: Path) -> None:
    place = written(tmp_path / "d")
    main = tmp_path / "nginx.conf"
    main.write_text(f'pid {tmp_path}/pid; error_log stderr; events {{}} http {{ include "{place.server}/nginx.conf"; }}\n')
    found = subprocess.run(["nginx", "-t", "-p", str(tmp_path), "-c", str(main)], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(InputError, match="not empty"):
        written(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("name", ["", "../up", "a b", ".hidden", "x" * 80])
def test_names_that_cannot_be_folders_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="cannot be the name"):
        write_deployment(Deployment(tmp_path / "d", "h:1", "127.0.0.1:2"), Wanted({name: SiteData("glyphs")}))
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("text", ["host", "host:0", "host:99999", "::1:80", "ho st:1", ":80", "a;b:1"])
def test_addresses_are_checked(text: str) -> None:
    with pytest.raises(InputError, match="--address"):
        checked_address(text, "--address")


def test_good_addresses() -> None:
    assert checked_address("fed.example.org", "x", 8443) == "fed.example.org:8443"
    assert checked_address("[::1]:8443", "x") == "[::1]:8443"
    assert checked_address("[::1]", "x", 8443) == "[::1]:8443"


def test_a_damaged_deployment_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no deployment\.toml"):
        read_deployment(tmp_path)
    (tmp_path / "deployment.toml").write_text('schema = 9\n[server]\naddress = "h:1"\n')
    with pytest.raises(InputError, match="schema 9"):
        read_deployment(tmp_path)
    (tmp_path / "deployment.toml").write_text('schema = 1\n[server]\naddress = "h:1"\n')
    with pytest.raises(InputError, match=r"\[server\] listen"):
        read_deployment(tmp_path)
