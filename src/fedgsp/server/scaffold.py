"""SCAFFOLD's server half (Karimireddy et al. 2020), around any other server rule: c <- c + (1/K) sum_k Delta_k.

The models are up to the rule inside (the mean by samples; the paper's step of the server is `fedgsp.server.Momentum` with
beta 0). K are all clients that may train, so that c stays the mean of their c_k however few of them train in a round. c is
sent along with the model; it is kept in the parameters' own type, like the c_k, so that with one client the two are the same
to the bit. What a chain's clients send is summed on the way and added exactly here.

What is minimised: the plain mean of the clients' losses, (1/K) sum_k F_k, as the paper has it, whatever the models' weights
(`weights = "uniform"`); or the loss over all samples, sum_k n_k F_k / sum_k n_k, as FedAvg (`"samples"`: clients are sent the
mean number of samples, 4 bytes, and send Delta_k times n_k over it). Where clients have equally many samples both are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import torch

from fedgsp.core.params import OMIT_DEFAULT
from fedgsp.core.state import ServerState, Setting
from fedgsp.core.sums import ExactSum
from fedgsp.server.checks import require_weights
from fedgsp.server.wrapper import Wrapper, WrapperUpdate

if TYPE_CHECKING:
    from fedgsp.core.chain import ChainResult, Plan
    from fedgsp.core.tensors import Tensors
    from fedgsp.server.rule import Update

CONTROL = "control."
CLIENTS = "clients"


@dataclass(frozen=True)
class ScaffoldServer(Wrapper):
    """The server's control variate, beside the rule `server`.

    Args:
        weights: Whether a client's control counts by its samples or like every other.
    """

    kind: ClassVar[str] = "scaffold"

    weights: Literal["samples", "uniform"] = field(default="uniform", metadata=OMIT_DEFAULT)

    own_local: ClassVar[str] = "scaffold"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_weights("scaffold", self.weights)

    def init(self, model: Tensors, setting: Setting = Setting()) -> ServerState:  # noqa: B008 - frozen
        """c = 0, sent along from round 1."""
        state = self.server.init(model, setting)
        c = {CONTROL + name: torch.zeros_like(tensor) for name, tensor in setting.trained_of(model).items()}
        c.update(setting.mean_samples(self.weights, "scaffold"))
        return replace(state, shared={**state.shared, **c}, extra={**state.extra, CLIENTS: setting.clients})

    def start(self, state: ServerState, plan: Plan, planned: Sequence[int]) -> ScaffoldUpdate:
        """Begin a round of the rule inside, and a sum of the Delta_k."""
        return ScaffoldUpdate(state, self.server.start(state, plan, planned), plan)


class ScaffoldUpdate(WrapperUpdate):
    """A round's Delta_k, added exactly in any order."""

    borrows = True

    def __init__(self, state: ServerState, inside: Update, plan: Plan) -> None:
        super().__init__(state, inside)
        self._c = {name: tensor for name, tensor in state.shared.items() if name.startswith(CONTROL)}
        self._round = plan.round
        self._deltas = ExactSum({name: c.double() for name, c in self._c.items()}, max(1, len(plan.chains)))

    def add(self, result: ChainResult) -> None:
        """Take in a chain's model and its sum of Delta_k."""
        super().add(result)
        self._deltas.add(result.sent, 1, f"chain {result.index} of round {self._round}")

    def finish(self) -> ServerState:
        """The rule inside, then c."""
        state, total = super().finish(), self._deltas.total64()
        share = 1 / self.state.extra[CLIENTS]
        c = {name: (old.double() + total[name] * share).to(old.dtype) for name, old in self._c.items()}
        return replace(state, shared={**state.shared, **c})
