"""Which method for me? From the data, the model, the fleet and, if there is time, a pilot: what reaches a target soonest.

Costs of a round follow from the plan, the model's size and the fleet; they are computed, not guessed. How many rounds a method
needs is either measured by a pilot on a validation part of the user's own training samples (and extrapolated by a power law of
the error, where the pilot ends before the target), or taken from what was measured on femnist-368, and then said to be unsure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedgsp.core.errors import Diverged, InputError
from fedgsp.core.params import require_real, require_whole
from fedgsp.core.tables import html_table, text_table
from fedgsp.core.tensors import total_bytes
from fedgsp.cost import FLEETS, Fleet, fleet_named, planned_cost
from fedgsp.data import load
from fedgsp.methods import named
from fedgsp.report.inspect import class_counts
from fedgsp.report.landmarks import scale
from fedgsp.run import lifecycle
from fedgsp.run.build import RunBuilder
from fedgsp.run.config import DataSection, ModelSection, RunConfig, RunSection
from fedgsp.run.flops import flops_per_sample
from fedgsp.run.metrics import evaluations, first_reaching

if TYPE_CHECKING:
    from torch import nn

    from fedgsp.data import FederatedData
    from fedgsp.method import Method
    from fedgsp.run.run import Run

    Model = str | Callable[..., nn.Module] | nn.Module

SHOWN = 5
CLOSE = 1.15
"""Two estimates within 15 % of each other are not told apart."""
FARTHEST = 20
"""A pilot is not extrapolated beyond so many times its rounds."""
KNOWN_CLIENTS, KNOWN_SKEW, KNOWN_TARGET = 368, 10.0, 0.78
"""Where the rounds below were measured: clients, the most label skew (of 100) that is like it, the accuracy reached."""

Estimates = list["Estimated"]


@dataclass(frozen=True)
class Candidate:
    """A method with settings that did well, and the rounds to 78 % that were measured with them on femnist-368."""

    name: str
    lr: float | None
    server_lr: float | None
    known_rounds: float

    def method(self) -> Method:
        """The method with these settings."""
        method = named(self.name)
        if self.lr is not None:
            method = replace(method, local=replace(method.local, lr=self.lr))
        if self.server_lr is not None:
            method = replace(method, server=replace(method.server, lr=self.server_lr))  # type: ignore[type-var]
        return method

    @property
    def options(self) -> str:
        """What gives it on the command line."""
        words = [f"--method {self.name}"]
        words += [] if self.lr is None else [f"--lr {self.lr:g}"]
        words += [] if self.server_lr is None else [f"--set method.server.lr={self.server_lr:g}"]
        return " ".join(words)


CANDIDATES: tuple[Candidate, ...] = (
    Candidate("fedavg", 0.1, None, 50.3),
    Candidate("fedadagrad", 0.03, 0.0316, 30.7),
    Candidate("fedadam", 0.03, 0.0316, 27.3),
    Candidate("fedyogi", 0.03, 0.0316, 28.0),
    Candidate("fedgsp", 0.03, None, 8.0),
    Candidate("fedgsp-capped", None, None, 6.7),
    Candidate("chains-then-adam", None, None, 11.7),
    Candidate("long-chains-then-adam", None, None, 7.0),
)
"""small_cnn, three seeds: results/fleets."""


@dataclass(frozen=True)
class Estimated:
    """What a method is expected to take until the target.

    Args:
        name: The method.
        options: What gives it on the command line.
        rounds: Rounds.
        seconds: On the fleet.
        bytes: Through the server.
        basis: Where the rounds come from.
        far: By how much they are beyond what was measured: 1 is measured.
    """

    name: str
    options: str
    rounds: int
    seconds: float
    bytes: float
    basis: str
    far: float = 1.0


@dataclass(frozen=True, repr=False)
class Advice:
    """Which method, and how sure that is.

    Args:
        target: The accuracy that is to be reached.
        fleet: The fleet's name.
        clients: Clients that can train.
        label_skew: Of 100; 0 is what random shares of all samples would have.
        model_bytes: What is handed to a client.
        best: The soonest first, five at most.
        cheapest: The method with the least traffic.
        doubts: Why it may be otherwise; none: the first is the best by more than 15 %.
        changes: What would change the answer.
        left_out: Methods for which there is no estimate, with the reason.
    """

    target: float
    fleet: str
    clients: int
    label_skew: float
    model_bytes: int
    best: tuple[Estimated, ...]
    cheapest: str
    doubts: tuple[str, ...]
    changes: tuple[str, ...]
    left_out: tuple[str, ...] = ()

    @property
    def sure(self) -> bool:
        """Whether nothing speaks against the first."""
        return not self.doubts

    @property
    def method(self) -> Method:
        """The first of the best, with its settings: to be trained."""
        return next(one for one in CANDIDATES if one.name == self.best[0].name).method()

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"schema": 1, "sure": self.sure, **asdict(self)}

    @property
    def _title(self) -> str:
        return f"{self.best[0].name} to {100 * self.target:.0f} % on '{self.fleet}'" + ("" if self.sure else ", not sure")

    def _table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        heads = ("method", "rounds", "seconds", "MB through the server", "rounds are")
        return heads, [(o.name, str(o.rounds), f"{o.seconds:.3g}", f"{o.bytes / 1e6:.3g}", o.basis) for o in self.best]

    def __repr__(self) -> str:
        return "\n".join([f"Advice: {self._title}", *text_table(*self._table(), most=SHOWN), *self.doubts[:1]])

    def _repr_html_(self) -> str:
        said = [*(f"Not sure: {doubt}." for doubt in self.doubts), *(f"Change: {change}." for change in self.changes)]
        return html_table(f"Advice: {self._title}", *self._table(), " ".join(said))


def advise(
    data: str | FederatedData,
    fleet: str | Fleet = "paper",
    *,
    model: str | Callable[..., nn.Module] | nn.Module = "small_cnn",
    target: float = 0.8,
    pilot: int = 0,
    seed: int = 0,
    told: Callable[[str], None] = lambda line: None,
) -> Advice:
    """Which method and settings reach a target accuracy soonest on a fleet.

    Args:
        data: A federation, or a source text.
        fleet: A fleet, the name of one in `fedgsp.cost.FLEETS`, or a .toml file of one.
        model: A name, a callable or a module.
        target: The accuracy to reach, between 0 and 1.
        pilot: Rounds that each method is tried for, on a validation part of the training samples; 0: none.
        seed: Of the pilot.
        told: Is called with a line for every method that is tried.

    Returns:
        The five best with rounds, seconds and bytes, doubts, and what would change the answer.

    Raises:
        InputError: If the data has no classes, or an option makes no sense.
    """
    if not 0 < require_real("advise", "target", target) < 1:
        raise InputError(f"the target accuracy must be between 0 and 1, not {target}.")
    require_whole("advise", "pilot", pilot, at_least=0)
    federation = load(data) if isinstance(data, str) else data
    if not federation.classes:
        raise InputError("advice is about accuracy, and this data has no classes; try methods with fedgsp.compare.")
    name, chosen = (fleet, fleet_named(fleet)) if isinstance(fleet, str) else ("yours", fleet)
    costs = RoundCosts(federation, model)
    found: Estimates = []
    missing: list[str] = []
    for candidate in CANDIDATES:
        rounds, far, basis = float(candidate.known_rounds), 1.0, "as on femnist-368"
        if pilot:
            told(f"trying {candidate.name} for {pilot} rounds")
            measured = _tried(federation, candidate.method(), model, target, pilot, seed)
            if isinstance(measured, str):
                missing.append(f"{candidate.name}: {measured}")
                continue
            rounds, far = measured
            basis = "reached in the pilot" if far == 1 else f"extrapolated, {far:.1f} times the pilot"
        seconds, traffic = costs.until(candidate.method(), math.ceil(rounds), chosen)
        found.append(Estimated(candidate.name, candidate.options, math.ceil(rounds), seconds, traffic, basis, far))
    if not found:
        raise InputError(f"no method came near {100 * target:.0f} % in {pilot} rounds; give the pilot more rounds.")
    found.sort(key=lambda one: (one.seconds, one.name))
    skew = 100 * float(scale(class_counts(federation)).place)
    return Advice(
        target if pilot else KNOWN_TARGET, name, costs.clients, skew, costs.model_bytes, tuple(found[:SHOWN]),
        min(found, key=lambda one: (one.bytes, one.name)).name,
        tuple(_doubts(found, costs.clients, skew, bool(pilot))), tuple(_changes(found, costs, name)), tuple(missing),
    )  # fmt: skip


class RoundCosts:
    """What rounds of a plan cost with this data and model, on any fleet."""

    def __init__(self, data: FederatedData, model: Model) -> None:
        run = _built(data, model, named("fedavg"), RunSection(rounds=1, workers=0))
        self.clients, self.model_bytes = len(run.participants), total_bytes(run.initial_model)
        self._samples = float(run.worker_setup.data.train.sizes[run.participants].mean())
        self._flops = flops_per_sample(run)

    def until(self, method: Method, rounds: int, fleet: Fleet) -> tuple[float, float]:
        """(seconds, bytes through the server) of the first rounds."""
        rows = [method.planner.schedule(r, self.clients) for r in range(1, rounds + 1)]
        cost = planned_cost(rows, fleet, self._flops, method.local.epochs_in, self._samples, self.model_bytes)
        return cost.seconds, cost.traffic


def _built(data: FederatedData, model: Model, method: Method, section: RunSection, *, validation: bool = False) -> Run:
    named_model, given = (model, None) if isinstance(model, str) else ("custom", model)
    config = RunConfig(section, DataSection("in memory"), ModelSection(named_model), method)
    return RunBuilder(data=data, model=given).build(config.on_validation() if validation else config)


def _tried(
    data: FederatedData, method: Method, model: Model, target: float, rounds: int, seed: int
) -> tuple[float, float] | str:  # fmt: skip
    """(rounds to the target, how far beyond the pilot that is) on validation samples; a text where it cannot be said."""
    section = RunSection(rounds=rounds, seed=seed, workers=0)
    try:
        history = lifecycle.start(_built(data, model, method, section, validation=True), None, ()).history
    except Diverged:
        return "diverged"
    there = first_reaching(history, target, "accuracy")
    if there is not None:
        return float(there["round"]), 1.0
    points = [(entry["round"], figures["accuracy"]) for entry, figures in evaluations(history, "accuracy")]
    return extrapolated(points, target)


def extrapolated(points: Sequence[tuple[int, float]], target: float) -> tuple[float, float] | str:
    """Rounds to a target by the power law error = c r^-p through the second half of a curve; a text where that says nothing.

    Args:
        points: (round, accuracy) in order.
        target: The accuracy to reach.

    Returns:
        (rounds, how many times the last round that is), or the reason why there is none.

    Example:
        >>> rounds, far = extrapolated([(r, 1 - 0.5 / r) for r in (1, 2, 4, 8)], target=1 - 0.5 / 32)
        >>> round(rounds), round(far)
        (32, 4)
    """
    late = points[len(points) // 2 :] if len(points) >= 4 else points
    if len(late) < 2 or any(accuracy >= 1 for _, accuracy in late):
        return "the pilot is too short to say"
    logs = np.log([[r, 1 - accuracy] for r, accuracy in late])
    slope, level = np.polyfit(logs[:, 0], logs[:, 1], 1)
    if slope > -0.02:
        return "it hardly learns in the pilot"
    power = (math.log(1 - target) - level) / slope
    last = points[-1][0]
    if power > math.log(FARTHEST * last):
        return f"the target is more than {FARTHEST} times the pilot away"
    rounds = max(float(last + 1), math.exp(power))
    return rounds, rounds / last


def _doubts(found: Estimates, clients: int, skew: float, piloted: bool) -> list[str]:
    doubts = []
    if not piloted:
        doubts.append(
            f"the rounds are those to {100 * KNOWN_TARGET:.0f} % on femnist-368 with small_cnn; a pilot on your data says more"
        )
        if not KNOWN_CLIENTS / 2 <= clients <= 2 * KNOWN_CLIENTS:
            doubts.append(f"there {KNOWN_CLIENTS} clients train, here {clients}, so chains are of another length")
        if skew > KNOWN_SKEW:
            doubts.append(f"your label skew is {skew:.0f} of 100, there it is 0")
    return doubts + doubts_of(found)


def doubts_of(found: Sequence[Estimated]) -> list[str]:
    """Why the first of some estimates may not be the best: it is far from what was measured, or others are as near.

    Args:
        found: The estimates, the soonest first.
    """
    doubts = []
    if found[0].far > 1.5:
        doubts.append(f"{found[0].name} did not reach the target in the pilot: {found[0].basis}")
    near = [one.name for one in found[1:] if one.seconds <= CLOSE * found[0].seconds]
    if near:
        doubts.append(f"{', '.join(near)} would take at most 15 % longer than {found[0].name}, which is within the error")
    return doubts


def _changes(found: Estimates, costs: RoundCosts, fleet: str) -> list[str]:
    """Other fleets, traffic in place of time, and by how much the estimate may be wrong."""
    rounds: Mapping[str, int] = {one.name: one.rounds for one in found}
    methods = {one.name: one.method() for one in CANDIDATES if one.name in rounds}
    changes = []
    for other, its in FLEETS.items():
        first = min(methods, key=lambda name: (costs.until(methods[name], rounds[name], its)[0], name))
        if other != fleet and first != found[0].name:
            changes.append(f"on the fleet {other} it would be {first}")
    least = min(found, key=lambda one: (one.bytes, one.name))
    if least.name != found[0].name:
        changes.append(f"by traffic it would be {least.name}")
    if len(found) > 1:
        slack = found[1].seconds / found[0].seconds - 1
        changes.append(
            f"if {found[0].name} needed {100 * slack:.0f} % more time than estimated, {found[1].name} would be first"
        )
    return changes
