"""A deployment's configuration: an ordinary run configuration and a table `[deploy]`."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedgsp.core.errors import InputError
from fedgsp.core.files import read_toml
from fedgsp.core.tensors import FULL, Wire
from fedgsp.deploy.server_evaluation import AT_SITES
from fedgsp.parts import kind_of
from fedgsp.run.config import RunConfig, from_dict, section

if TYPE_CHECKING:
    from fedgsp.method import Method


@dataclass(frozen=True)
class DeploySettings:
    """How a server treats its sites.

    `sites` must have introduced themselves before the first round; the server waits `wait_seconds` for them, and as long again
    for a quorum that was lost. A round counts if at least the share `quorum` of its planned samples was trained; else it is
    repeated up to `repeats` times, then the run pauses. Profiles are asked for anew every `profile_every` rounds (0: only from
    sites that are new or announce new data). At most `in_flight` messages are on their way. A hop may take as long as the
    client's size and speed suggest, but at least `hop_seconds_floor` and at most `hop_seconds_cap`. `wire` is the type in which
    models travel, `norm_bound` how many times the median an update may be long (see `transports/flower/update_guard.py`).
    """

    sites: int = 1
    quorum: float = 0.5
    repeats: int = 2
    profile_every: int = 10
    in_flight: int = 8
    hop_seconds_floor: float = 60.0
    hop_seconds_cap: float = 3600.0
    wait_seconds: float = 600.0
    poll_seconds: float = 0.5
    wire: Wire = FULL
    norm_bound: float = 10.0

    def __post_init__(self) -> None:
        for name, least in (("sites", 1), ("repeats", 0), ("profile_every", 0), ("in_flight", 1)):
            if getattr(self, name) < least:
                raise InputError(f"[deploy] {name} must be at least {least}, not {getattr(self, name)}.")
        for name in ("hop_seconds_floor", "hop_seconds_cap", "wait_seconds", "poll_seconds"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise InputError(f"[deploy] {name} must be a positive number of seconds, not {getattr(self, name)}.")
        if self.hop_seconds_floor > self.hop_seconds_cap:
            raise InputError("[deploy] hop_seconds_floor must not be above hop_seconds_cap.")
        if not 0 < self.quorum <= 1:
            raise InputError(f"[deploy] quorum must be above 0 and at most 1, not {self.quorum}.")
        if not (math.isfinite(self.norm_bound) and self.norm_bound > 1):
            raise InputError(f"[deploy] norm_bound must be a number above 1, not {self.norm_bound}.")


def read_deployment(path: Path) -> tuple[RunConfig, DeploySettings]:
    """The configuration of a server; without `[data]` it has no samples of its own."""
    table = read_toml(path, "the configuration")
    settings: DeploySettings = section(DeploySettings, table.pop("deploy", {}), f"{path} [deploy]")
    has_data = "source" in table.get("data", {})
    config = from_dict(table, str(path))
    if not has_data:
        config = replace(config, data=replace(config.data, source=AT_SITES))
    check_deployable(config)
    return config, settings


def check_deployable(config: RunConfig) -> None:
    """Say in one sentence why a method or an option cannot be had with real clients."""
    reason = why_not(config.method)
    if reason is not None:
        raise InputError(reason)
    if config.run.holdout_clients:
        raise InputError("holdout_clients is for simulations: who must not train on a site's data should not deploy one there.")


def why_not(method: Method) -> str | None:
    """Why a method cannot run on real clients; None for those that can."""
    if method.preparation is not None:
        return (
            f"the method '{method.name}' cannot be deployed: its preparation '{kind_of(method.preparation)}' works on the "
            f"samples of all clients in one place, and a deployment leaves them where they are."
        )
    return None
