"""Machines of the tests' own: network namespaces with separate addresses, joined by a bridge in the server's."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType


def permitted() -> bool:
    """Whether namespaces can be made here (root, and the kernel lets it)."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"fgsp{os.getpid()}try"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode == 0
    if made:
        linked = _ip("-n", name, "link", "add", "br0", "type", "bridge").returncode == 0
        _ip("netns", "del", name)
        return linked
    return False


class Machines:
    """A server (address 10.77.0.1) and some sites (10.77.0.2, ...), each in a namespace with its own loopback."""

    server = "10.77.0.1"

    def __init__(self, sites: Sequence[str]) -> None:
        self._prefix = f"fg{os.getpid() % 100000}"
        self._numbers = {"server": 0, **{name: k for k, name in enumerate(sites, start=1)}}

    def namespace(self, machine: str) -> str:
        """The namespace of a machine."""
        return f"{self._prefix}-{self._numbers[machine]}"

    def on(self, machine: str, *command: object) -> list[str]:
        """A command as it is run on a machine."""
        return ["ip", "netns", "exec", self.namespace(machine), *map(str, command)]

    def __enter__(self) -> Machines:
        try:
            for machine in self._numbers:
                _ip("netns", "add", self.namespace(machine), check=True)
                _ip("-n", self.namespace(machine), "link", "set", "lo", "up", check=True)
            hub = self.namespace("server")
            _ip("-n", hub, "link", "add", "br0", "type", "bridge", check=True)
            _ip("-n", hub, "addr", "add", f"{self.server}/24", "dev", "br0", check=True)
            _ip("-n", hub, "link", "set", "br0", "up", check=True)
            for machine, number in self._numbers.items():
                if number:
                    self._plug(machine, number, hub)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _plug(self, machine: str, number: int, hub: str) -> None:
        there, port = self.namespace(machine), f"port{number}"
        _ip("-n", hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", there, check=True)
        _ip("-n", hub, "link", "set", port, "master", "br0", "up", check=True)
        _ip("-n", there, "addr", "add", f"10.77.0.{number + 1}/24", "dev", "eth0", check=True)
        _ip("-n", there, "link", "set", "eth0", "up", check=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for machine in self._numbers:
            if Path(f"/run/netns/{self.namespace(machine)}").exists():
                _ip("netns", "del", self.namespace(machine))


def _ip(*arguments: str, check: bool = False) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["ip", *arguments], check=check, capture_output=True)
