"""Evaluating a deployment's models on samples that the server has itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedgsp.core.errors import InputError
from fedgsp.data import FederatedData, load
from fedgsp.engine.transports.inline import InlineEngine
from fedgsp.evaluate import summarise
from fedgsp.run.evaluation import client_scores

if TYPE_CHECKING:
    from fedgsp.core.state import ServerState
    from fedgsp.run.run import Run

AT_SITES = "sites"
"""What a configuration says of data that only the sites have."""


@dataclass(frozen=True)
class CentralEvaluation:
    """The test samples of a source that the server can read."""

    run: Run
    data: FederatedData

    def figures(self, state: ServerState) -> dict[str, Any] | None:
        """The same figures as of clients, over the source's own."""
        engine = InlineEngine(replace(self.run.worker_setup, data=self.data, store=None))
        everybody = np.arange(len(self.data))
        scores = client_scores(engine, self.run.config.method.server, state, self.data, everybody, self.data.test)
        summary = summarise(scores)
        return None if summary is None else summary.as_dict()


def with_server_evaluation(run: Run) -> Run:
    """The same run, with the server's own test samples where its configuration names some and there is one model."""
    config = run.config
    if config.data.source == AT_SITES or config.method.yields != "one":
        return run
    data = load(config.data.source, data_seed=config.data.seed)
    ours, theirs = (run.worker_setup.data.sample_shape, run.worker_setup.data.classes), (data.sample_shape, data.classes)
    if ours[0] != theirs[0] or theirs[1] > ours[1]:
        raise InputError(
            f"the server's own data {config.data.source} has samples of shape {theirs[0]} in {theirs[1]} classes, the sites "
            f"have {ours[0]} in {ours[1]}."
        )
    if not len(data.test.rows):
        raise InputError(f"the server's own data {config.data.source} has no test samples; leave [data] out, or give it some.")
    return replace(run, server_evaluation=CentralEvaluation(run, data))
