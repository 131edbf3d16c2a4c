"""The Python interface: the same as the command line, in a few lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from torch import nn

from fedgsp.core.errors import InputError
from fedgsp.core.where import where_defined
from fedgsp.data import FederatedData
from fedgsp.data.sources import absolute
from fedgsp.method import Method
from fedgsp.methods import named
from fedgsp.models import Task
from fedgsp.run import drive
from fedgsp.run.config import DataSection, EngineSection, ModelSection, RunConfig, RunSection
from fedgsp.run.drive import Objects
from fedgsp.run.observers import Observer
from fedgsp.run.replay import Replay
from fedgsp.run.replay import replay as replay_run
from fedgsp.run.result import RunResult
from fedgsp.run.setup import IN_MEMORY

Model = str | Callable[..., nn.Module] | nn.Module


def train(
    method: str | Method = "fedgsp",
    data: str | FederatedData = "glyphs",
    model: Model = "small_cnn",
    *,
    rounds: int = 30,
    seed: int = 0,
    data_seed: int = 0,
    out: str | Path | None = None,
    workers: int | str = "auto",
    engine: str | Mapping[str, Any] = "local",
    hop_seconds: float | None = None,
    device: str = "cpu",
    fast: Literal["auto", "on", "off"] = "auto",
    task: Task | None = None,
    lr: float | None = None,
    batch_size: int | None = None,
    epochs: int | None = None,
    init: str | Path | None = None,
    eval_every: int = 1,
    target_accuracy: float | None = None,
    stop_at_target: bool = False,
    holdout_clients: int = 0,
    validation: float = 0.0,
    observers: Sequence[Observer] = (),
) -> RunResult:
    """Train a method on a federation.

    `method` is a name (see `fedgsp.METHODS`) or a `Method` built from parts; `data` a source text or a `FederatedData`; `model`
    a name, a callable that returns a module, or a module, whose weights are then the start. With `out` the run is a directory
    that can be resumed; without it nothing is written. `lr`, `batch_size` and `epochs` replace those of the method.
    `engine` is "local", "ray", or entries of [engine]: {"name": "ray", "address": "auto", "resources": "gpu=0.5"}.
    `hop_seconds` replaces a worker process that is at one client for so long; with `workers=0` there is none to replace.
    `fast` is the fast path of local training: where there is one ("auto"), or an error without ("on"), or never ("off").
    """
    chosen = named(method) if isinstance(method, str) else method
    _require_method(chosen)
    changed: dict[str, Any] = {"lr": lr, "batch_size": batch_size, "epochs": epochs}
    changed = {name: value for name, value in changed.items() if value is not None}
    if changed:
        chosen = replace(chosen, local=replace(chosen.local, **changed))
    config = RunConfig(
        run=RunSection(rounds, seed, workers, device, eval_every, target_accuracy, stop_at_target, holdout_clients, fast=fast),
        data=DataSection(_source_of(data), data_seed, None, validation),
        model=ModelSection(model if isinstance(model, str) else "custom", None if init is None else str(Path(init).resolve())),
        method=chosen,
        engine=EngineSection().changed({"hop_seconds": hop_seconds, **_entries(engine)}),
    )
    objects = Objects(
        data=None if isinstance(data, str) else data, model=None if isinstance(model, str) else model, task=task
    )  # fmt: skip
    return drive.start(objects.prepare(config), None if out is None else Path(out), observers)


def resume(
    directory: str | Path,
    *,
    rounds: int | None = None,
    workers: int | str | None = None,
    engine: str | Mapping[str, Any] | None = None,
    hop_seconds: float | None = None,
    previous: bool = False,
    other_numerics: bool = False,
    data: FederatedData | None = None,
    model: Callable[..., nn.Module] | nn.Module | None = None,
    task: Task | None = None,
    method: Method | None = None,
    observers: Sequence[Observer] = (),
) -> RunResult:
    """Go on with a run, to the same bits as if it had never stopped.

    Objects that were given in Python (data, model, task, a method of your own) must be given again. It may go on elsewhere than
    it was begun: `engine` as for `train`.
    """
    if method is not None:
        _require_method(method)
    return drive.resume(
        Path(directory), rounds=rounds, workers=workers,
        engine={"hop_seconds": hop_seconds, **({} if engine is None else _entries(engine))}, previous=previous,
        other_numerics=other_numerics, objects=Objects(data, model, task, method), observers=observers,
    )  # fmt: skip


def replay(
    directory: str | Path,
    *,
    workers: int | str = "auto",
    data: FederatedData | None = None,
    model: Callable[..., nn.Module] | nn.Module | None = None,
    task: Task | None = None,
    method: Method | None = None,
    other_numerics: bool = False,
) -> Replay:
    """Recompute a run from its configuration, data and event log, and compare it to the bit.

    It is refused where torch, kernel or device are not those of the run; `other_numerics` compares all the same.
    """
    if method is not None:
        _require_method(method)
    objects = Objects(data, model, task, method)
    return replay_run(Path(directory), workers=workers, objects=objects, other_numerics=other_numerics)


def _entries(engine: str | Mapping[str, Any]) -> Mapping[str, Any]:
    return {"name": engine} if isinstance(engine, str) else engine


def _require_method(method: object) -> None:
    if not isinstance(method, Method):
        raise InputError(f"a method is a name or a fedgsp.Method of parts, not {where_defined(method)}.")


def _source_of(data: str | FederatedData) -> str:
    if isinstance(data, str):
        return absolute(data)
    if not isinstance(data, FederatedData):
        raise InputError(f"data is a source text or a FederatedData, not {type(data).__name__}.")
    return data.source or IN_MEMORY
