"""`fedgsp deploy init`: a whole deployment on disk, secure as it stands, with a comment wherever somebody has to decide."""

from __future__ import annotations

import re
import secrets
import shlex
import string
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import tomli_w

from fedgsp.core.errors import InputError
from fedgsp.deploy.certificates import Authority, make_node_key, write_secret
from fedgsp.deploy.layout import Deployment, split_address

SITE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
NODE_PORT = 9094
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class _Template(string.Template):
    """`@{name}` is replaced: shell, nginx and systemd have uses of their own for `$` and `%`."""

    delimiter = "@"


@dataclass(frozen=True)
class SiteData:
    """What a site holds: a source, and which of its clients the site is (None: the source has one client only)."""

    source: str
    client: str | None = None
    number: int | None = None


@dataclass(frozen=True)
class Expected:
    """What the federation expects of every site's data, where that is known beforehand."""

    shape: tuple[int, ...]
    dtype: str
    classes: int
    class_names: tuple[str, ...] | None = None

    def to_toml(self) -> str:
        """The text of federation.toml."""
        table: dict[str, Any] = {"schema": 1, "shape": list(self.shape), "dtype": self.dtype, "classes": self.classes}
        if self.class_names is not None:
            table["class_names"] = list(self.class_names)
        head = "# What every site's data must look like; `fedgsp site check` compares.\n"
        return head + tomli_w.dumps(table)


@dataclass(frozen=True)
class Wanted:
    """What a new deployment is to be."""

    sites: dict[str, SiteData]
    method: str = "fedgsp"
    model: str = "small_cnn"
    rounds: int = 20
    seed: int = 0
    server_data: str | None = None
    expected: Expected | None = None
    config: str | None = None
    planner: dict[str, Any] | None = None
    """A planner in place of the method's own."""
    hosts: Sequence[str] = field(default=())
    stock_nodes: bool = False
    """Whether sites start Flower's own SuperNode in place of `fedgsp node`."""
    node_ports: Sequence[int] = ()
    """Where stock nodes listen on loopback, a port a site, where they share a machine; else all listen on the usual one."""


def write_deployment(place: Deployment, wanted: Wanted) -> None:
    """Write everything into a folder that is new or empty."""
    root = place.root
    check_sites(wanted.sites)
    try:
        root.mkdir(parents=True, exist_ok=True)
        if any(root.iterdir()):
            raise InputError(f"{root} is not empty; choose another place for the deployment.")
        for folder in (place.server, place.flwr_home, place.runs, place.app / "fedgsp_app"):
            folder.mkdir(parents=True)
    except OSError as error:
        raise InputError(f"cannot create the deployment {root}: {error.strerror}.") from error
    words = _words(place, wanted)
    _write_server(place, wanted, words)
    _write_app(place, words)
    ports = wanted.node_ports or [NODE_PORT] * len(wanted.sites)
    for (name, shard), port in zip(wanted.sites.items(), ports, strict=True):
        _write_site(place, name, shard, wanted.expected, {**words, "node_port": str(port)})
    _write(root / "README.md", "README.md", words)
    place.write()


def check_sites(names: Sequence[str] | dict[str, SiteData]) -> None:
    """Names of sites are names of folders, of certificates' subjects and of metrics' labels."""
    if not names:
        raise InputError("a deployment needs at least one site.")
    for name in names:
        if not SITE_NAME.fullmatch(name):
            raise InputError(f"'{name}' cannot be the name of a site: use letters, digits, '.', '_' and '-' only.")


def _words(place: Deployment, wanted: Wanted) -> dict[str, str]:
    listen_host, listen_port = split_address(place.listen)
    host, port = split_address(place.address)
    tls = '--ssl-ca-certfile "$here/ca.crt" --ssl-certfile "$here/server.crt" --ssl-keyfile "$here/server.key"'
    node_tls = '--root-certificates "$here/ca.crt" --auth-supernode-private-key "$here/node.key"'
    warning = "This deployment is INSECURE: no encryption, and any node may join. Use it nowhere but on one machine, for tests."
    return {
        "root": str(place.root),
        "bin": str(Path(sys.executable).parent),
        "flwr_version": metadata.version("flwr"),
        "version": metadata.version("fedgsp"),
        "address": place.address,
        "listen": place.listen,
        "listen_host": shlex.quote(listen_host),
        "listen_port": str(listen_port),
        "public_host": host,
        "public_port": str(port),
        "superlink_tls": "--insecure" if place.insecure else f"{tls} --enable-supernode-auth",
        "superexec_tls": "--insecure" if place.insecure else '--root-certificates "$here/ca.crt"',
        "supernode_tls": "--insecure" if place.insecure else node_tls,
        "eval_every": "5" if wanted.stock_nodes else "1",
        "node_kind": "stock" if wanted.stock_nodes else "warm",
        "node_insecure": " --insecure" if place.insecure else "",
        "connection_tls": "insecure = true" if place.insecure else f'root-certificates = "{place.server / "ca.crt"}"',
        "warning": f"\n**{warning}**\n" if place.insecure else "",
        "method": _toml(wanted.method),
        "model": _toml(wanted.model),
        "rounds": str(wanted.rounds),
        "seed": str(wanted.seed),
        "sites": str(len(wanted.sites)),
        "planner_section": _planner(wanted),
    }


