"""Evaluation of a state: which rows, of which clients, on which model, and the figures that come out."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.errors import Diverged
from fedgsp.core.state import ServerState
from fedgsp.data.federated import FederatedData, Part
from fedgsp.engine.job import Engine
from fedgsp.evaluate import ClientScores, SampleScores, per_client, summarise
from fedgsp.server import ServerRule

Clients = NDArray[np.int64]


def evaluate_state(
    engine: Engine,
    server: ServerRule,
    state: ServerState,
    data: FederatedData,
    judged: Clients,
    held_out: Clients,
    evaluate_on: Literal["test", "validation"] = "test",
) -> tuple[dict[str, Any], ClientScores]:
    """Figures for the journal: test, validation (where carved out) and the clients that never train (all their samples).

    On "validation" (tuning) nothing but that part is looked at, so that test data cannot sway a choice.
    Beside the figures come the scores of each client that they are made of.
    """
    figures: dict[str, Any] = {}
    part = data.test if evaluate_on == "test" else data.validation
    scores = client_scores(engine, server, state, data, judged, part)
    tested = summarise(scores)
    if tested is not None:
        figures.update(tested.as_dict())
        figures[f"{evaluate_on}_clients"] = figures.pop("clients")
        figures[f"{evaluate_on}_samples"] = figures.pop("samples")
    if evaluate_on == "test":
        validation = summarise(client_scores(engine, server, state, data, judged, data.validation))
        if validation is not None:
            figures["validation"] = validation.as_dict()
        if len(held_out):
            unseen = summarise(client_scores(engine, server, state, data, held_out, every_row(data)))
            figures["holdout"] = unseen.as_dict() if unseen is not None else None
    for name, value in figures.items():
        if isinstance(value, float) and not np.isfinite(value):
            raise Diverged(
                f"the model of round {state.round} has the {evaluate_on} {name} {value}; try a smaller learning rate."
            )
    return figures, scores


def client_scores(
    engine: Engine, server: ServerRule, state: ServerState, data: FederatedData, clients: Clients, part: Part
) -> ClientScores:
    """Per-client scores on one part, each client on the model that the server rule shows it."""
    wanted, owners = [], []
    for view in server.views(state):
        members = clients if view.clients is None else np.intersect1d(clients, view.clients)
        chosen = part.take(members)
        wanted.append((view.model, chosen.rows))
        owners.append((members, chosen.sizes))
    found = engine.score(state, wanted)
    members = np.concatenate([who for who, _ in owners])
    sizes = np.concatenate([size for _, size in owners])
    joined = SampleScores(
        np.concatenate([scores.loss for scores in found]),
        {name: np.concatenate([scores.metrics[name] for scores in found]) for name in found[0].metrics},
    )
    return per_client(joined, members, sizes, data.sizes[members])


def every_row(data: FederatedData) -> Part:
    """All samples of every client, whatever part they are in."""
    return Part.of([np.concatenate([data.train[k], data.validation[k], data.test[k]]) for k in range(len(data))])
