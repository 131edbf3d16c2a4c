"""The ServerApp: the ordinary loop, with clients elsewhere. Run-config keys: `config`, `run-dir`, `resume`, `round`."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedgsp.core.errors import FedgspError, InputError
from fedgsp.core.tensors import digest
from fedgsp.data.cache import Progress, silent
from fedgsp.deploy.node.fleet import quick_pulls
from fedgsp.deploy.server_evaluation import with_server_evaluation
from fedgsp.deploy.settings import DeploySettings, read_deployment
from fedgsp.deploy.site_log import SiteLog, outline
from fedgsp.deploy.sites import SiteRegistry
from fedgsp.engine.transports.flower.adaptive_limit import AdaptiveTimeLimit
from fedgsp.engine.transports.flower.board import FileBoard
from fedgsp.engine.transports.flower.engine import FlowerEngine, MessageSettings
from fedgsp.engine.transports.flower.post import Clock
from fedgsp.engine.transports.flower.run_spec import RunSpec
from fedgsp.engine.transports.flower.update_guard import UpdateGuard
from fedgsp.parts import encode
from fedgsp.run import lifecycle
from fedgsp.run.build import RunBuilder
from fedgsp.run.callbacks import Callback
from fedgsp.run.going_back import chosen_checkpoint, end_of_events, kept_rounds
from fedgsp.run.trust import code_named

if TYPE_CHECKING:
    from fedgsp.run.config import RunConfig
    from fedgsp.run.result import RunResult
    from fedgsp.run.run import Run

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run, or go on with, what the run configuration names."""
    quick_pulls()
    told = context.run_config
    config, settings = read_deployment(Path(str(told["config"])))
    run_dir = Path(str(told["run-dir"]))
    try:
        back = int(told.get("round", -1))
        result = serve(
            grid, config, settings, run_dir, resume=bool(told.get("resume", False)), round_=back if back >= 0 else None
        )
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
    round_: int | None = None,
    clock: Clock | None = None,
    callbacks: Sequence[Callback] = (),
) -> RunResult:
    """A deployment's run over any Grid: waits for the sites, then the ordinary loop with journal and checkpoints.

    With `resume` the run goes on from its last checkpoint if there is one, or from that of `round_`; sites keep their numbers.
    """
    clock = clock or Clock(poll=settings.poll_seconds, threads=True)
    goes_on = resume and (run_dir / "config.toml").exists()
    log = SiteLog()
    if goes_on:
        log.read(run_dir, _end_of_log(run_dir, round_))
    log.run = log.run or secrets.token_hex(8)
    sites = SiteRegistry(grid, settings, _run_spec(log.run, config, settings), clock, log)
    now = sites.wait_for_sites()
    if log.samples is not None and log.samples.wire != settings.wire:
        raise InputError(f"{run_dir} was begun with models sent as {log.samples.wire}, and cannot go on with {settings.wire}.")
    if log.weight_bound is not None and log.weight_bound != settings.weight_bound:
        raise InputError(
            f"{run_dir} was begun with weight_bound = {log.weight_bound:g}, and cannot go on with {settings.weight_bound:g}."
        )
    first = outline(log.samples, log.first.values(), sites.bound) if log.samples is not None and log.first else now

    def engine(run: Run) -> FlowerEngine:
        kernel = run.worker_setup.kernel
        base = run.worker_setup.frozen_base()
        known = digest(base) if base else ""
        sites.run_spec = replace(sites.run_spec, kernel=kernel.name, layers=kernel.layers, base=known)
        limit = AdaptiveTimeLimit(settings.hop_seconds_floor, settings.hop_seconds_cap)
        board = FileBoard(run_dir, lambda client: sites.here[client].name if client in sites.here else f"client {client}")
        guard = UpdateGuard(settings.norm_bound, log.votes)
        messages = MessageSettings(
            settings.in_flight, limit, guard, clock, board, settings.limits, sites.pulse, settings.squeeze
        )
        return FlowerEngine(grid, sites, run.worker_setup, sites.run_spec, messages)

    builder, watching = SiteRunBuilder(data=first, engine=engine, sites=sites), [*callbacks, Lines()]
    if goes_on:
        trusting = replace(builder, trust=frozenset(code_named(config.as_dict())))
        return lifecycle.resume(run_dir, rounds=config.run.rounds, round_=round_, callbacks=watching, builder=trusting)
    return lifecycle.start(builder.build(config), run_dir, watching)


def _end_of_log(run_dir: Path, round_: int | None) -> int | None:
    """How much of the event log counts for a run that goes on from its newest checkpoint, or from another."""
    found = chosen_checkpoint(run_dir, round_=round_)
    if found is None:
        return None
    state, bookmark = found
    if state.client_versions and state.round < max(kept_rounds(run_dir)) - 1:
        raise InputError(
            f"{run_dir} cannot go back to round {state.round}: its clients keep states, and sites have only those of the last "
            f"two rounds."
        )
    return end_of_events(run_dir, state.round, bookmark)


@dataclass(frozen=True)
class SiteRunBuilder(RunBuilder):
    """Builds runs whose clients are sites."""

    engine: Callable[[Run], FlowerEngine] | None = None
    sites: SiteRegistry | None = None

    def build(self, config: RunConfig, *, progress: Progress = silent, kernel: str | None = None) -> Run:
        """See `RunBuilder.build`."""
        assert self.sites is not None
        run = super().build(config, progress=progress, kernel=kernel)
        setup = replace(run.worker_setup, wire=self.sites.settings.wire)
        return with_server_evaluation(replace(run, worker_setup=setup, availability=self.sites, remote_engine=self.engine))


class Lines(Callback):
    """A line a round, for whoever follows the ServerApp's log."""

    def on_round_end(self, entry: dict[str, object]) -> None:
        """What came of a round."""
        skipped = entry.get("skipped")
        lost = f", {len(skipped)} skipped" if isinstance(skipped, list) else ""
        score = entry.get("accuracy")
        good = f", accuracy {score:.4f}" if isinstance(score, float) else ""
        print(f"round {entry['round']}: {entry['clients']} clients in {entry['chains']} chains{lost}{good}", flush=True)


def _run_spec(run: str, config: RunConfig, settings: DeploySettings) -> RunSpec:
    """What sites are told of a run; its name is the same after a resume, since they keep their states under it."""
    return RunSpec(
        run, config.run.seed, encode(config.method.local), config.model.name, wire=settings.wire, device=config.run.device,
        validation=config.data.validation, data_seed=config.data.seed,
    )  # fmt: skip
