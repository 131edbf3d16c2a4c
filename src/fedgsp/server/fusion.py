"""FedFusion's server half (Yao et al. 2019), around any other server rule.

1. After the rule inside, the fusion weight is smoothed: gamma <- (1 - keep) gamma_new + keep gamma_old, keep = 0.9, gamma
   starting at 0 (operators "multi" and "single"; "conv" has no gamma and is left alone).
2. With `eval_ref="prev"` the extractor that the round began with is kept for evaluation: the released code evaluates right
   after averaging, so the new extractor is fused with the PREVIOUS global one, the relation in which the fusion weights were
   trained. With "new" the model is fused with itself, as a client finds it. The kept extractor never leaves the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from fedgsp.core.errors import InputError
from fedgsp.core.state import GLOBAL, ServerState, Setting, beside
from fedgsp.core.tensors import Tensors, clone
from fedgsp.server.checks import require_share
from fedgsp.server.wrapper import Wrapper, WrapperUpdate

if TYPE_CHECKING:
    from fedgsp.core.chain import Plan
    from fedgsp.server.rule import Update

GAMMA = "fusion.gamma"
OPERATOR = "fusion."
EXTRACTOR = "features."


@dataclass(frozen=True)
class FusionServer(Wrapper):
    """Smoothing of gamma and the reference at evaluation, around the server rule `server`.

    Args:
        keep: Share of the old fusion weight that is kept.
        eval_ref: The extractor that is fused with at evaluation: the one the round began with, or the new one.
    """

    kind: ClassVar[str] = "fused"

    keep: float = 0.9
    eval_ref: Literal["prev", "new"] = "prev"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.eval_ref not in ("prev", "new"):
            raise InputError(f"the server rule 'fused': eval_ref must be 'prev' or 'new', not '{self.eval_ref}'.")
        require_share("fused", "keep", self.keep)

    def init(self, model: Tensors, setting: Setting = Setting()) -> ServerState:  # noqa: B008 - frozen
        """As the rule inside; only models with a fusion operator make sense here."""
        if not any(name.startswith(OPERATOR) for name in model):
            raise InputError("the server rule 'fused' is FedFusion's server half: it needs the local rule 'fusion'.")
        state = self.server.init(model, setting)
        return self._remember(state, model)

    def start(self, state: ServerState, plan: Plan, planned: Sequence[int]) -> FusionUpdate:
        """Begin a round of the rule inside."""
        return FusionUpdate(self, state, self.server.start(state, plan, planned))

    def settle(self, before: ServerState, after: ServerState) -> ServerState:
        """What the round `before` -> `after` of the rule inside becomes."""
        model = dict(after.model)
        if GAMMA in model:
            smooth = model[GAMMA].double() * (1 - self.keep) + before.model[GAMMA].double() * self.keep
            model[GAMMA] = smooth.to(model[GAMMA].dtype)
        return self._remember(replace(after, models={**after.models, GLOBAL: model}), before.model)

    def _remember(self, state: ServerState, previous: Tensors) -> ServerState:
        if self.eval_ref == "new":
            return state
        extractor = {name: tensor for name, tensor in previous.items() if name.startswith(EXTRACTOR)}
        return replace(state, slots={**state.slots, beside(GLOBAL): clone(extractor)})


class FusionUpdate(WrapperUpdate):
    """A round of the rule inside, and what comes after it."""

    def __init__(self, rule: FusionServer, state: ServerState, inside: Update) -> None:
        super().__init__(state, inside)
        self._rule = rule

    def finish(self) -> ServerState:
        """Smooth and remember."""
        return self._rule.settle(self.state, self.inside.finish())
