"""A deployment's configuration: an ordinary run configuration and a table `[deploy]`."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedgsp.core.errors import InputError, did_you_mean
from fedgsp.core.files import read_toml
from fedgsp.core.heartbeat import BEAT_SECONDS
from fedgsp.core.tensors import FULL, Wire
from fedgsp.deploy.server_evaluation import AT_SITES
from fedgsp.engine.transports.flower.site_checks import DTYPES, SiteLimits
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
    client's size and speed suggest, but at least `hop_seconds_floor` and at most `hop_seconds_cap`. A warm node whose heartbeat
    is not heard for `silent_seconds` is taken for gone (0: when the SuperLink takes it for gone, after 20 s). `wire` is the
    type in which models travel, `squeeze` whether answers are compressed on top of that; `norm_bound` says how many times the
    median an update may be long (see `transports/flower/update_guard.py`).
    A site counts for at most `weight_bound` times the median of all (0: for all it announces).

    `shape`, `dtype` and `classes` say what all samples are like; where one is left out, it is as most sites have it (of classes
    the most that one of these has). What a site says beyond `most_samples`, `most_classes` or `most_sites` (its number), or a
    loss beyond `loss_bound` a sample, is not believed.
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
    silent_seconds: float = 7.0
    wire: Wire = FULL
    squeeze: bool = False
    norm_bound: float = 10.0
    weight_bound: float = 5.0
    loss_bound: float = 1e6
    most_samples: int = 10_000_000
    most_classes: int = 10_000
    most_sites: int = 100_000
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    classes: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("sites", 1), ("repeats", 0), ("profile_every", 0), ("in_flight", 1), *_LIMITS):
            if getattr(self, name) < least:
                raise InputError(f"[deploy] {name} must be at least {least}, not {getattr(self, name)}.")
        for name in ("hop_seconds_floor", "hop_seconds_cap", "wait_seconds", "poll_seconds"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise InputError(f"[deploy] {name} must be a positive number of seconds, not {getattr(self, name)}.")
        if not (self.silent_seconds == 0 or 3 * BEAT_SECONDS <= self.silent_seconds < 1e6):
            raise InputError(
                f"[deploy] silent_seconds must be 0 or at least {3 * BEAT_SECONDS:g}, not {self.silent_seconds}: a heart beats "
                f"every {BEAT_SECONDS:g} seconds."
            )
        if self.hop_seconds_floor > self.hop_seconds_cap:
            raise InputError("[deploy] hop_seconds_floor must not be above hop_seconds_cap.")
        if not 0 < self.quorum <= 1:
            raise InputError(f"[deploy] quorum must be above 0 and at most 1, not {self.quorum}.")
        if not (math.isfinite(self.norm_bound) and self.norm_bound > 1):
            raise InputError(f"[deploy] norm_bound must be a number above 1, not {self.norm_bound}.")
        if not (math.isfinite(self.weight_bound) and (self.weight_bound == 0 or self.weight_bound >= 1)):
            raise InputError(f"[deploy] weight_bound must be 0 or a number of at least 1, not {self.weight_bound}.")
        if not 0 < self.loss_bound <= 1e30:
            raise InputError(f"[deploy] loss_bound must be above 0 and at most 1e30, not {self.loss_bound}.")
        if self.shape is not None:
            object.__setattr__(self, "shape", tuple(self.shape))  # of a file it is a list
        if self.shape is not None and not all(n >= 1 for n in self.shape):
            raise InputError(f"[deploy] shape must have numbers of at least 1, not {list(self.shape)}.")
        if self.dtype is not None and self.dtype not in DTYPES:
            raise InputError(f"[deploy] dtype cannot be '{self.dtype}'; {did_you_mean(self.dtype, DTYPES)}")
        if self.classes is not None and not 0 <= self.classes <= self.most_classes:
            raise InputError(f"[deploy] classes must be from 0 (real numbers) to most_classes, not {self.classes}.")

    @property
    def counts_at_most(self) -> float | None:
        """How many times the median a site may count for; None: there is no limit."""
        return self.weight_bound or None

    @property
    def limits(self) -> SiteLimits:
        """What a site may say of itself."""
        return SiteLimits(self.most_samples, self.most_classes, self.most_sites, self.loss_bound)


_LIMITS = (("most_samples", 1), ("most_classes", 1), ("most_sites", 1))


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
