"""What a run's privacy costs, by Google's dp-accounting: epsilon so far, and when a budget is spent.

Neighbours are federations that differ in the samples of one client. For the server rule `private` a round is a Gaussian
mechanism on m of f groups, drawn without replacement; for `update-noise` every hop is one, and the client that counts is one
that trained in every round. With Poisson sampling, neighbours differ in whether the update of one client is there or none: the
library has that amplification for no other relation, and for chains of one client only. Composition is by Renyi divergences
(RDP).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from fedgsp.core.errors import InputError, Paused
from fedgsp.core.imports import need
from fedgsp.core.seeds import SecretDraws, Seeds
from fedgsp.door import parts_of
from fedgsp.parts import kind_of
from fedgsp.plan import Fixed, Grouped, HandOver, OneChain, Planner, Random, Singletons, Switch
from fedgsp.server.private import KEY, Private

if TYPE_CHECKING:
    from fedgsp.client import UpdateNoise
    from fedgsp.core.chain import Plan
    from fedgsp.core.state import ServerState
    from fedgsp.method import Method
    from fedgsp.run.config import RunConfig
    from fedgsp.run.run import Run

ORDERS = (*range(2, 21), 24, 28, 32, 48, 64)
"""The orders of the Renyi divergences that the best is taken of, where groups are drawn: more would take seconds a round."""
DIGITS = 4
"""Of an epsilon that is written down, rounded up."""
REPLACED = 2.0
"""How far two clipped updates can be apart, in clips: the neighbour has other samples, not none."""


class RoundCost(NamedTuple):
    """What a round's cost depends on: the groups there were, those that trained, how often their clients may have trained.

    `share` is the probability with which each group was drawn, if each was drawn by itself.
    """

    groups: int
    sampled: int
    visits: int
    share: float | None = None


class Ledger:
    """The privacy that one mechanism has cost, round by round.

    Args:
        name: The journal's entry.
        rule: The mechanism.
        sampled: Whether drawing groups counts in its favour.
        poisson: Whether each is drawn by itself.
    """

    def __init__(self, name: str, rule: Private | UpdateNoise, *, sampled: bool, poisson: bool = False) -> None:
        self.name, self.rule, self._sampled, self._poisson = name, rule, sampled, poisson
        self._library = need("dp_accounting", "privacy", "accounting for differential privacy")
        self._accountant = self._before = self._new()
        self._spent: dict[int, float] = {0: 0.0}

    def _new(self) -> Any:
        rdp = need("dp_accounting.rdp", "privacy", "accounting for differential privacy")
        orders = list(ORDERS) if self._sampled else None
        relations = self._library.NeighboringRelation
        return rdp.RdpAccountant(orders, relations.REPLACE_SPECIAL if self._poisson else relations.REPLACE_ONE)

    def _composed(self, accountant: Any, round_: RoundCost, times: int) -> Any:
        groups, chains, visits, share = round_
        if self._poisson:
            return accountant.compose(
                self._library.PoissonSampledDpEvent(share, self._library.GaussianDpEvent(self.rule.noise)), times
            )
        gaussian = self._library.GaussianDpEvent(self.rule.noise / REPLACED)
        if not self._sampled:
            return accountant.compose(gaussian, times * visits)
        if chains >= groups:
            return accountant.compose(gaussian, times)
        return accountant.compose(self._library.SampledWithoutReplacementDpEvent(groups, chains, gaussian), times)

    def _epsilon(self, accountant: Any) -> float:
        return math.ceil(float(accountant.get_epsilon(self.rule.delta)) * 10.0**DIGITS) / 10.0**DIGITS

    def forecast(self, rounds: Iterable[RoundCost]) -> float:
        """Epsilon after these rounds, in their order."""
        accountant = self._new()
        for round_, same in groupby(rounds):
            self._composed(accountant, round_, len(list(same)))
        return self._epsilon(accountant)

    def take(self, rounds: Sequence[RoundCost]) -> None:
        """Account for the rounds that a run has finished before it goes on."""
        for round_, same in groupby(rounds):
            self._composed(self._accountant, round_, len(list(same)))
        self._spent = {len(rounds): self._epsilon(self._accountant) if rounds else 0.0}

    def plan(self, number: int, round_: RoundCost) -> None:
        """Account for a round before it is trained; for another attempt at it, in place of those before.

        Raises:
            Paused: It would cost more than the budget leaves.
        """
        if number not in self._spent:
            self._before = self._accountant
        after = self._composed(copy.deepcopy(self._before), round_, 1)
        epsilon, budget = self._epsilon(after), self.rule.budget
        if budget is not None and epsilon > budget:
            spent = self._spent.get(number - 1, 0.0)
            raise Paused(
                f"the privacy budget is spent: epsilon is {spent:g} after {number - 1} rounds and would be {epsilon:g} after "
                f"another, more than {budget:g} (delta {self.rule.delta:g})"
            )
        self._accountant = after
        self._spent[number] = epsilon

    def after(self, number: int) -> float:
        """Epsilon after a round."""
        return self._spent[number]


class Ledgers:
    """What a run's mechanisms have cost; empty for a run without."""

    def __init__(self, method: Method, history: Sequence[Mapping[str, Any]] = ()) -> None:
        self.all = ledgers(method)
        for ledger in self.all:
            ledger.take([_cost_of(entry) for entry in history])

    def plan(self, plan: Plan, attempt: int) -> None:
        """Before a round is trained, perhaps not for the first time; see `Ledger.plan`."""
        for ledger in self.all:
            ledger.plan(plan.round, sizes(plan, attempt))

    def entries(self, plan: Plan, attempt: int) -> dict[str, Any]:
        """What the journal says after a round."""
        if not self.all:
            return {}
        cost = sizes(plan, attempt)
        share = {} if cost.share is None else {"share": cost.share}
        return {
            "sampled": cost.sampled,
            "visits": cost.visits,
            **share,
            **{ledger.name: ledger.after(plan.round) for ledger in self.all},
        }


