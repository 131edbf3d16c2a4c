"""Models handed on between rounds: daisy chains (FedDC, Kamp et al., ICLR 2023) and FedSeqInter (Zaccone et al. 2022).

Between two averagings there are as many live models as chains; a round hands each to another chain, drawn at random:

    r mod b != 1:   w_i begins where pi_r says, pi_r a random permutation of the round's chains    (several live models)
    every round:    wbar = sum_i N_i w_i / sum_i N_i,   N_i the samples that w_i has seen since the last averaging ("samples")
                                                        or 1 ("uniform", FedDC's plain mean)
    r mod b == 0:   every live model is replaced by wbar

So b rounds are what b clients in a row are elsewhere: small data sets see more data before they are averaged. FedDC's `d`
(training d rounds at a place before handing on) is `epochs` = d: nothing is sent meanwhile either way. With b = 1 it is the
mean of every round (FedAvg, FedSeq), to the bit. A round with fewer chains than live models lets the last ones rest; chains
beyond them begin with wbar.

`judge` says what is evaluated between averagings: "mean", wbar, one model, as FedSeqInter's code does it; "own", each client
of a chain on the model that its chain holds, the others on wbar: several models, comparable to others only in rounds that are
multiples of b. Traffic as FedAvg (every model goes up and, to its next client, down again). The server holds a model a
chain: c |w| in memory and in each checkpoint.

To tune: `period` b over 2, 5, 10, 20 (FedDC's small data sets want many), and the client's lr as for sequential methods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from fedgsp.core.errors import InputError
from fedgsp.core.part import Values
from fedgsp.core.state import GLOBAL, ServerState, Yields
from fedgsp.core.sums import ExactSum
from fedgsp.core.tensors import Tensors, clone
from fedgsp.server.mean import Mean
from fedgsp.server.rule import Update, View

if TYPE_CHECKING:
    from fedgsp.core.chain import ChainResult, Plan
    from fedgsp.core.seeds import Seeds

LIVE = "live"
"""In `extra`: by live model, the samples it has seen since the last averaging and the clients that hold it."""


@dataclass(frozen=True, kw_only=True)
class ModelRotation(Mean):
    """Hand live models on between rounds, average them every `period` rounds.

    Args:
        period: After how many rounds the live models are averaged.
        judge: What is evaluated in between: the mean of the live models, or each client's own.
    """

    kind: ClassVar[str] = "hand-on"
    several_live: ClassVar[bool] = True
    tuned_over: ClassVar[Mapping[str, Values]] = {"period": (5, 10)}

    period: int = 10
    judge: Literal["mean", "own"] = "mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.period < 1:
            raise InputError(f"the server rule 'hand-on': period must be at least 1 round, not {self.period}.")
        if self.judge not in ("mean", "own"):
            raise InputError(f"the server rule 'hand-on': judge must be 'mean' or 'own', not '{self.judge}'.")

    @property
    def yields(self) -> Yields:
        """Several models where each client is judged on its own."""
        return "several" if self.judge == "own" and self.period > 1 else "one"

    def live_models(self, chains: int) -> int:
        """How many models the server holds between rounds, beside the mean, when that many chains train."""
        return chains if self.period > 1 else 0

    def route(self, state: ServerState, plan: Plan, seeds: Seeds) -> Plan:
        """Deal the live models to the round's chains."""
        live = state.extra.get(LIVE, {})
        starts = [live_name(i) for i in range(len(live))] + [GLOBAL] * max(0, len(plan.chains) - len(live))
        busy = starts[: len(plan.chains)]
        order = seeds.route(plan.round).permutation(len(busy))
        chains = tuple(replace(chain, start=busy[int(i)]) for chain, i in zip(plan.chains, order, strict=True))
        return replace(plan, chains=chains)

    def start(self, state: ServerState, plan: Plan, planned: Sequence[int]) -> ModelRotationUpdate:  # type: ignore[override]
        """Begin a round."""
        return ModelRotationUpdate(self, state, plan, planned)

    def views(self, state: ServerState) -> tuple[View, ...]:
        """The mean for everybody, or for each chain's clients the model it holds."""
        live: dict[str, Any] = state.extra.get(LIVE, {}) if self.judge == "own" else {}
        return (View(), *(View(name, tuple(facts["clients"])) for name, facts in live.items()))


class ModelRotationUpdate(Update):
    """A round's live models and their running, exact mean."""

    borrows = True

    def __init__(self, rule: ModelRotation, state: ServerState, plan: Plan, planned: Sequence[int]) -> None:
        self._rule, self._state, self._plan = rule, state, plan
        self._seen: dict[str, Any] = state.extra.get(LIVE, {})
        before = sum(facts["samples"] for facts in self._seen.values())
        models = max(len(plan.chains), len(self._seen))
        most = max(1, sum(planned) + before) if rule.weights == "samples" else max(1, models)
        self._sum = ExactSum(state.model, most, state.trained)
        self._done: dict[int, tuple[Tensors, dict[str, Any]]] = {}
        self._returned: set[str] = set()

    def add(self, result: ChainResult) -> None:
        """Keep one chain's model and add it to the mean."""
        self._returned.add(result.chain.start)
        samples = result.samples + self._seen.get(result.chain.start, {"samples": 0})["samples"]
        self._count(result.tensors, samples, f"chain {result.index} of round {self._plan.round}")
        if self._plan.round % self._rule.period:
            facts = {"samples": samples, "clients": sorted(set(result.chain.clients))}
            self._done[result.index] = clone(result.tensors), facts

    def finish(self) -> ServerState:
        """The mean, and the live models unless this was the round to average them."""
        resting = [name for name in self._seen if name not in self._returned]
        for name in resting:
            self._count(self._state.models[name], self._seen[name]["samples"], f"the model '{name}'")
        models, live = {GLOBAL: self._sum.mean()}, {}
        if self._plan.round % self._rule.period:
            kept = [self._done[index] for index in sorted(self._done)]
            kept += [(self._state.models[name], self._seen[name]) for name in resting]
            for number, (tensors, facts) in enumerate(kept):
                models[live_name(number)], live[live_name(number)] = tensors, facts
        return replace(self._state, round=self._plan.round, models=models, extra={**self._state.extra, LIVE: live})

    def _count(self, tensors: Tensors, samples: int, who: str) -> None:
        self._sum.add(tensors, samples if self._rule.weights == "samples" else 1, who)


def live_name(number: int) -> str:
    """What the live model of that number is called."""
    return f"live-{number}"
