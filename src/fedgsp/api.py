"""The Python interface: the same as the command line, in a few lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torch import nn

from fedgsp.core.errors import InputError, where_defined
from fedgsp.data import FederatedData
from fedgsp.data.sources import absolute
from fedgsp.method import Method
from fedgsp.progress import run_bar
from fedgsp.run import lifecycle, overlay
from fedgsp.run.build import IN_MEMORY, RunBuilder
from fedgsp.run.config import DataSection, EngineSection, ModelSection, RunConfig, RunSection
from fedgsp.run.warner import Warner, warn
from fedgsp.study.entries import read_method

if TYPE_CHECKING:
    from fedgsp.models import Task
    from fedgsp.run.callbacks import Callback
    from fedgsp.run.replay import Replay
    from fedgsp.run.result import RunResult
    from fedgsp.run.run import Run

Model = str | Callable[..., nn.Module] | nn.Module


def train(
    method: str | Path | Method = "fedgsp",
    data: str | FederatedData = DataSection.source,
    model: Model = ModelSection.name,
    *,
    rounds: int = RunSection.rounds,
    seed: int = RunSection.seed,
    data_seed: int = DataSection.seed,
    out: str | Path | None = None,
    workers: int | str = RunSection.workers,
    engine: str | Mapping[str, Any] = EngineSection.name,
    hop_seconds: float | None = EngineSection.hop_seconds,
    device: str = RunSection.device,
    fast: Literal["auto", "on", "off"] = RunSection.fast,
    task: Task | None = None,
    lr: float | None = None,
    batch_size: int | None = None,
    epochs: int | None = None,
    init: str | Path | None = ModelSection.init,
    eval_every: int = RunSection.eval_every,
    target_accuracy: float | None = RunSection.target_accuracy,
    stop_at_target: bool = RunSection.stop_at_target,
    holdout_clients: int = RunSection.holdout_clients,
    validation: float = DataSection.validation,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> RunResult:
    """Train a method on a federation.

    Defaults are those of the command line and of a configuration file: `fedgsp.run.config` has the table.

    Args:
        method: A name (see `fedgsp.METHODS`), a `Method` built from parts, `package.module:METHOD`, or a config file, whose
            [method] counts (`fedgsp.run` takes all of it).
        data: A source text, such as "glyphs:clients=100", or a `FederatedData`.
        model: A name, a callable that returns a module, or a module, whose weights are then the start.
        rounds: Number of rounds.
        seed: Seed of initial weights, plans and batches.
        data_seed: Seed of generated data, splits and subsets.
        out: Run directory, from which the run can be resumed; None: nothing is written.
        workers: Worker processes: a number, "auto", or 0 for none.
        engine: Where chains run: "local", "ray", or entries of [engine], such as {"name": "ray", "resources": "gpu=0.5"}.
        hop_seconds: Replace a worker process that trains one client for longer than this; with `workers=0` there is none.
        device: "cpu", "cuda", "cuda:N" or "mps".
        fast: Compiled training steps: where possible ("auto"), or an error without ("on"), or never ("off").
        task: Loss and metrics; None: classification or regression, as the data are.
        lr: Learning rate of the clients; None: the method's.
        batch_size: Samples in a mini-batch; None: the method's.
        epochs: Local epochs of a client; None: the method's.
        init: Weights to start from, a .safetensors file.
        eval_every: Evaluate the model every so many rounds.
        target_accuracy: Report when this accuracy is first reached.
        stop_at_target: Stop training once `target_accuracy` is reached.
        holdout_clients: Number of clients that never train and are only evaluated.
        validation: Share of the training samples kept for choosing settings.
        callbacks: Are told how the run goes on.
        progress: Show a bar; None: in notebooks and on terminals.

    Returns:
        The run's figures, history and model. What the person should know is in `notes`, and was warned of.

    Raises:
        InputError: Something cannot be had or makes no sense; nothing was started.
        RunFailed: The run failed on the way; with `out`, the rounds before are kept there.

    Example:
        >>> import fedgsp
        >>> result = fedgsp.train("fedavg", "glyphs:clients=10", rounds=1, workers=0)
        >>> result.rounds
        1
    """
    given = read_method(method)[1] if isinstance(method, (str, Path)) else _checked(method)
    chosen = _with_local(given, lr, batch_size, epochs)
    config = RunConfig(
        run=RunSection(rounds, seed, workers, device, eval_every, target_accuracy, stop_at_target, holdout_clients, fast=fast),
        data=DataSection(_source_of(data), data_seed, None, validation),
        model=ModelSection(model if isinstance(model, str) else "custom", None if init is None else str(Path(init).resolve())),
        method=chosen,
        engine=EngineSection().changed({"hop_seconds": hop_seconds, **_entries(engine)}),
    )
    builder = RunBuilder(
        data=None if isinstance(data, str) else data, model=None if isinstance(model, str) else model, task=task
    )  # fmt: skip
    return _started(builder.build(config), out, callbacks, progress)


def run_config(
    config: str | Path | RunConfig,
    *,
    sets: Mapping[str, Any] | Sequence[str] = (),
    data: FederatedData | None = None,
    model: Callable[..., nn.Module] | nn.Module | None = None,
    task: Task | None = None,
    method: Method | None = None,
    out: str | Path | None = None,
    trust: bool = False,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> RunResult:
    """Train what a config file says: `fedgsp.run("config.toml")`, as `fedgsp run config.toml` on the command line.

    Args:
        config: The file, or a `RunConfig`.
        sets: Entries in place of its own: {"run.rounds": 5, "method.local.lr": 0.1}, or PATH=VALUE texts.
        data: A federation in place of the one it names.
        model: A model in place of the one it names.
        task: Loss and metrics; None: classification or regression, as the data are.
        method: A method in place of its own.
        out: Run directory, from which the run can be resumed; None: nothing is written.
        trust: Let code that the file names run.
        callbacks: Are told how the run goes on.
        progress: Show a bar; None: in notebooks and on terminals.

    Returns:
        As `fedgsp.train`.

    Raises:
        InputError: The file cannot be read, makes no sense, or names code that nobody trusts.
        RunFailed: The run failed on the way; with `out`, the rounds before are kept there.
    """
    builder = _builder(data, model, task, method, trust)
    read = config if isinstance(config, RunConfig) else builder.read(Path(config))
    told = overlay.changed(read, sets)
    source = (data.source or IN_MEMORY) if data is not None else absolute(told.data.source)
    told = replace(told, data=replace(told.data, source=source))
    if model is not None:
        told = replace(told, model=replace(told.model, name="custom"))
    return _started(builder.build(told), out, callbacks, progress)


def _started(run: Run, out: str | Path | None, callbacks: Sequence[Callback], progress: bool | None) -> RunResult:
    warn(run.notes)
    warner = Warner()
    result = lifecycle.start(run, None if out is None else Path(out), [warner, *run_bar(progress), *callbacks])
    return replace(result, happened=tuple(warner.told))


def resume(
    directory: str | Path,
    *,
    rounds: int | None = None,
    workers: int | str | None = None,
    engine: str | Mapping[str, Any] | None = None,
    hop_seconds: float | None = None,
    previous: bool = False,
    round: int | None = None,  # noqa: A002 - the word of the command line
    other_numerics: bool = False,
    data: FederatedData | None = None,
    model: Callable[..., nn.Module] | nn.Module | None = None,
    task: Task | None = None,
    method: Method | None = None,
    trust: bool = False,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> RunResult:
    """Resume a run, to the same bits as if it had never stopped.

    Objects that were given in Python (data, model, task, a method of your own) must be given again.

    Args:
        directory: The run directory.
        rounds: Train up to this round; None: as before.
        workers: Worker processes; None: as before.
        engine: Where chains run, as for `train`; None: as before. A run may go on elsewhere than it was begun.
        hop_seconds: As for `train`; None: as before.
        previous: Go on from the checkpoint before the last.
        round: Go back to the checkpoint of this round: what was trained after it is dropped.
        other_numerics: Go on although torch, kernel or device are not those of the run.
        data: The federation, if it was given as an object.
        model: The model, if it was given as an object.
        task: Loss and metrics, if they were given as an object.
        method: The method, if it has parts that a configuration cannot name.
        trust: Let code that the run names run, although the run was not begun on this machine.
        callbacks: Are told how the run goes on.
        progress: Show a bar; None: in notebooks and on terminals.

    Returns:
        The run's figures, history and model. A run that is finished is only looked up.

    Raises:
        InputError: There is no run that can go on, or its data or configuration are not what they were.
        RunFailed: The run failed on the way.

    Example:
        >>> import fedgsp
        >>> result = fedgsp.resume("runs/mine", rounds=100)  # doctest: +SKIP
    """
    warner = Warner()
    result = lifecycle.resume(
        Path(directory), rounds=rounds, workers=workers,
        engine={"hop_seconds": hop_seconds, **({} if engine is None else _entries(engine))}, previous=previous, round_=round,
        other_numerics=other_numerics, builder=_builder(data, model, task, method, trust),
        callbacks=[warner, *run_bar(progress), *callbacks],
    )  # fmt: skip
    return replace(result, happened=tuple(warner.told))


def replay(
    directory: str | Path,
    *,
    workers: int | str = RunSection.workers,
    data: FederatedData | None = None,
    model: Callable[..., nn.Module] | nn.Module | None = None,
    task: Task | None = None,
    method: Method | None = None,
    other_numerics: bool = False,
    trust: bool = False,
) -> Replay:
    """Recompute a run from its configuration, data and event log, and compare it to the bit.

    Args:
        directory: The run directory.
        workers: Worker processes: a number, "auto", or 0 for none.
        data: The federation, if it was given as an object; for a deployment, the samples of all its sites.
        model: The model, if it was given as an object.
        task: Loss and metrics, if they were given as an object.
        method: The method, if it has parts that a configuration cannot name.
        other_numerics: Compare although torch, kernel or device are not those of the run.
        trust: As for `resume`.

    Returns:
        How many rounds agree, and the first difference, if any.

    Raises:
        InputError: There is nothing to replay, or bits may differ for a reason that is no fault of the run.

    Example:
        >>> import fedgsp
        >>> fedgsp.replay("runs/mine").differs is None  # doctest: +SKIP
        True
    """
    from fedgsp.deploy.replay import replay as replay_run

    return replay_run(
        Path(directory), workers=workers, builder=_builder(data, model, task, method, trust),
        other_numerics=other_numerics,
    )  # fmt: skip


def _builder(
    data: FederatedData | None,
    model: Callable[..., nn.Module] | nn.Module | None,
    task: Task | None,
    method: Method | None,
    trust: bool,
) -> RunBuilder:
    return RunBuilder(data, model, task, None if method is None else _checked(method), trust=trust)


def _with_local(method: Method, lr: float | None, batch_size: int | None, epochs: int | None) -> Method:
    """The method with what was given in place of its local rule's own."""
    given: dict[str, Any] = {"lr": lr, "batch_size": batch_size, "epochs": epochs}
    given = {name: value for name, value in given.items() if value is not None}
    return replace(method, local=replace(method.local, **given)) if given else method


def _entries(engine: str | Mapping[str, Any]) -> Mapping[str, Any]:
    return {"name": engine} if isinstance(engine, str) else engine


def _checked(method: object) -> Method:
    if not isinstance(method, Method):
        raise InputError(f"a method is a name or a fedgsp.Method of parts, not {where_defined(method)}.")
    return method


def _source_of(data: str | FederatedData) -> str:
    if isinstance(data, str):
        return absolute(data)
    if not isinstance(data, FederatedData):
        raise InputError(f"data is a source text or a FederatedData, not {type(data).__name__}.")
    return data.source or IN_MEMORY
