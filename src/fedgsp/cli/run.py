"""`fedgsp run`, `fedgsp resume`, `fedgsp replay`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from fedgsp.cli.watch import watched
from fedgsp.core.errors import Terminated


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("run")(run)
    app.command("resume")(resume)
    app.command("replay")(replay)


def run(
    config: Annotated[Path | None, typer.Argument(help="A config.toml; options given here replace its entries.")] = None,
    method: Annotated[str | None, typer.Option(help="fedgsp, fedavg, ...: see `fedgsp methods`.")] = None,
    data: Annotated[str | None, typer.Option(help="Data source, e.g. glyphs:clients=100 or npz:FILE.")] = None,
    model: Annotated[str | None, typer.Option(help="small_cnn, leaf_cnn or package.module:callable.")] = None,
    init: Annotated[Path | None, typer.Option(help="Start from these weights (.safetensors).")] = None,
    rounds: Annotated[int | None, typer.Option(help="How many rounds.")] = None,
    clients: Annotated[int | None, typer.Option(help="Use this many clients.")] = None,
    kappa: Annotated[float | None, typer.Option(help="Share of the groups that train in a round.")] = None,
    growth: Annotated[str | None, typer.Option(help="linear, log, exp, constant or singletons.")] = None,
    alpha: Annotated[float | None, typer.Option(help="Rate of growth.")] = None,
    beta: Annotated[int | None, typer.Option(help="Groups at the start (the number, for constant).")] = None,
    order: Annotated[str | None, typer.Option(help="Order in a chain: shuffled each round, or fixed.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate of the clients.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Samples in a mini-batch.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Local epochs of a client.")] = None,
    drop_last: Annotated[
        bool | None, typer.Option("--drop-last", help="Leave out a client's last batch if it is smaller than the others.")
    ] = None,
    momentum: Annotated[float | None, typer.Option(help="Momentum of the clients' SGD.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Weight decay of the clients' SGD.")] = None,
    workers: Annotated[str | None, typer.Option(help="Worker processes: a number, auto, or 0 for none.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:N or mps.")] = None,
    engine: Annotated[str | None, typer.Option(help="Where chains run: local, or ray (extra 'ray').")] = None,
    address: Annotated[str | None, typer.Option(help="An existing Ray cluster, e.g. auto (default: one of our own).")] = None,
    resources: Annotated[str | None, typer.Option(help="What one worker takes of the cluster, e.g. cpu=1,gpu=0.25.")] = None,
    hop_seconds: Annotated[
        float | None, typer.Option(help="Replace a worker process that is at one client for so long (default: never).")
    ] = None,
    fast: Annotated[str | None, typer.Option(help="The fast path: auto (where there is one), on or off.")] = None,
    seed: Annotated[int | None, typer.Option(help="Initial weights, plans, batches.")] = None,
    data_seed: Annotated[int | None, typer.Option(help="Generated data, splits, subsets.")] = None,
    eval_every: Annotated[int | None, typer.Option(help="Evaluate every so many rounds.")] = None,
    target_accuracy: Annotated[float | None, typer.Option(help="Say when this accuracy is first reached.")] = None,
    stop_at_target: Annotated[bool | None, typer.Option("--stop-at-target", help="Stop there.")] = None,
    holdout_clients: Annotated[int | None, typer.Option(help="Clients that never train, only judge.")] = None,
    validation: Annotated[float | None, typer.Option(help="Share of train kept for tuning.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory (default: runs/METHOD-TIME).")] = None,
    sets: Annotated[list[str] | None, typer.Option("--set", help="PATH=VALUE for any other entry.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, nothing else.")] = False,
    dry_run: Annotated[bool, typer.Option(help="Show schedule, memory, traffic, time and cost; train nothing.")] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Say where the time went; writes profile.json and a Chrome trace.")
    ] = False,
    fleet: Annotated[
        str | None, typer.Option(help="The fleet of --dry-run: paper, phone-4g, phone-wifi, hospital-fibre or FILE.toml.")
    ] = None,
    report: Annotated[bool, typer.Option("--report", help="Write a report when the run ends.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Serve a live page of the run on this machine.")] = False,
    tensorboard: Annotated[Path | None, typer.Option(help="Also log to TensorBoard, into this folder.")] = None,
    mlflow: Annotated[str | None, typer.Option(help="Also log to MLflow: its address, or auto.")] = None,
) -> None:
    """Train a method. With no arguments: FedGSP on made-up handwriting, about a minute."""
    from fedgsp.cli.options import build_config, growth_parts
    from fedgsp.core.errors import InputError

    if fleet is not None and not dry_run:
        raise InputError("--fleet is for --dry-run; what a finished run would cost says `fedgsp cost RUN --fleet ...`.")
    chosen = build_config(
        config,
        {
            "run": {
                "rounds": rounds, "seed": seed, "workers": _workers(workers), "device": device, "eval_every": eval_every,
                "target_accuracy": target_accuracy, "stop_at_target": stop_at_target, "holdout_clients": holdout_clients,
                "fast": fast,
            },
            "data": {"source": data, "seed": data_seed, "clients": clients, "validation": validation},
            "model": {"name": model, "init": str(init) if init else None},
            "engine": {"name": engine, "address": address, "resources": resources, "hop_seconds": hop_seconds},
        },
        method,
        {
            **growth_parts(growth, alpha, beta), "planner.kappa": kappa, "planner.order": order, "local.lr": lr,
            "local.batch_size": batch_size, "local.epochs": epochs, "local.momentum": momentum,
            "local.weight_decay": weight_decay, "local.drop_last": drop_last,
        },
        sets or [],
    )  # fmt: skip
    from fedgsp.cli.bar import progress_bar
    from fedgsp.run import drive

    with progress_bar(quiet or as_json) as progress:
        setup = drive.Objects().prepare(chosen, progress)
    place = out or _default_place(setup.config.method.name)
    if dry_run:
        from fedgsp.cli.dryrun import show_dry_run
        from fedgsp.run.keeping import check_room

        show_dry_run(setup, as_json, fleet)
        check_room(setup, place)
        return
    from fedgsp.cli.profile import show_profile
    from fedgsp.run.profile import Profiler

    profiler = Profiler(place) if profile else None
    observers = [*_observers(quiet, as_json), *_loggers(place, tensorboard, mlflow), *([profiler] if profiler else [])]
    with _hint_on_interrupt(place), watched(place, watch, quiet or as_json):
        result = drive.start(setup, place, observers)
    _finish(result, quiet, as_json, report)
    if profiler is not None and not (quiet or as_json):
        show_profile(profiler.summary(), place)


def resume(
    directory: Annotated[Path, typer.Argument(help="The run directory.")],
    rounds: Annotated[int | None, typer.Option(help="Train up to this many rounds.")] = None,
    workers: Annotated[str | None, typer.Option(help="Worker processes: a number, auto, or 0 for none.")] = None,
    engine: Annotated[str | None, typer.Option(help="Where chains run: local, or ray (default: as before).")] = None,
    address: Annotated[str | None, typer.Option(help="An existing Ray cluster, e.g. auto (default: one of our own).")] = None,
    resources: Annotated[str | None, typer.Option(help="What one worker takes of the cluster, e.g. cpu=1,gpu=0.25.")] = None,
    hop_seconds: Annotated[
        float | None, typer.Option(help="Replace a worker process that is at one client for so long (default: never).")
    ] = None,
    previous: Annotated[bool, typer.Option(help="Go on from the checkpoint before the last.")] = False,
    other_numerics: Annotated[bool, typer.Option(help="Go on although torch, kernel or device are others.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, nothing else.")] = False,
    report: Annotated[bool, typer.Option("--report", help="Write a report when the run ends.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Serve a live page of the run on this machine.")] = False,
    tensorboard: Annotated[Path | None, typer.Option(help="Also log to TensorBoard, into this folder.")] = None,
    mlflow: Annotated[str | None, typer.Option(help="Also log to MLflow: its address, or auto.")] = None,
) -> None:
    """Go on with a run that was stopped, to the same bits as if it never had been."""
    from fedgsp.run import drive

    observers = [*_observers(quiet, as_json), *_loggers(directory, tensorboard, mlflow)]
    with _hint_on_interrupt(directory), watched(directory, watch, quiet or as_json):
        result = drive.resume(
            directory,
            rounds=rounds,
            workers=_workers(workers),
            engine={"name": engine, "address": address, "resources": resources, "hop_seconds": hop_seconds},
            previous=previous,
            other_numerics=other_numerics,
            observers=observers,
        )
    if not (quiet or as_json) and not result.trained_now:
        typer.echo(f"{directory} had already come to its end after {result.rounds} rounds; --rounds trains on.")
    _finish(result, quiet, as_json, report)


def replay(
    directory: Annotated[Path, typer.Argument(help="The run directory.")],
    workers: Annotated[str, typer.Option(help="Worker processes: a number, auto, or 0 for none.")] = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but the verdict.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON, nothing else.")] = False,
    data: Annotated[str | None, typer.Option(help="For a deployment: a source that has the samples of all its sites.")] = None,
    other_numerics: Annotated[bool, typer.Option(help="Compare although torch, kernel or device are others.")] = False,
) -> None:
    """Recompute a run from its configuration, data and event log, and compare it to the bit."""
    from fedgsp.run import replay as replaying

    observers = _observers(quiet, as_json)
    verdict = replaying.replay(
        directory, workers=_workers(workers) or "auto", observers=observers, source=data, other_numerics=other_numerics
    )
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


@contextmanager
def _hint_on_interrupt(place: Path) -> Iterator[None]:
    """After Ctrl-C or SIGTERM say how to go on."""
    try:
        yield
    except (KeyboardInterrupt, Terminated):
        if (place / "config.toml").exists():
            typer.echo(f"fedgsp: interrupted; nothing finished is lost. Go on with: fedgsp resume {place}", err=True)
        raise


def _observers(quiet: bool, as_json: bool) -> list[Any]:
    if quiet or as_json:
        return []
    from fedgsp.cli.display import display

    return [display()]


def _loggers(place: Path, tensorboard: Path | None, mlflow: str | None) -> list[Any]:
    """Observers of other tools; what they need is missed before anything starts."""
    made: list[Any] = []
    if tensorboard is not None:
        from fedgsp.observe import TensorBoard

        made.append(TensorBoard(tensorboard))
    if mlflow is not None:
        from fedgsp.observe import MLflow

        made.append(MLflow(place, None if mlflow == "auto" else mlflow))
    return made


def _finish(result: Any, quiet: bool, as_json: bool, report: bool) -> None:
    if as_json:
        typer.echo(json.dumps({**result.facts, "directory": str(result.directory)}, indent=2))
    elif not quiet:
        from fedgsp.cli.display import show_summary

        show_summary(result)
    if report:
        from fedgsp.report.build import read_runs, write_report

        made = write_report(read_runs([result.directory]), result.directory / "report.html")
        if not (quiet or as_json):
            typer.echo(f"report: {made}")


def _default_place(method: str) -> Path:
    stem = f"{method.replace('/', '-').replace(':', '-')}-{time.strftime('%Y%m%d-%H%M%S')}"
    place, count = Path("runs") / stem, 1
    while place.exists():
        count += 1
        place = Path("runs") / f"{stem}-{count}"
    return place


def _workers(text: str | None) -> int | str | None:
    if text is None or text == "auto":
        return text
    try:
        return int(text)
    except ValueError:
        return text  # refused by the configuration with its own sentence
