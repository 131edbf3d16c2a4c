"""The ServerApp: the ordinary loop, with clients elsewhere. Run-config keys: `config`, `run-dir`, `resume`."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedgsp.core.errors import FedgspError, InputError
from fedgsp.deploy.roster import Roster
from fedgsp.deploy.settings import DeploySettings, read_deployment
from fedgsp.engine.flower.engine import FlowerEngine, Ways
from fedgsp.engine.flower.guard import Guard
from fedgsp.engine.flower.pace import Pace
from fedgsp.engine.flower.pump import Clock
from fedgsp.engine.flower.sheet import Sheet
from fedgsp.parts import encode
from fedgsp.run import drive
from fedgsp.run.central import bound
from fedgsp.run.config import RunConfig
from fedgsp.run.drive import Objects, Venue
from fedgsp.run.observers import Observer
from fedgsp.run.result import RunResult
from fedgsp.run.roster import Log, outline
from fedgsp.run.setup import Setup

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run, or go on with, what the run configuration names."""
    told = context.run_config
    config, settings = read_deployment(Path(str(told["config"])))
    run_dir = Path(str(told["run-dir"]))
    try:
        result = serve(grid, config, settings, run_dir, resume=bool(told.get("resume", False)))
    except FedgspError as error:
        print(f"error: {error}", flush=True)
        raise
    print(f"{result.status} after round {result.rounds}: {run_dir}", flush=True)


def serve(
    grid: Grid,
    config: RunConfig,
    settings: DeploySettings,
    run_dir: Path,
    *,
    resume: bool = False,
    clock: Clock | None = None,
    observers: Sequence[Observer] = (),
) -> RunResult:
    """A deployment's run over any Grid: waits for the sites, then the ordinary loop with journal and checkpoints.

    With `resume` the run goes on from its last checkpoint if there is one; sites keep their numbers.
    """
    clock = clock or Clock(poll=settings.poll_seconds)
    goes_on = resume and (run_dir / "config.toml").exists()
    log = Log.read(run_dir) if goes_on else Log()
    log.run = log.run or secrets.token_hex(8)
    roster = Roster(grid, settings, _sheet(log.run, config, settings), clock, log)
    now = roster.wait_for_sites()
    if log.kind is not None and log.kind.wire != settings.wire:
        raise InputError(f"{run_dir} was begun with models sent as {log.kind.wire}, and cannot go on with {settings.wire}.")
    first = outline(log.kind, log.first.values()) if log.kind is not None and log.first else now

    def prepared(config: RunConfig, kernel: str | None = None) -> Setup:
        setup = Objects(data=first).prepare(config, kernel=kernel)
        return bound(replace(setup, job=replace(setup.job, wire=settings.wire)), config)

    def engine(setup: Setup) -> FlowerEngine:
        kernel = setup.job.kernel
        roster.sheet = replace(roster.sheet, kernel=kernel.name, layers=kernel.layers)
        pace = Pace(settings.hop_seconds_floor, settings.hop_seconds_cap)
        ways = Ways(settings.in_flight, pace, Guard(settings.norm_bound), clock)
        return FlowerEngine(grid, roster, setup.job, roster.sheet, ways)

    venue, watching = Venue(prepared, engine, roster), [*observers, Lines()]
    if goes_on:
        return drive.resume(run_dir, rounds=config.run.rounds, observers=watching, venue=venue)
    return drive.start(prepared(config), run_dir, watching, venue)


class Lines(Observer):
    """A line a round, for whoever follows the ServerApp's log."""

    def round_done(self, entry: dict[str, object]) -> None:
        """What came of a round."""
        skipped = entry.get("skipped")
        lost = f", {len(skipped)} skipped" if isinstance(skipped, list) else ""
        score = entry.get("accuracy")
        good = f", accuracy {score:.4f}" if isinstance(score, float) else ""
        print(f"round {entry['round']}: {entry['clients']} clients in {entry['chains']} chains{lost}{good}", flush=True)


def _sheet(run: str, config: RunConfig, settings: DeploySettings) -> Sheet:
    """What sites are told of a run; its name is the same after a resume, since they keep their states under it."""
    return Sheet(
        run, config.run.seed, encode(config.method.local), config.model.name, wire=settings.wire, device=config.run.device,
        validation=config.data.validation, data_seed=config.data.seed,
    )  # fmt: skip
