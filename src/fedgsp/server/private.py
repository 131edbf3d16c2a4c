"""Differential privacy of one client, by a server that is trusted: DP-FedAvg (McMahan et al., ICLR 2018), also for chains.

    w <- w + (1/m) (sum_i clip(D_i, C) + z_D C N(0, 1))        D_i = w_i - w, the update of chain i; m the chains of the round

    fixed:     C = `clip`, z_D = `noise`
    adaptive:  C <- C exp(-clip_lr (b - quantile)), where b = (|{i: ||D_i|| <= C}| + s N(0, 1)) / m, s = `count_noise` or m/20,
               z_D = (noise^-2 - (2 s)^-2)^(-1/2): both together cost what `noise` alone would (Andrew et al., NeurIPS 2021)

What is protected is one client: all its samples, in all rounds. Whatever these are, they change the update of one chain, which
has a length of at most C before and after: two such sums are at most 2 C apart. So it is for chains of one and for longer ones,
as long as who is in which chain does not depend on the samples: the planner must not look at them. A round of m out of f
groups, drawn without replacement, is accounted for as such (`fedgsp.run.accounting`). With Poisson sampling, where each client
is a chain and trains with probability q, the neighbour's update is none: the sums are C apart, and m = q f is what is expected,
since the number that came says something of who was drawn.

Every chain counts the same, and m is the number of planned chains, whether or not all came to their end. What the rule inside
does with the mean (momentum, Adam) costs nothing. Tensors that are not trained (running means of a batch norm) stay as they
were. The noise follows from the run's seed, for studies: whoever knows that can take it off again. With `secret` it follows
from a key of 256 bits that is drawn once and kept in the checkpoints, and nowhere else; and so does who is drawn, without which
sampling would be worth nothing. Noise is drawn in float64 and not hardened against attacks on the rounding of floats.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, cast

import torch

from fedgsp.core.clipping import clipped, normal_like
from fedgsp.core.errors import InputError
from fedgsp.core.seeds import Purpose, noise_generator
from fedgsp.core.state import ServerState, Setting
from fedgsp.core.sums import ExactSum
from fedgsp.core.tensors import digest
from fedgsp.server.mean import Mean
from fedgsp.server.rule import Update
from fedgsp.server.wrapper import Wrapper

if TYPE_CHECKING:
    from fedgsp.core.chain import ChainResult, Plan
    from fedgsp.core.tensors import Tensors

KEY, CLIP = "noise key", "clip"
COUNT_SHARE = 1 / 20
"""The deviation of the noise on the number of short updates, as a share of the chains (Andrew et al.)."""


@dataclass(frozen=True)
class Private(Wrapper):
    """Clipped updates and Gaussian noise: one client's samples show in the model by no more than (epsilon, delta).

    Args:
        server: What is done with the noised mean: the mean itself, or a rule that derives from it (momentum, Adam, ...).
        clip: The longest that a chain's update may be; with `adaptive`, in the first round.
        noise: The noise's deviation as a multiple of `clip`.
        delta: How often more may show; well below 1 over the number of clients.
        budget: The epsilon at which the run stops; None: it does not.
        adaptive: Whether `clip` follows the length that a share `quantile` of the updates has.
        quantile: That share.
        clip_lr: How quickly it follows.
        count_noise: The deviation of the noise on the number of short updates; 0: a twentieth of the chains.
        secret: Whether the noise, and who is drawn, follow from a secret key instead of the run's seed.
    """

    kind: ClassVar[str] = "private"

    clip: float = 1.0
    noise: float = 1.0
    delta: float = 1e-5
    budget: float | None = None
    adaptive: bool = False
    quantile: float = 0.5
    clip_lr: float = 0.2
    count_noise: float = 0.0
    secret: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.server, Mean) or type(self.server).start is not Mean.start:
            raise InputError(
                f"the server rule 'private' makes the mean itself, and goes around a rule that goes on from it (mean, "
                f"momentum, adam, adagrad, yogi), not around '{self.server.kind}'."
            )
        require_privacy("private", self.clip, self.noise, self.delta, self.budget)
        if not 0 < self.quantile < 1:
            raise InputError(f"the server rule 'private': quantile must be between 0 and 1, not {self.quantile}.")
        for name in ("clip_lr", "count_noise"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise InputError(f"the server rule 'private': {name} must not be negative, not {getattr(self, name)}.")

    def init(self, model: Tensors, setting: Setting = Setting()) -> ServerState:  # noqa: B008 - frozen
        """The rule inside's, and what the noise follows from."""
        state = self.server.init(model, setting)
        key = [secrets.randbits(32) for _ in range(8)] if self.secret else [setting.seed]
        return replace(state, extra={**state.extra, KEY: key, **({CLIP: self.clip} if self.adaptive else {})})

    def start(self, state: ServerState, plan: Plan, planned: Sequence[int]) -> Update:
        """Begin a sum of clipped updates."""
        return PrivateUpdate(self, state, plan)

    def noises(self, chains: float) -> tuple[float, float]:
        """(the noise on the sum of the updates as a multiple of the clip, that on the number of short ones) in a round.

        Raises:
            InputError: The noise on the number is too small for `noise`.
        """
        if not self.adaptive:
            return self.noise, 0.0
        on_count = self.count_noise or COUNT_SHARE * chains
        if not self.noise < 2 * on_count:
            raise InputError(
                f"the server rule 'private': with {chains:g} chains in a round the noise on the number of short updates "
                f"({on_count:g}) is too small for noise = {self.noise:g}; set count_noise above {self.noise / 2:g}."
            )
        return (self.noise**-2 - (2 * on_count) ** -2) ** -0.5, on_count


