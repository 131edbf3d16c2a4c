"""Whole deployments in this process: tiny sites on disk, an in-process Grid, the real ServerApp's loop."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fedgsp
from fedgsp.client import SGD
from fedgsp.deploy.server_app import serve
from fedgsp.deploy.settings import DeploySettings
from fedgsp.method import Method
from fedgsp.methods import named
from fedgsp.plan import ICG, Constant, Grouped
from fedgsp.run.config import DataSection, ModelSection, RunConfig, RunSection
from fedgsp.run.replay import Replay
from fedgsp.run.result import RunResult
from fedgsp.server import Mean
from tests.support import flower_grid, tiny


@dataclass
class Deployment:
    """A federation, a site for each of its clients, and a Grid of their nodes."""

    folder: Path
    source: str
    grid: flower_grid.InProcessGrid
    sites: list[Path]
    config: RunConfig
    settings: DeploySettings

    @property
    def run(self) -> Path:
        return self.folder / "run"

    def serve(self, *, resume: bool = False, out: Path | None = None, **changes: Any) -> RunResult:
        settings = replace(self.settings, **changes)
        return serve(self.grid, self.config, settings, out or self.run, resume=resume, clock=self.grid.clock)

    def replay(self, out: Path | None = None) -> Replay:
        return fedgsp.replay(out or self.run, workers=0, data=fedgsp.load(self.source))

    def local(self) -> RunResult:
        """The same run on this machine."""
        options = self.config.run
        return fedgsp.train(
            self.config.method, self.source, self.config.model.name, rounds=options.rounds, seed=options.seed, workers=0,
            fast=options.fast, eval_every=options.eval_every, validation=self.config.data.validation,
        )  # fmt: skip

    def events(self, kind: str, out: Path | None = None) -> list[dict[str, Any]]:
        lines = ((out or self.run) / "events.jsonl").read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["event"] == kind]


def method(name: str, lr: float = 0.05) -> Method:
    found = named(name)
    return replace(found, local=replace(found.local, lr=lr, batch_size=3))


def chains(groups: int = 2, rule: SGD | None = None) -> Method:
    """All clients in so many chains."""
    return Method(Grouped(Constant(groups), ICG(), kappa=1.0), rule or SGD(lr=0.05, batch_size=3), Mean(), name="chains")


def deployment(
    folder: Path,
    chosen: str | Method = "fedgsp",
    *,
    clients: int = 8,
    rounds: int = 3,
    fast: Any = "off",
    model: str = tiny.LINEAR,
    run: dict[str, Any] | None = None,
    data: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None,
    sites: dict[str, Any] | None = None,
    models: Sequence[str] = (tiny.LINEAR, tiny.NORMED),
) -> Deployment:
    """A deployment of the tiny federation."""
    folder.mkdir(exist_ok=True, parents=True)
    source = str(tiny.write_npz(folder / "data.npz", clients))
    names = [f"site-{k:02d}" for k in range(clients)]
    paths = flower_grid.write_sites(folder / "sites", f"npz:{source}", names, models=models, **(sites or {}))
    config = RunConfig(
        RunSection(rounds=rounds, fast=fast, **(run or {})),
        DataSection("sites", **(data or {})),
        ModelSection(model),
        method(chosen) if isinstance(chosen, str) else chosen,
    )
    made = DeploySettings(**{"sites": clients, **(settings or {})})
    return Deployment(folder, source, flower_grid.grid_of(paths), paths, config, made)