def _cost_of(entry: Mapping[str, Any]) -> RoundCost:
    """What the journal says of a round.

    Raises:
        InputError: It does not, or what cannot be.
    """
    groups, sampled, visits = (n if type(n) is int else -1 for n in map(entry.get, ("groups", "sampled", "visits")))
    cost = RoundCost(groups, sampled, visits, entry.get("share"))
    share = 0.5 if cost.share is None else cost.share
    if not (0 <= cost.sampled <= cost.groups and cost.visits >= 1 and isinstance(share, (int, float)) and 0 < share <= 1):
        raise InputError(f"the journal does not say what round {entry.get('round')} cost of privacy, so nobody can go on.")
    return cost


def sizes(plan: Plan, attempt: int = 1) -> RoundCost:
    """What the cost of a planned round depends on, at this attempt: in those before, clients may have trained as well."""
    passes = max((chain.passes for chain in plan.chains), default=1)
    return RoundCost(plan.groups, len(plan.chains), attempt * passes, plan.share)


def ledgers(method: Method) -> list[Ledger]:
    """One for each of a method's mechanisms."""
    made = []
    if isinstance(method.server, Private):
        made.append(Ledger("epsilon", method.server, sampled=True, poisson=any(_poisson(method.planner))))
    if method.local.privacy is not None:
        made.append(Ledger("epsilon_local", method.local.privacy, sampled=False))
    return made


