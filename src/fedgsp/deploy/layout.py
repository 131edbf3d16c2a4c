"""Where things are in a deployment's folder, and the few facts about it that all commands share (deployment.toml)."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from fedgsp.core.errors import InputError
from fedgsp.core.files import write_whole

SCHEMA = 1
FILE = "deployment.toml"
ENTRIES: dict[str, type] = {"address": str, "listen": str, "insecure": bool, "one_machine": bool}


@dataclass(frozen=True)
class Deployment:
    """A deployment's folder: `address` is what nodes connect to, `listen` where the SuperLink is on the server's machine."""

    root: Path
    address: str
    listen: str
    insecure: bool = False
    one_machine: bool = False
    """Whether all nodes are on this machine too, so that `fedgsp deploy` starts and stops them."""

    @property
    def server(self) -> Path:
        """What belongs on the server's machine."""
        return self.root / "server"

    @property
    def config(self) -> Path:
        """What is trained."""
        return self.server / "fedgsp.toml"

    @property
    def app(self) -> Path:
        """The Flower app."""
        return self.root / "app"

    @property
    def runs(self) -> Path:
        """Run directories."""
        return self.root / "runs"

    @property
    def flwr_home(self) -> Path:
        """Flower's own folder of this deployment: never the user's."""
        return self.server / "flwr"

    @property
    def authority(self) -> Path | None:
        """The certificate that the server's must be signed by; None without TLS."""
        return None if self.insecure else self.server / "ca.crt"

    def site(self, name: str) -> Path:
        """The folder of a site."""
        return self.root / "sites" / name

    def sites(self) -> list[str]:
        """The names of all sites, in the order of their numbers."""
        folder = self.root / "sites"
        return sorted((p.name for p in folder.iterdir() if p.is_dir()), key=_by_number) if folder.is_dir() else []

    def write(self) -> None:
        """Leave the facts in deployment.toml."""
        server = {name: getattr(self, name) for name in ENTRIES}
        write_whole(self.root / FILE, tomli_w.dumps({"schema": SCHEMA, "server": server}).encode())

    def newest_run(self) -> Path | None:
        """The run directory that was begun last."""
        found = [path.parent for path in self.runs.glob("*/config.toml")] if self.runs.is_dir() else []
        return max(found, key=lambda path: (_began(path), path.name), default=None)


def is_deployment(root: Path) -> bool:
    """Whether a folder is a deployment's."""
    return (root / FILE).is_file()


def read_deployment(root: Path) -> Deployment:
    """A deployment from its folder."""
    file = root / FILE
    try:
        table: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{root} is not a deployment: it has no {FILE}; make one with: fedgsp deploy init {root}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"cannot read {file}: {error}.") from error
    if table.get("schema") != SCHEMA:
        raise InputError(f"{file} has schema {table.get('schema')}; this version of fedgsp reads schema {SCHEMA}.")
    server = table.get("server")
    if not isinstance(server, dict):
        raise InputError(f"{file} has no section [server].")
    for name, kind in ENTRIES.items():
        if not isinstance(server.get(name), kind):
            raise InputError(f"{file}: [server] {name} is missing, or is not a {kind.__name__}.")
    address, listen = (checked_address(server[name], f"{file} [server] {name}") for name in ("address", "listen"))
    return Deployment(root.resolve(), address, listen, server["insecure"], server["one_machine"])


def checked_address(text: str, what: str, default_port: int | None = None) -> str:
    """host:port, refused with a sentence where it is not; IPv6 addresses stand in brackets."""
    host, colon, port = text.rpartition(":")
    if (not colon or port.endswith("]")) and default_port is not None:
        host, port = text, str(default_port)
    bare = host.strip("[]")
    if not bare or (":" in bare) != host.startswith("[") or not port.isdigit() or not 0 < int(port) < 65536:
        raise InputError(f"{what} must be host:port (an IPv6 address in brackets), not '{text}'.")
    if not all(letter.isalnum() or letter in ".-_:" for letter in bare):
        raise InputError(f"{what}: '{bare}' is not the name or address of a machine.")
    return f"{host}:{port}"


def split_address(address: str) -> tuple[str, int]:
    """(host without brackets, port)."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _began(run: Path) -> float:
    try:
        return (run / "config.toml").stat().st_mtime
    except OSError:
        return 0.0


def _by_number(name: str) -> tuple[str, int, str]:
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :]
    return stem, int(digits) if digits else -1, name
