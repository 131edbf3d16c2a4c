"""A warm start: a plain mean in the first rounds, another server rule from then on, which begins as if that were round 1.

    rounds r <= S:   w <- sum_m p_m w_m
    after them:      the rule inside, begun anew with that w (FedAdam: m = 0, v = tau^2), or with the moments that it would
                     have had by then (`fresh` of False, an ablation)

For adaptive servers: the first update of a training from scratch is larger than later ones, and a plain mean keeps it out of m
and v. What that is worth, and how little it changes v: docs/methods.md, "A warm start".

The moments are made anew after every plain round, so a restart or a resume in the middle changes nothing. Traffic as the rule
inside. To tune: `rounds` over 1, 2, 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from fedgsp.core.errors import InputError
from fedgsp.core.params import OMIT_DEFAULT, require_whole
from fedgsp.core.part import Values
from fedgsp.core.state import ServerState, Setting
from fedgsp.server.checks import require_weights
from fedgsp.server.mean import Mean
from fedgsp.server.rule import Update, hand
from fedgsp.server.wrapper import Wrapper, WrapperUpdate

if TYPE_CHECKING:
    from fedgsp.core.chain import ChainResult, Plan
    from fedgsp.core.tensors import Tensors
    from fedgsp.server.mean import Weighing

SETTING = "warm start"


@dataclass(frozen=True)
class WarmStart(Wrapper):
    """A plain mean for the first `rounds` rounds; from then on the rule `server`, begun with what they gave.

    Args:
        server: The rule of all later rounds.
        rounds: How many rounds are plain means.
        weights: What a chain counts in them: its samples ("samples") or the same as any ("uniform").
        fresh: Whether `server` begins afresh after them. If not it sees these rounds, too, and only its model is not taken.

    Raises:
        InputError: If a parameter cannot be used, or the rule inside is half of a method with a local rule.
    """

    kind: ClassVar[str] = "warm"
    inside_local: ClassVar[bool] = True
    tuned_over: ClassVar[Mapping[str, Values]] = {"rounds": (1, 2)}

    rounds: int = 1
    weights: Literal["samples", "uniform"] = "samples"
    fresh: bool = field(default=True, metadata=OMIT_DEFAULT)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("WarmStart", "rounds", self.rounds, at_least=0)
        require_weights("warm", self.weights)
        if self.server.requires_local or self.server.yields != "one":
            raise InputError(
                "the server rule 'warm' goes around a rule that makes do with models; put a rule that is half of a method "
                "around it instead, as in 'fedadam+warm+scaffold'."
            )

    def init(self, model: Tensors, setting: Setting = Setting()) -> ServerState:  # noqa: B008 - frozen
        """The rule inside, and what it was told, to begin it again."""
        return self._begun(model, setting)

    def start(self, state: ServerState, plan: Plan, planned: Sequence[int]) -> Update:
        """Begin a plain mean, or a round of the rule inside."""
        if state.round >= self.rounds:
            return self.server.start(state, plan, planned)
        plain = Mean(self.weights).start(state, plan, planned)
        return WarmUpdate(self, state, plain) if self.fresh else SeenUpdate(plain, self.server.start(state, plan, planned))

    def restarted(self, state: ServerState) -> ServerState:
        """The rule inside as before its first round, with the models of `state`."""
        told: dict[str, Any] = dict(state.extra[SETTING])
        trained = None if told["trained"] is None else frozenset(told["trained"])
        begun = self._begun(state.model, Setting(**{**told, "trained": trained}))
        return replace(
            state,
            slots={**state.slots, **begun.slots},  # what a rule around this one keeps stays
            shared={**state.shared, **begun.shared},
            extra={**state.extra, **begun.extra},
        )

    def _begun(self, model: Tensors, setting: Setting) -> ServerState:
        state = self.server.init(model, setting)
        told = {**asdict(setting), "trained": None if setting.trained is None else sorted(setting.trained)}
        return replace(state, extra={**state.extra, SETTING: told})


class WarmUpdate(WrapperUpdate):
    """A plain mean."""

    def __init__(self, rule: WarmStart, state: ServerState, inside: Update) -> None:
        super().__init__(state, inside)
        self._rule = rule

    def elsewhere(self) -> Weighing | None:
        """As the mean."""
        return self.inside.elsewhere()

    def finish(self) -> ServerState:
        """The mean, and the rule inside begun anew."""
        return self._rule.restarted(super().finish())


class SeenUpdate(Update):
    """A plain mean, and a round of the rule inside, of which all is taken but the model."""

    borrows = True

    def __init__(self, plain: Update, inside: Update) -> None:
        self._plain, self._inside = plain, inside

    def add(self, result: ChainResult) -> None:
        """To both."""
        hand(self._plain, result)
        hand(self._inside, result)

    def finish(self) -> ServerState:
        """The mean, with the moments of the rule inside."""
        return replace(self._inside.finish(), models=self._plain.finish().models)
