"""The newest model of a run, evaluated on its own or on other data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedgsp.client import ClientStore
from fedgsp.core.errors import InputError, did_you_mean
from fedgsp.data import load
from fedgsp.data.sources import absolute
from fedgsp.evaluate import summarise
from fedgsp.run.build import RunBuilder
from fedgsp.run.config import EngineSection
from fedgsp.run.evaluation import client_scores, every_row
from fedgsp.run.keeping import FOLDER
from fedgsp.run.reader import latest_checkpoint
from fedgsp.run.state_check import check_state

if TYPE_CHECKING:
    from fedgsp.data.federated import Split

PARTS = ("test", "train", "validation", "all")


def evaluate_run(path: Path, source: str | None, part: str, *, trust: bool = False) -> dict[str, Any]:
    """Figures and per-client values of the newest model on one part of some data; `trust` lets code that the run names run."""
    if part not in PARTS:
        raise InputError(f"unknown part '{part}': {did_you_mean(part, PARTS)}")
    builder = RunBuilder(trust=trust)
    config = builder.read(path / "config.toml")
    found = latest_checkpoint(path)
    if found is None:
        raise InputError(f"{path} has no checkpoint yet, so there is no model to evaluate.")
    state, _ = found
    run = builder.build(replace(config, run=replace(config.run, workers=0), engine=EngineSection()))
    check_state(path, state, run.initial_state)
    data, clients = run.data, np.union1d(run.evaluated, run.held_out)
    if source is not None:
        if config.method.yields == "none":
            raise InputError(f"with {config.method.name} every client keeps a model of its own; {source} has other clients.")
        data = load(absolute(source))
        clients = np.arange(len(data))
        if data.sample_shape != run.data.sample_shape or data.classes > run.data.classes:
            raise InputError(
                f"{source} has samples of shape {data.sample_shape} in {data.classes} classes; the model was trained on "
                f"{run.data.sample_shape} in {run.data.classes}."
            )
    rows: Split = every_row(data) if part == "all" else getattr(data, part)
    store = ClientStore(path / FOLDER) if config.method.yields == "none" else None
    from fedgsp.engine import InlineEngine

    engine = InlineEngine(replace(run.worker_setup, data=data, store=store))
    scores = client_scores(engine, config.method.server, state, data, clients, rows, config.method.personal)
    summary = summarise(scores)
    if summary is None:
        raise InputError(f"{source or config.data.source} has no {part} samples to evaluate on.")
    each = [
        {"client": data.clients[k], "samples": int(n), **{name: float(v[i]) for name, v in scores.values.items()}}
        for i, (k, n) in enumerate(zip(scores.clients, scores.samples, strict=True))
    ]
    return {
        "method": config.method.name,
        "yields": config.method.yields,
        "round": state.round,
        "part": part,
        "data": {"source": data.source, "fingerprint": data.fingerprint},
        **summary.as_dict(),
        "per_client": each,
    }