class PrivateUpdate(Update):
    """A round's sum of clipped updates, added exactly in any order."""

    borrows = True

    def __init__(self, rule: Private, state: ServerState, plan: Plan) -> None:
        self._rule, self._state, self._plan = rule, state, plan
        self._clip = float(state.extra[CLIP]) if rule.adaptive else rule.clip
        self._chains = len(plan.chains) if plan.share is None else plan.share * plan.groups
        self._noises = rule.noises(self._chains)
        trained = Setting(trained=state.trained).trained_of(state.model)
        self._start = {name: tensor.double() for name, tensor in trained.items()}
        self._sum = ExactSum({name: torch.zeros_like(t) for name, t in self._start.items()}, max(1, len(plan.chains)))
        self._short = self._ended = 0

    def add(self, result: ChainResult) -> None:
        """Add one chain's update, clipped."""
        moved = {name: result.tensors[name].double() - start for name, start in self._start.items()}
        update, length = clipped(moved, self._clip)
        self._short += length <= self._clip
        self._ended += 1
        self._sum.add(update, 1, f"chain {result.index} of round {self._plan.round}")

    def finish(self) -> ServerState:
        """The rule inside, from the noised mean; then the next round's clip."""
        rule, state, chains = self._rule, self._state, self._chains
        total = self._sum.total64()
        about = digest({**total, CLIP: torch.tensor([float(self._short), self._clip], dtype=torch.float64)})
        rng = noise_generator(state.extra[KEY], Purpose.SERVER_NOISE, about, self._plan.round)
        on_sum, on_count = self._noises
        noise = normal_like(total, rng)
        mean = {name: tensor.double() for name, tensor in state.model.items()}
        for name, start in self._start.items():
            mean[name] = start + (total[name] + noise[name] * (on_sum * self._clip)) / chains
        after = cast(Mean, rule.server).step(state, mean)
        if rule.adaptive:
            noise_on_count = on_count * rng.standard_normal()
            if self._plan.share is None:
                share = (self._short + noise_on_count) / chains
            else:  # a chain says 1/2 or -1/2, so that one that is not there says nothing
                share = (self._short - self._ended / 2 + noise_on_count) / chains + 0.5
            clip = self._clip * math.exp(-rule.clip_lr * (share - rule.quantile))
            after = replace(after, extra={**after.extra, CLIP: clip})
        return replace(after, round=self._plan.round)


def require_privacy(where: str, clip: float, noise: float, delta: float, budget: float | None) -> None:
    """Raise an InputError unless these can be the parameters of a Gaussian mechanism."""
    for name, value in (("clip", clip), ("noise", noise), ("budget", 1.0 if budget is None else budget)):
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"{where}: {name} must be a number above 0, not {value}.")
    if clip > 1e4:
        raise InputError(f"{where}: clip must be at most 10000, not {clip}.")
    if not 0 < delta < 1:
        raise InputError(f"{where}: delta must be between 0 and 1, not {delta}.")
