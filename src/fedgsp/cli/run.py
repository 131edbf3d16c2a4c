"""`fedgsp run`, `fedgsp resume`, `fedgsp replay`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedgsp.cli import common
from fedgsp.cli.watch import watched
from fedgsp.core.errors import Terminated
from fedgsp.core.local_workers import start_ahead

if TYPE_CHECKING:
    from fedgsp.run.run import Run


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("run")(run)
    app.command("resume")(resume)
    app.command("replay")(replay)


def run(
    config: Annotated[Path | None, typer.Argument(help="A config.toml. Options given here replace its entries.")] = None,
    method: common.MethodName = None,
    data: common.DataSource = None,
    model: common.ModelName = None,
    init: Annotated[Path | None, typer.Option(help="Start from these weights (.safetensors).")] = None,
    rounds: common.Rounds = None,
    clients: common.Clients = None,
    kappa: Annotated[float | None, typer.Option(help="Share of the groups that train in a round.")] = None,
    growth: Annotated[
        str | None, typer.Option(help="Growth function: linear, log, exp, constant, singletons, length or proportional.")
    ] = None,
    alpha: Annotated[float | None, typer.Option(help="Rate of the growth function.")] = None,
    beta: Annotated[int | None, typer.Option(help="Number of groups at the start, or of all rounds for constant.")] = None,
    order: Annotated[str | None, typer.Option(help="Order of the clients in a chain: shuffled (each round) or fixed.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate of the clients.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Samples in a mini-batch.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Local epochs of a client.")] = None,
    drop_last: Annotated[bool | None, typer.Option("--drop-last", help="Leave out a last batch that is not full.")] = None,
    momentum: Annotated[float | None, typer.Option(help="Momentum of the clients' SGD.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Weight decay of the clients' steps.")] = None,
    optim: Annotated[str | None, typer.Option(help="Who makes the clients' steps: sgd, adam or adamw.")] = None,
    clip_norm: Annotated[float | None, typer.Option(help="Longest gradient of a client's step. Default: any.")] = None,
    workers: common.Workers = None,
    device: Annotated[str | None, typer.Option(help="Device: cpu, cuda, cuda:N or mps.")] = None,
    engine: common.EngineName = None,
    address: common.Address = None,
    resources: common.Resources = None,
    hop_seconds: common.HopSeconds = None,
    fast: Annotated[str | None, typer.Option(help="Compiled training steps: auto (where possible), on or off.")] = None,
    seed: common.Seed = None,
    data_seed: common.DataSeed = None,
    eval_every: Annotated[int | None, typer.Option(help="Evaluate the model every so many rounds.")] = None,
    target_accuracy: Annotated[float | None, typer.Option(help="Report when this accuracy is first reached.")] = None,
    stop_at_target: Annotated[
        bool | None, typer.Option("--stop-at-target", help="Stop training once `--target-accuracy` is reached.")
    ] = None,
    holdout_clients: Annotated[
        int | None, typer.Option(help="Number of clients that never train and are only evaluated.")
    ] = None,
    validation: common.Validation = None,
    standardise: Annotated[
        str | None,
        typer.Option(help="Features of mean 0 and deviation 1: true (over all clients), or client (over its own)."),
    ] = None,
    transform: Annotated[
        str | None, typer.Option(help="What training sees of a sample: crop2+flip, say, or package.module:callable.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory. Default: runs/METHOD-TIME.")] = None,
    sets: common.Sets = None,
    trust: common.Trust = False,
    quiet: common.Quiet = False,
    as_json: common.AsJson = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show schedule, memory, traffic, time and cost. Train nothing.")
    ] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Measure where the time goes. Writes profile.json and a Chrome trace.")
    ] = False,
    fleet: common.Fleet = None,
    report: common.Report = False,
    watch: common.Watch = False,
    tensorboard: common.TensorBoardFolder = None,
    mlflow: common.MLflowAddress = None,
    wandb: common.WandBProject = None,
) -> None:
    """Train a method. With no arguments: FedGSP on generated handwriting, about a minute."""
    options = {**locals(), "workers": common.worker_count(workers)}
    if not dry_run:
        start_ahead(config, options, sets or [])
    from fedgsp.cli.bar import progress_bar
    from fedgsp.cli.options import build_config
    from fedgsp.core.errors import InputError
    from fedgsp.run.build import RunBuilder

    if fleet is not None and not dry_run:
        raise InputError("--fleet needs --dry-run. To cost a finished run: fedgsp cost RUN --fleet ...")
    silent = quiet or as_json
    with progress_bar(silent) as progress:
        built = RunBuilder().build(build_config(config, options, sets or [], trust=trust), progress=progress)
    place = out or _default_place(built.config.method.name)
    if dry_run:
        _dry_run(built, place, as_json, fleet)
    else:
        loggers = _loggers(place, tensorboard, mlflow, wandb)
        _train(built, place, Output(quiet, as_json, report, watch), loggers, profile)


def resume(
    directory: common.RunDirectoryArgument,
    rounds: Annotated[int | None, typer.Option(help="Train up to this round. Default: as before.")] = None,
    workers: common.Workers = None,
    engine: common.EngineName = None,
    address: common.Address = None,
    resources: common.Resources = None,
    hop_seconds: common.HopSeconds = None,
    previous: Annotated[bool, typer.Option("--previous", help="Go on from the checkpoint before the last.")] = False,
    round_: common.BackToRound = None,
    other_numerics: common.OtherNumerics = False,
    trust: common.Trust = False,
    quiet: common.Quiet = False,
    as_json: common.AsJson = False,
    report: common.Report = False,
    watch: common.Watch = False,
    tensorboard: common.TensorBoardFolder = None,
    mlflow: common.MLflowAddress = None,
    wandb: common.WandBProject = None,
) -> None:
    """Resume a run that was stopped. Its result has the same bits as if it had never been stopped."""
    start_ahead(directory / "config.toml", {"workers": common.worker_count(workers), "engine": engine})
    from fedgsp.run import lifecycle
    from fedgsp.run.build import RunBuilder

    output = Output(quiet, as_json, report, watch)
    with _hint_on_interrupt(directory), watched(directory, watch, output.silent):
        result = lifecycle.resume(
            directory,
            rounds=rounds,
            workers=common.worker_count(workers),
            engine={"name": engine, "address": address, "resources": resources, "hop_seconds": hop_seconds},
            previous=previous,
            round_=round_,
            other_numerics=other_numerics,
            builder=RunBuilder(trust=trust),
            callbacks=[*output.callbacks(), *_loggers(directory, tensorboard, mlflow, wandb)],
        )
    if not output.silent and not result.trained_now:
        typer.echo(f"{directory} was already finished after {result.rounds} rounds. --rounds trains further.")
    output.show(result)


def replay(
    directory: common.RunDirectoryArgument,
    workers: common.Workers = "auto",
    quiet: common.Quiet = False,
    as_json: common.AsJson = False,
    data: Annotated[str | None, typer.Option(help="For a deployment: a data source with the samples of all its sites.")] = None,
    other_numerics: common.OtherNumerics = False,
    trust: common.Trust = False,
) -> None:
    """Recompute a run from its configuration, data and event log, and compare every bit."""
    from fedgsp.deploy.replay import replay as replay_run
    from fedgsp.run.build import RunBuilder

    verdict = replay_run(
        directory, workers=common.worker_count(workers or "auto"), callbacks=Output(quiet, as_json).callbacks(), source=data,
        other_numerics=other_numerics, builder=RunBuilder(trust=trust),
    )  # fmt: skip
    if as_json:
        facts = {"rounds": verdict.rounds, "same": verdict.differs is None, "differs": verdict.differs}
        typer.echo(json.dumps({**facts, **({"why_no_further": verdict.why_no_further} if verdict.why_no_further else {})}))
    elif verdict.differs is None:
        end = f" No further: {verdict.why_no_further}." if verdict.why_no_further else ""
        typer.echo(f"{directory}: {verdict.rounds} rounds replayed, every bit the same.{end}")
    else:
        typer.echo(f"{directory}: round {verdict.rounds + 1} differs: {verdict.differs}.", err=True)
    if verdict.differs is not None:
        raise typer.Exit(1)


@dataclass(frozen=True)
class Output:
    """What is printed and written while a run goes on and when it ends."""

    quiet: bool
    as_json: bool
    report: bool = False
    watch: bool = False

    @property
    def silent(self) -> bool:
        """Whether no progress is shown."""
        return self.quiet or self.as_json

    def callbacks(self) -> list[Any]:
        """The progress display."""
        if self.silent:
            return []
        from fedgsp.cli.display import display

        return [display()]

    def show(self, result: Any) -> None:
        """Print the result; write the report page."""
        if self.as_json:
            typer.echo(json.dumps({**result.facts, "directory": str(result.directory)}, indent=2))
        elif not self.quiet:
            from fedgsp.cli.display import show_summary

            show_summary(result)
        if self.report:
            from fedgsp.report.build import read_runs, write_report

            made = write_report(read_runs([result.directory]), result.directory / "report.html")
            if not self.silent:
                typer.echo(f"report: {made}")


def _train(run: Run, place: Path, output: Output, loggers: list[Any], profile: bool) -> None:
    from fedgsp.cli.profile import show_profile
    from fedgsp.run import lifecycle
    from fedgsp.run.profile import Profiler

    profiler = Profiler(place) if profile else None
    callbacks = [*output.callbacks(), *loggers, *([profiler] if profiler else [])]
    with _hint_on_interrupt(place), watched(place, output.watch, output.silent):
        result = lifecycle.start(run, place, callbacks)
    output.show(result)
    if profiler is not None and not output.silent:
        show_profile(profiler.summary(), place)


def _dry_run(run: Run, place: Path, as_json: bool, fleet: str | None) -> None:
    from fedgsp.cli.dryrun import show_dry_run
    from fedgsp.run.keeping import check_room

    show_dry_run(run, as_json, fleet)
    check_room(run, place)


@contextmanager
def _hint_on_interrupt(place: Path) -> Iterator[None]:
    """After Ctrl-C or SIGTERM say how to go on."""
    try:
        yield
    except (KeyboardInterrupt, Terminated):
        if (place / "config.toml").exists():
            typer.echo(f"fedgsp: interrupted; nothing finished is lost. Go on with: fedgsp resume {place}", err=True)
        raise


def _loggers(place: Path, tensorboard: Path | None, mlflow: str | None, wandb: str | None) -> list[Any]:
    """Callbacks of other tools; what they need is missed before anything starts."""
    made: list[Any] = []
    if tensorboard is not None:
        from fedgsp.report.loggers import TensorBoard

        made.append(TensorBoard(tensorboard))
    if mlflow is not None:
        from fedgsp.report.loggers import MLflow

        made.append(MLflow(place, None if mlflow == "auto" else mlflow))
    if wandb is not None:
        from fedgsp.report.loggers import WandB

        made.append(WandB(wandb, directory=place))
    return made


def _default_place(method: str) -> Path:
    stem = f"{method.replace('/', '-').replace(':', '-')}-{time.strftime('%Y%m%d-%H%M%S')}"
    place, count = Path("runs") / stem, 1
    while place.exists():
        count += 1
        place = Path("runs") / f"{stem}-{count}"
    return place
