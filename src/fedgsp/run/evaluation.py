"""Evaluation of a state: which rows, of which clients, on which model, and the figures that come out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.errors import Diverged
from fedgsp.data.federated import FederatedData, Split
from fedgsp.evaluate import ClientScores, SampleScores, Summary, per_client, summarise

if TYPE_CHECKING:
    from fedgsp.core.state import ServerState
    from fedgsp.engine.base import Engine, PendingEvaluation
    from fedgsp.server import ServerRule

Clients = NDArray[np.int64]


class RoundEvaluation:
    """The figures of one state: asked for at once, `figures` when they are wanted.

    They are about test, validation (where carved out) and the clients that never train (all their samples). On "validation"
    (tuning) nothing but that part is looked at, so that test data cannot sway a choice. With `personal` every client makes the
    model its own first, on its training samples; those that never train are then judged on test samples only.
    """

    def __init__(
        self,
        engine: Engine,
        server: ServerRule,
        state: ServerState,
        data: FederatedData,
        judged: Clients,
        held_out: Clients,
        evaluate_on: Literal["test", "validation"] = "test",
        personal: bool = False,
    ) -> None:
        self._data, self._state, self._on = data, state, evaluate_on
        self._views = server.views(state)

        def of(clients: Clients, part: Split) -> Question:
            return Question.of(server, state, clients, part, personal)

        self._questions: dict[str, Question] = {
            evaluate_on: of(judged, data.test if evaluate_on == "test" else data.validation)
        }
        if evaluate_on == "test":
            self._questions["validation"] = of(judged, data.validation)
            if len(held_out) and server.yields != "none":  # who never trained has no model of its own
                self._questions["holdout"] = of(held_out, data.test if personal else every_row(data))
        wanted = [one for question in self._questions.values() for one in question.wanted]
        owners = [one for question in self._questions.values() for one in question.owners]
        self.asked: PendingEvaluation = engine.evaluate(state, wanted, owners)

    def figures(self) -> tuple[dict[str, Any], ClientScores]:
        """Entries for the journal, and the scores of each client that the first of them are made of."""
        scores, at = self.asked.result(), 0
        gone = frozenset(one.client for one in self.asked.missing)
        found: dict[str, Summary | None] = {}
        answers: dict[str, ClientScores] = {}
        for name, question in self._questions.items():
            answers[name] = question.answered(scores[at : at + len(question.wanted)], self._data, gone)
            found[name] = summarise(answers[name])
            at += len(question.wanted)
        figures: dict[str, Any] = {}
        tested = found.pop(self._on)
        if tested is not None:
            figures.update(tested.as_dict())
            figures[f"{self._on}_clients"] = figures.pop("clients")
            figures[f"{self._on}_samples"] = figures.pop("samples")
        for name, summary in found.items():
            if summary is not None or name == "holdout":
                figures[name] = None if summary is None else summary.as_dict()
        for name, value in figures.items():
            if isinstance(value, float) and not np.isfinite(value):
                what = f"the model of round {self._state.round} has the {self._on} {name} {value}"
                raise Diverged(f"{what}; {self._cause() or 'try a smaller learning rate.'}")
        return figures, answers[self._on]

    def _cause(self) -> str | None:
        """What else than the learning rate is to blame: a tensor that nobody trains, where all that are trained are finite."""
        trained = self._state.trained
        for view in self._views:
            model = {name: t for name, t in self._state.evaluated(view.model)[0].items() if t.is_floating_point()}
            if any(not t.isfinite().all() for name, t in model.items() if trained is None or name in trained):
                return None
            for name, tensor in model.items():
                if bool((tensor.isnan() | tensor.isposinf()).any()):  # -inf is what a mask is made of
                    return (
                        f"all its trained weights are finite, but '{name}', which is not trained and only averaged, is not: "
                        f"look at the scale of the samples and at what the model keeps there."
                    )
        return None


@dataclass(frozen=True)
class Question:
    """What must be scored to judge some clients on one part, each on the model that the server rule shows it."""

    wanted: list[tuple[str, NDArray[np.int64]]]
    owners: list[int | None]
    members: Clients
    sizes: NDArray[np.int64]
    counted: NDArray[np.int64]

    @classmethod
    def of(cls, server: ServerRule, state: ServerState, clients: Clients, part: Split, personal: bool) -> Question:
        """With `personal` each client makes the model its own."""
        wanted: list[tuple[str, NDArray[np.int64]]] = []
        owners: list[int | None] = []
        whose = []
        views = server.views(state)
        claimed = [k for view in views for k in view.clients or ()]
        for view in views:
            members = np.setdiff1d(clients, claimed) if view.clients is None else np.intersect1d(clients, view.clients)
            chosen = part.take(members)
            sizes = np.diff(chosen.offsets)
            whose.append((members, sizes, chosen.counted))
            if personal and len(chosen.rows):
                alone = list(_alone(view.model, chosen.rows, members, sizes))
                wanted += [(name, rows) for name, rows, _ in alone]
                owners += [owner for _, _, owner in alone]
            else:
                wanted.append((view.model, chosen.rows))
                owners.append(None)
        members, sizes, counted = (np.concatenate(column) for column in zip(*whose, strict=True))
        return cls(wanted, owners, members, sizes, counted)

    def answered(
        self, found: Sequence[SampleScores], data: FederatedData, missing: frozenset[int] = frozenset()
    ) -> ClientScores:  # fmt: skip
        """Per-client scores; those of `missing` clients never came, and are left out."""
        joined = SampleScores(
            np.concatenate([scores.loss for scores in found]),
            {name: np.concatenate([scores.metrics[name] for scores in found]) for name in found[0].metrics},
        )
        scores = per_client(joined, self.members, self.sizes, data.sizes[self.members], self.counted)
        return scores.without(missing) if missing else scores


def client_scores(
    engine: Engine,
    server: ServerRule,
    state: ServerState,
    data: FederatedData,
    clients: Clients,
    part: Split,
    personal: bool = False,
) -> ClientScores:
    """Per-client scores on one part, each client on the model that the server rule shows it (or, `personal`, makes of it)."""
    question = Question.of(server, state, clients, part, personal)
    return question.answered(engine.evaluate(state, question.wanted, question.owners).result(), data)


def _alone(
    name: str, rows: NDArray[np.int64], members: Clients, sizes: NDArray[np.int64]
) -> Iterator[tuple[str, NDArray[np.int64], int]]:
    """One view's rows client by client, of those that have some."""
    ends = np.cumsum(sizes)
    for client, size, end in zip(members, sizes, ends, strict=True):
        if size:
            yield name, rows[end - size : end], int(client)


def every_row(data: FederatedData) -> Split:
    """All samples of every client, whatever part they are in."""
    return Split.of([np.concatenate([data.train[k], data.validation[k], data.test[k]]) for k in range(len(data))])