def _write_server(place: Deployment, wanted: Wanted, words: dict[str, str]) -> None:
    server = place.server
    if not place.insecure:
        hosts = [split_address(place.address)[0], split_address(place.listen)[0], *wanted.hosts, *LOOPBACK]
        (place.root / "authority").mkdir(mode=0o700)
        authority = Authority.make(f"fedgsp authority {secrets.token_hex(4)}")
        authority.write(server / "ca.crt", place.root / "authority" / "ca.key")
        authority.sign_server(hosts, server / "server.crt", server / "server.key")
    write_secret(server / "superexec.secret", secrets.token_hex(32).encode())
    own = wanted.server_data
    data = f"\n[data]\n# The server's own test data.\nsource = {_toml(own)}\n" if own else _NO_DATA
    if wanted.config is None:
        _write(server / "fedgsp.toml", "server/fedgsp.toml", {**words, "data_section": data, **_settings(wanted.expected)})
    else:
        (server / "fedgsp.toml").write_text(wanted.config, encoding="utf-8")
    for name in ("environment.sh", "superlink.sh", "superexec.sh", "start.sh"):
        _write(server / name, f"server/{name}", words, executable=name != "environment.sh")
    for name in ("fedgsp-superlink.service", "fedgsp-superexec.service", "fedgsp-metrics.service"):
        _write(server / name, f"server/{name}", words)
    if not place.insecure:
        _write(server / "nginx.conf", "server/nginx.conf", words)
    if _contained(place):
        for name in ("Dockerfile", "compose.yaml"):
            _write(server / name, f"server/{name}", words)
    _write(place.flwr_home / "config.toml", "server/flwr-config.toml", words)


_NO_DATA = """
# [data]
# source = "npz:..."   # the server's own test data, where it has such; else the model is evaluated on the clients
"""


def _settings(expected: Expected | None) -> dict[str, str]:
    """The lines of `[deploy]`: what samples are like, where that is known, and all else as comments."""
    from fedgsp.deploy.settings import DeploySettings

    stated: dict[str, Any] = {}
    if expected is not None:
        stated = {"shape": list(expected.shape), "dtype": expected.dtype, "classes": expected.classes}
    lines = [f"{name} = {_inline(value)}" for name, value in stated.items()]
    others = {name: value for name, value in vars(DeploySettings()).items() if name != "sites" and name not in stated}
    lines += [f"# {name} = {_toml(value)}" for name, value in others.items()]
    return {"deploy_settings": "\n".join(lines)}


def _inline(value: Any) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list) else _toml(value)


def _planner(wanted: Wanted) -> str:
    if wanted.planner is None:
        return ""
    text = f"\n# Fitted to {len(wanted.sites)} sites: all of them train in every round.\n"
    return text + tomli_w.dumps({"method": {"planner": wanted.planner}}).replace("[method]\n", "").strip()


def _toml(value: Any) -> str:
    return tomli_w.dumps({"x": value}).partition("=")[2].strip() if value is not None else "unset"


def _write_app(place: Deployment, words: dict[str, str]) -> None:
    for name in ("pyproject.toml", "LICENSE", "README.md"):
        _write(place.app / name, f"app/{name}", words)
    for name in ("__init__.py", "server.py", "client.py"):
        _write(place.app / "fedgsp_app" / name, f"app/fedgsp_app/{name}", words)


def _write_site(place: Deployment, name: str, shard: SiteData, expected: Expected | None, words: dict[str, str]) -> None:
    folder = place.site(name)
    folder.mkdir(parents=True)
    client = shard.client
    lines = {
        "site": name,
        "source": _toml(shard.source),
        "client_line": f"client = {_toml(client)}" if client is not None else '# client = "name"',
        "number_line": f"number = {shard.number}" if shard.number is not None else "# number = 0",
    }
    _write(folder / "site.toml", "site/site.toml", {**words, **lines})
    _write(folder / "start.sh", "site/start.sh", {**words, **lines}, executable=True)
    _write(folder / "fedgsp-node.service", "site/fedgsp-node.service", {**words, **lines})
    if _contained(place):
        for template in ("Dockerfile", "compose.yaml"):
            _write(folder / template, f"site/{template}", {**words, "project": re.sub("[^a-z0-9_-]", "-", name.lower())})
        (folder / "data").mkdir()
    (folder / "superlink.txt").write_text(place.address + "\n")
    (folder / "flwr").mkdir()
    if expected is not None:
        (folder / "federation.toml").write_text(expected.to_toml(), encoding="utf-8")
    if not place.insecure:
        (folder / "ca.crt").write_bytes((place.server / "ca.crt").read_bytes())
        make_node_key(folder / "node.key", folder / "node.pub", name)


def _contained(place: Deployment) -> bool:
    """Whether containers make sense: on several machines, with keys."""
    return not (place.insecure or place.one_machine)


def _write(path: Path, template: str, words: dict[str, str], *, executable: bool = False) -> None:
    text = resources.files("fedgsp.deploy").joinpath("files", f"{template}.in").read_text(encoding="utf-8")
    path.write_text(_Template(text).substitute(words), encoding="utf-8")
    if executable:
        path.chmod(0o755)