def check_private(method: Method, sends: Callable[[], bool]) -> None:
    """Refuse what would make a promise of privacy void.

    Args:
        method: The method.
        sends: Whether clients send anything beside the model.

    Raises:
        InputError: With the reason.
    """
    if any(isinstance(part, Private) for part in parts_of(method.server)) and not isinstance(method.server, Private):
        raise InputError("the server rule 'private' must be the outermost: what goes around it sees updates without noise.")
    central, local = isinstance(method.server, Private), method.local.privacy is not None
    if any(_poisson(method.planner)):
        if not central:
            raise InputError("sampling = 'poisson' is for the server rule 'private', whose epsilon it lowers.")
        if not all(_poisson(method.planner)):
            raise InputError("sampling must be 'poisson' in all rounds or in none: else there is no one epsilon for both.")
    if (central or local) and method.preparation is not None:
        raise InputError(f"the preparation '{kind_of(method.preparation)}' shows samples of clients to others, with no noise.")
    if local and (sends() or not method.local.hands_on):
        raise InputError(
            f"the local rule '{kind_of(method.local)}' sends more than its model, which update-noise does not hide."
        )
    if central and not _blind(method.planner):
        raise InputError(
            f"the server rule 'private' needs chains that do not depend on the clients' samples, and the planner "
            f"'{kind_of(method.planner)}' looks at their class counts; take random groups, as fedavg or stp-random do."
        )


def _poisson(planner: Planner) -> list[bool]:
    """Whether each of a planner's draws is a Poisson sample.

    Raises:
        InputError: One of them is, of chains that may have several clients.
    """
    if isinstance(planner, Switch):
        return [*_poisson(planner.first), *_poisson(planner.then)]
    if isinstance(planner, HandOver):
        return _poisson(planner.planner)
    if not (isinstance(planner, Grouped) and planner.poisson):
        return [False]
    if not isinstance(planner.growth, Singletons):
        raise InputError(
            "sampling = 'poisson' needs chains of one client (growth 'singletons', as fedavg has): of longer ones nobody "
            "knows what it is worth."
        )
    return [True]


def _blind(planner: Planner) -> bool:
    """Whether a planner of ours looks at nothing but the number of clients."""
    if isinstance(planner, Switch):
        return _blind(planner.first) and _blind(planner.then)
    if isinstance(planner, HandOver):
        return _blind(planner.planner)
    if isinstance(planner, Grouped):
        grouper = planner.grouper.grouper if isinstance(planner.grouper, Fixed) else planner.grouper
        return type(grouper) is Random
    return type(planner) is OneChain


def privacy_notes(config: RunConfig, clients: int) -> tuple[str, ...]:
    """What a run's privacy will have cost at its end, or where it stops."""
    notes = []
    planner, rounds = config.method.planner, config.run.rounds
    for ledger in ledgers(config.method):
        shapes = [planner.schedule(r, clients) for r in range(1, rounds + 1)]
        planned = [RoundCost(shape.groups, shape.sampled, shape.passes, shape.share) for shape in shapes]
        epsilon, rule = ledger.forecast(planned), ledger.rule
        whom = "the server and the next client" if ledger.name == "epsilon_local" else "whoever sees the models"
        text = f"privacy of one client against {whom}: epsilon {epsilon:g} after {rounds} rounds (delta {rule.delta:g})"
        if rule.budget is not None and epsilon > rule.budget:
            text += f"; the budget of {rule.budget:g} ends the run after round {_last_round(ledger, planned, rule.budget)}"
        notes.append(f"{text}.")
    if isinstance(config.method.server, Private) and not config.method.server.secret:
        notes.append(
            "the server's noise and who is drawn follow from the run's seed, which is in its config.toml: for a study; else "
            "say secret."
        )
    return tuple(notes)


def _last_round(ledger: Ledger, planned: Sequence[RoundCost], budget: float) -> int:
    """The last round that a budget allows, by halving."""
    low, high = 0, len(planned)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if ledger.forecast(planned[:middle]) <= budget else (low, middle)
    return low


def noise_key(run: Run, recorded: Mapping[str, Any]) -> Run:
    """The run with the secret key of a recorded state, for a replay."""
    from dataclasses import replace

    if not (isinstance(run.config.method.server, Private) and KEY in recorded):
        return run
    begun = run.initial_state
    return replace(run, initial_state=replace(begun, extra={**begun.extra, KEY: recorded[KEY]}))


def drawing_seeds(method: Method, state: ServerState, seeds: Seeds) -> Seeds:
    """What a round is planned with: sampling counts only against somebody who cannot compute who was drawn."""
    if isinstance(method.server, Private) and method.server.secret:
        return SecretDraws(seeds.seed, tuple(state.extra[KEY]))
    return seeds
