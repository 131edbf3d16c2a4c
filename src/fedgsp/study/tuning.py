"""`fedgsp.tune`: a method, one's own among them, over a grid of hyper-parameters."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedgsp.core.errors import InputError, did_you_mean
from fedgsp.data import FederatedData
from fedgsp.data.sources import absolute
from fedgsp.progress import unit_bars
from fedgsp.run.build import IN_MEMORY, RunBuilder
from fedgsp.run.config import DataSection, ModelSection, RunConfig, RunSection, read_config
from fedgsp.run.reader import need_run
from fedgsp.run.result import RunResult
from fedgsp.study.entries import Entry, is_run, read_method
from fedgsp.study.grid import Grid, parse_grid
from fedgsp.study.grids import grid_of
from fedgsp.study.search import Optuna, searched
from fedgsp.study.tune import Tuning
from fedgsp.study.tune import tune as tune_config

DRIVERS = ("grid", "optuna")

if TYPE_CHECKING:
    from torch import nn

    from fedgsp.models import Task
    from fedgsp.run.callbacks import Callback


def tune(
    method: Entry = "fedgsp",
    grid: Grid | None = None,
    *,
    data: str | FederatedData | None = None,
    model: str | Callable[..., nn.Module] | nn.Module | None = None,
    task: Task | None = None,
    rounds: int | None = None,
    seeds: int | Sequence[int] = 1,
    data_seed: int = DataSection.seed,
    validation: float | None = None,
    workers: int | str = RunSection.workers,
    out: str | Path | None = None,
    progress: bool | None = None,
    callbacks: Callable[[str], Sequence[Callback]] | None = None,
    trust: bool = False,
    driver: str | Optuna = "grid",
) -> Tuning:
    """Try a grid of hyper-parameters on the validation part. Test samples are not used.

    Args:
        method: A name, a `Method`, a config file, `package.module:METHOD`, or a run (a directory or a result), which is tuned
            as it was told.
        grid: The values to try, by name, as in {"lr": [0.01, 0.1]}, or NAME=VALUE,VALUE,... texts. None: what the method's
            parts say they are tuned over. For a search also ranges: {"lr": fedgsp.Range(0.001, 1, log=True)}.
        data: A source text or a `FederatedData`; None: that of the config file or run, or glyphs.
        model: A name, a callable or a module; None: that of the config file or run, or small_cnn.
        task: Loss and metrics; None: that of the run, or as the data are.
        rounds: Rounds of every run; None: as the config file or run says, or the default.
        seeds: Number of seeds of every grid point, or the seeds themselves.
        data_seed: Seed of generated data, splits and subsets.
        validation: Share of training samples kept for choosing; None: as the config says, or a tenth.
        workers: Worker processes of a run.
        out: Folder of the sweep: give it again to go on. None: nothing is kept.
        progress: Show a bar; None: in notebooks and on terminals.
        callbacks: Gives the callbacks of a run, by its name.
        trust: Let code that a config file or run from elsewhere names run.
        driver: "grid" tries every point; "optuna", or `fedgsp.Optuna(trials=..., prune=...)`, chooses points one after the
            other, and stops those that fall behind.

    Returns:
        The figures of every point, the best of them, and the method with its values in place.

    Raises:
        InputError: The grid makes no sense, no client has a validation sample, or every point diverged.

    Example:
        >>> import fedgsp
        >>> found = fedgsp.tune("fedavg", {"lr": [0.01, 0.1]}, data="glyphs:clients=10", rounds=1, workers=0)
        >>> sorted(found.best.point.values)
        ['lr']
    """
    config, builder = _asked(method, data, model, task, data_seed, trust)
    run = replace(config.run, rounds=config.run.rounds if rounds is None else rounds, workers=workers)
    share = config.data.validation if validation is None else validation
    config = replace(config, run=run, data=replace(config.data, validation=share))
    search = driver_of(driver)
    wanted = grid_of(config.method) if grid is None else grid
    wanted = searched(wanted, config.method) if grid is None and search is not None else wanted
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not numbers:
        raise InputError(f"`seeds=` must be at least 1, not {seeds}.")
    units = prod(len(axis.values) for axis in parse_grid(wanted, config.method)) if search is None else search.trials
    watch = callbacks or unit_bars(units * len(numbers), progress)
    with tempfile.TemporaryDirectory() if out is None else nullcontext(str(out)) as place:
        return tune_config(
            config, wanted, Path(place), seeds=numbers, builder=builder, callbacks=watch, driver=search
        )  # fmt: skip


def driver_of(given: str | Optuna) -> Optuna | None:
    """What a name says; None: every point of the grid."""
    if isinstance(given, Optuna):
        return given
    if given not in DRIVERS:
        raise InputError(f"unknown driver '{given}': {did_you_mean(str(given), DRIVERS)}")
    return Optuna() if given == "optuna" else None


def _asked(
    given: Entry, data: str | FederatedData | None, model: Any, task: Task | None, data_seed: int, trust: bool
) -> tuple[RunConfig, RunBuilder]:  # fmt: skip
    """The configuration that is tuned, and the objects that take the place of what it names."""
    if isinstance(given, RunResult):
        config = given.run.config
        data = given.run.data if data is None and config.data.source == IN_MEMORY else data
        model = given.run.worker_setup.model.build if model is None else model
        task = given.run.worker_setup.task if task is None else task
    elif isinstance(given, (str, Path)) and (str(given).endswith(".toml") or is_run(given)):
        file = Path(given) if str(given).endswith(".toml") else need_run(Path(given)) / "config.toml"
        config = read_config(file, trust=trust)
    else:
        label, method = read_method(given)
        config = RunConfig(method=replace(method, name=label), data=DataSection(seed=data_seed))
    if isinstance(data, str):
        config = replace(config, data=replace(config.data, source=absolute(data)))
    elif data is not None:
        if not isinstance(data, FederatedData):
            raise InputError(f"data is a source text or a FederatedData, not {type(data).__name__}.")
        config = replace(config, data=replace(config.data, source=data.source or IN_MEMORY))
    if isinstance(model, str):
        config = replace(config, model=ModelSection(model, config.model.init))
    elif model is not None:
        config = replace(config, model=ModelSection("custom", config.model.init))
    objects = RunBuilder(None if isinstance(data, str) else data, None if isinstance(model, str) else model, task)
    return config, objects
