"""The Ray that a run uses: one of its own on this machine, reachable from this machine only, or a cluster that is there."""

from __future__ import annotations

import math
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fedgsp.core.errors import InputError
from fedgsp.core.imports import SETTLED, need, search_path, shadowed, standard_first
from fedgsp.core.machine import cores
from fedgsp.engine.transports.ray.settings import RaySettings, room

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "1",
}
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Ray turns 127.0.0.1 into the machine's outer address unless told that there is no cluster: a switch with another system's
name, which does the same on Linux."""
KNOCK_SECONDS = 10.0
SMALLEST_STORE = 78_643_200
"""What Ray takes as the least for an object store."""


class Cluster:
    """A connection to Ray; what it started itself it stops itself."""

    def __init__(self, settings: RaySettings) -> None:
        with _told(QUIET):
            self.ray: Any = need("ray", "ray", "`engine='ray'`")
        self._settings = settings
        self._ours = False
        if not self.ray.is_initialized():
            several = _address(settings) is not None
            with _own_signals(), _told({**QUIET, LOOPBACK: str(int(several))}), _clusters(self.ray, several):
                self._connect()
            self._ours = True
        if settings.workers is None and self.capacity() == 0:
            wanted = ", ".join(f"{name} {amount:g}" for name, amount in settings.resources)
            self.close()
            raise InputError(f"no node of the Ray cluster has room for a worker ({wanted}); see `resources=`.")

    def _connect(self) -> None:
        address, common = _address(self._settings), {"log_to_driver": False, "logging_level": "ERROR"}
        if address is not None:
            try:
                _knock(address)
                self.ray.init(address=address, **common)
            except (OSError, RuntimeError, ValueError) as error:
                raise InputError(f"there is no Ray cluster at '{address}' to connect to: {_first_line(error)}.") from error
            return
        amounts = {name: amount for name, amount in self._settings.resources if name not in ("CPU", "GPU", "memory")}
        self.ray.init(
            address="local",
            num_cpus=self._cpus(),
            resources={name: amount * (self._settings.workers or 1) for name, amount in amounts.items()} or None,
            include_dashboard=False,
            _node_ip_address="127.0.0.1",
            runtime_env=_modules(),
            **common,
        )

    def _cpus(self) -> int:
        """For a Ray of our own: what the workers that were asked for need, or what the machine has."""
        each = dict(self._settings.resources).get("CPU", 1.0)
        return cores() if self._settings.workers is None else max(1, math.ceil(each * self._settings.workers))

    def nodes(self) -> dict[str, dict[str, float]]:
        """The resources of the nodes that are alive, by their number."""
        return {node["NodeID"]: dict(node["Resources"]) for node in self.ray.nodes() if node["Alive"]}

    def capacity(self) -> int:
        """How many workers there is room for."""
        return sum(room(node, self._settings.resources) for node in self.nodes().values())

    def smallest_store(self) -> int:
        """The bytes of the smallest node's object store."""
        return int(min((node.get("object_store_memory", 0.0) for node in self.nodes().values()), default=SMALLEST_STORE))

    def start(self, worker: type, *arguments: Any) -> Any:
        """An actor of a class, placed where there is room: at once, or when there is."""
        amounts = dict(self._settings.resources)
        options: dict[str, Any] = {
            "num_cpus": amounts.pop("CPU", 0.0),
            "num_gpus": amounts.pop("GPU", 0.0),
            "max_restarts": 0,
            "max_task_retries": 0,
            "scheduling_strategy": "SPREAD",
        }
        memory = amounts.pop("memory", 0.0)
        if memory:
            options["memory"] = int(memory)
        if amounts:
            options["resources"] = amounts
        return self.ray.remote(**options)(worker).remote(*arguments)

    def close(self) -> None:
        """Disconnect, and stop what was started here."""
        if self._ours:
            self._ours = False
            with _own_signals():
                self.ray.shutdown()


def _modules() -> dict[str, Any]:
    """How workers find modules: as this process does. Ray puts the working folder first, which must not shadow the library."""
    path, hidden = standard_first(search_path()), shadowed(["", *sys.path])
    variables = {"PYTHONPATH": os.pathsep.join(folder for folder in path if folder), SETTLED: ",".join(hidden)}
    hook = {"worker_process_setup_hook": "fedgsp.core.imports.settle_told"} if hidden else {}
    return {"env_vars": variables, **hook}


def _address(settings: RaySettings) -> str | None:
    address = settings.address or os.environ.get("RAY_ADDRESS") or None
    if address is not None and address.startswith("ray://"):
        raise InputError(
            f"'{address}' is an address of Ray Client, which cannot carry models; start fedgsp on a node of the cluster, with "
            f"--address auto, or send it there with `ray job submit`."
        )
    return None if address == "local" else address


def _knock(address: str) -> None:
    """Fail at once where nobody listens: Ray itself would try for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_SECONDS).close()


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


@contextmanager
def _told(variables: Mapping[str, str]) -> Iterator[None]:
    """Variables of the environment, where they are not set, for what Ray reads and starts now; nobody else is to find them."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextmanager
def _clusters(ray: Any, several: bool) -> Iterator[None]:
    """The same switch as LOOPBACK in this process, where Ray has read its variable already."""
    constants: Any = getattr(ray._private, "ray_constants", None)
    before = getattr(constants, "ENABLE_RAY_CLUSTER", None)
    if before is None:
        yield
        return
    constants.ENABLE_RAY_CLUSTER = several
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray puts handlers of its own in place of ours, by which a run comes to a whole end."""
    try:
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        yield
        for number, handler in before.items():
            if signal.getsignal(number) is not handler and handler is not None:
                signal.signal(number, handler)
    except ValueError:  # not the main thread: nothing was put in place either
        return
