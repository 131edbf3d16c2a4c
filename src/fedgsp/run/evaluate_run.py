"""The newest model of a run, evaluated on its own or on other data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedgsp.client import ClientStore
from fedgsp.core.errors import InputError, did_you_mean
from fedgsp.core.tables import frame, html_table, text_table
from fedgsp.data import FederatedData, load
from fedgsp.data.sources import absolute
from fedgsp.evaluate import summarise
from fedgsp.run.build import IN_MEMORY, RunBuilder
from fedgsp.run.config import EngineSection
from fedgsp.run.evaluation import client_scores, every_row
from fedgsp.run.keeping import FOLDER
from fedgsp.run.reader import latest_checkpoint, need_run
from fedgsp.run.result import RunResult
from fedgsp.run.state_check import check_state

if TYPE_CHECKING:
    from torch import nn

    from fedgsp.core.state import ServerState
    from fedgsp.data.federated import Split
    from fedgsp.method import Method
    from fedgsp.models import Task
    from fedgsp.run.run import Run

PARTS = ("test", "train", "validation", "all")
HEADS = ("", "all clients", "worst client", "median", "best client")


@dataclass(frozen=True, repr=False)
class Evaluation:
    """What `fedgsp.evaluate` returns: figures over all clients, and those of each.

    Attributes:
        facts: All figures as plain data, as `fedgsp evaluate --json` prints them.
        score_name: The metric that counts: the task's score, or the loss.
    """

    facts: dict[str, Any]
    score_name: str

    @property
    def score(self) -> float:
        """The metric that counts, weighed as LEAF does."""
        return float(self.facts[self.score_name])

    @property
    def per_client(self) -> list[dict[str, Any]]:
        """The figures of each client."""
        return list(self.facts["per_client"])

    def to_pandas(self) -> Any:
        """A row for each client, as a pandas DataFrame."""
        return frame("pandas", self.per_client)

    def to_polars(self) -> Any:
        """A row for each client, as a polars DataFrame."""
        return frame("polars", self.per_client)

    def _rows(self) -> list[tuple[str, ...]]:
        rows = []
        for name, spread in self.facts["quantiles"].items():
            ends = ("1", "0.5", "0") if name == "loss" else ("0", "0.5", "1")
            rows.append((name, *(f"{value:.4f}" for value in (self.facts[name], *(spread[q] for q in ends)))))
        return rows

    def __repr__(self) -> str:
        facts = self.facts
        first = f"{facts['method']} after {facts['round']} rounds on the {facts['part']} samples of {facts['clients']} clients"
        return "\n".join([first, *text_table(HEADS, self._rows(), most=7)])

    def _repr_html_(self) -> str:
        title = f"{self.facts['method']} on {self.facts['part']} samples of {self.facts['data']['source'] or 'data in memory'}"
        return html_table(title, HEADS, self._rows())


def evaluate(
    run: str | Path | RunResult,
    data: str | FederatedData | None = None,
    *,
    part: str = "test",
    model: Callable[..., nn.Module] | nn.Module | None = None,
    task: Task | None = None,
    method: Method | None = None,
    trust: bool = False,
) -> Evaluation:
    """Evaluate a run's newest model, client by client.

    Args:
        run: A run directory, or what `fedgsp.train` returned.
        data: Other data than the run's own: a source text or a `FederatedData`. For the directory of a run that was started on
            data in memory: that data.
        part: Samples to evaluate on: "test", "train", "validation" or "all".
        model: The model, if the run of a directory was given it as an object.
        task: Loss and metrics, if they were given as an object.
        method: The method, if it has parts that a configuration cannot name.
        trust: Let code that a directory names run, although the run was not begun on this machine.

    Returns:
        Figures over all clients and for each.

    Raises:
        InputError: There is no such run or part, or the data does not fit the model.

    Example:
        >>> import fedgsp
        >>> fedgsp.evaluate("runs/mine", part="train").score  # doctest: +SKIP
        0.91
    """
    if part not in PARTS:
        raise InputError(f"unknown part '{part}': {did_you_mean(part, PARTS)}")
    if isinstance(run, RunResult):
        return Evaluation(_evaluated(run.run, run.state, data, part, run.directory), run.score_name)
    path = Path(run)
    builder = RunBuilder(None, model, task, method, trust=trust)
    config = builder.read(need_run(path) / "config.toml")
    found = latest_checkpoint(path)
    if found is None:
        raise InputError(f"{path} has no checkpoint yet, so there is no model to evaluate.")
    own = data if config.data.source == IN_MEMORY and isinstance(data, FederatedData) else None
    if config.data.source == IN_MEMORY and own is None:
        raise InputError("this run was started in Python on data in memory; give it again: fedgsp.evaluate(directory, data).")
    built = replace(builder, data=own).build(replace(config, run=replace(config.run, workers=0), engine=EngineSection()))
    check_state(path, found[0], built.initial_state)
    facts = _evaluated(built, found[0], None if own is not None else data, part, path)
    return Evaluation(facts, built.worker_setup.task.score or "loss")


def evaluate_run(path: Path, source: str | None, part: str, *, trust: bool = False) -> dict[str, Any]:
    """Figures and per-client values of the newest model on one part of some data; `trust` lets code that the run names run."""
    return evaluate(path, source, part=part, trust=trust).facts


def _evaluated(
    run: Run, state: ServerState, other: str | FederatedData | None, part: str, path: Path | None
) -> dict[str, Any]:  # fmt: skip
    config, method = run.config, run.config.method
    source = config.data.source if other is None else other if isinstance(other, str) else "the data given"
    data, clients = run.data, np.union1d(run.evaluated, run.held_out)
    if other is not None:
        if method.yields == "none":
            raise InputError(f"with {method.name} every client keeps a model of its own; {source} has other clients.")
        data = load(absolute(other)) if isinstance(other, str) else other
        clients = np.arange(len(data))
        if data.sample_shape != run.data.sample_shape or data.classes > run.data.classes:
            raise InputError(
                f"{source} has samples of shape {data.sample_shape} in {data.classes} classes; the model was trained on "
                f"{run.data.sample_shape} in {run.data.classes}."
            )
    if method.yields == "none" and path is None:
        raise InputError(f"with {method.name} every client keeps a model of its own: train with `out=...` to keep them.")
    rows: Split = every_row(data) if part == "all" else getattr(data, part)
    store = ClientStore(path / FOLDER) if path is not None and method.yields == "none" else None
    from fedgsp.engine import InlineEngine

    engine = InlineEngine(replace(run.worker_setup, data=data, store=store))
    scores = client_scores(engine, method.server, state, data, clients, rows, method.personal)
    summary = summarise(scores)
    if summary is None:
        raise InputError(f"{source} has no {part} samples to evaluate on.")
    each = [
        {"client": data.clients[k], "samples": int(n), **{name: float(v[i]) for name, v in scores.values.items()}}
        for i, (k, n) in enumerate(zip(scores.clients, scores.samples, strict=True))
    ]
    return {
        "method": method.name,
        "yields": method.yields,
        "round": state.round,
        "part": part,
        "data": {"source": data.source, "fingerprint": data.fingerprint},
        **summary.as_dict(),
        "per_client": each,
    }
