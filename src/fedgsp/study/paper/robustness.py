"""`study robustness`: attackers against every robust server rule, for single clients (FedAvg) and for chains (FedGSP).

Four questions, each with runs of its own:

    choice    which rule is best at 20 sites of which 2 attack? On validation samples, with seed 0, by the worst attacker
    sites     what is left of the accuracy there with that rule: single sites (FedAvg), FedGSP's chains and chains of two sites;
              every attacker, test samples, several seeds
    lengths   a chain is as honest as its worst client: what do longer chains cost?
    grid      0 to 40 % of all clients attack: every rule, every attacker

Sites are the federation's clients dealt at random, so that each holds what many of them have. Attackers are drawn by the run's
seed; a larger share contains a smaller one. Runs are evaluated after their last round only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import asdict, dataclass, fields, replace
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from fedgsp.client.attacks import Attack, Gaussian, InnerProduct, LabelFlip, Scaled, SignFlip
from fedgsp.client.rules import SGD
from fedgsp.core.seeds import Purpose, Seeds, generator
from fedgsp.data import load
from fedgsp.data.sources import with_option
from fedgsp.plan import ICG, Grouped, Log, OfLength
from fedgsp.run.metrics import final
from fedgsp.server import (
    CentredClipping,
    ClippedMean,
    GeometricMedian,
    Krum,
    Mean,
    Median,
    ServerRule,
    TrimmedMean,
)
from fedgsp.study.records import Arm, DataFacts

if TYPE_CHECKING:
    from fedgsp.method import Method
    from fedgsp.plan import Planner
    from fedgsp.study.paper.runner import PaperRunner
    from fedgsp.study.records import Trace

TITLE = "Server rules against dishonest clients"
NOBODY = "nobody"
ATTACKS: Mapping[str, Attack] = {
    "sign-flip": SignFlip(scale=5.0), "scaled": Scaled(scale=10.0), "gaussian": Gaussian(scale=1.0),
    "inner-product": InnerProduct(scale=0.5), "label-flip": LabelFlip(),
}  # fmt: skip
MEAN = "mean"
RULES: Mapping[str, ServerRule] = {
    MEAN: Mean(), "median": Median(), "trimmed-mean 0.4": TrimmedMean(share=0.4), "krum": Krum(share=0.4, keep=1),
    "multi-krum 0.4": Krum(share=0.4), "geometric-median": GeometricMedian(), "clipped-mean": ClippedMean(),
    "centred-clipping": CentredClipping(),
}  # fmt: skip
"""Of the grid: a server that does not know how many attack, and sets its rule for two fifths."""
CANDIDATES: Mapping[str, ServerRule] = {
    "median": Median(), "trimmed-mean 0.2": TrimmedMean(share=0.2), "multi-krum 0.2": Krum(share=0.2),
    "multi-krum 0.4": Krum(share=0.4), "geometric-median": GeometricMedian(), "clipped-mean": ClippedMean(),
    "centred-clipping": CentredClipping(),
}  # fmt: skip
"""For 2 of 20 sites: a server that expects a tenth, and takes twice that to be safe."""
SITE_METHODS = ("fedavg", "fedgsp", "pairs")
SITE_ATTACKERS = 0.1
SITE_GROUPS = 4
"""Groups of FedGSP in the first round at 20 sites: chains of five."""
PLANNED_LENGTHS = (1, 2, 4, 8)
"""Lengths of chains that are planned to see how many have an attacker in them; which are trained, too, a preset says."""
CHAIN_SHARE = 0.1
CHAIN_ATTACKS = ("sign-flip", "label-flip")


@dataclass(frozen=True)
class RobustRuns:
    """All that was asked for.

    Args:
        choice: Rule -> attacker -> accuracy on validation samples; None where training diverged.
        best: The rule whose worst figure is the highest.
        sites: (method, rule, attacker) -> a run for each seed, at the sites.
        lengths: (clients of a chain, rule, attacker) -> run.
        spoilt: Clients of a chain, or "fedgsp" -> the share of its chains that have an attacker, round by round.
        grid: (method, rule, attacker, share of attackers) -> run.
    """

    choice: dict[str, dict[str, float | None]]
    best: str
    sites: dict[tuple[str, str, str], list[Trace]]
    lengths: dict[tuple[int, str, str], Trace]
    spoilt: dict[str, list[float]]
    grid: dict[tuple[str, str, str, float], Trace]


def gather(runner: PaperRunner) -> RobustRuns:
    """The most important runs first."""
    sites = at_sites(runner)
    choice = {name: _on_validation(sites, name, rule) for name, rule in asked_of(runner, CANDIDATES).items()}
    best = best_of(choice)
    preset, wanted = runner.preset, dict[tuple[str, str, str], list["Trace"]]()
    arm = preset.attacked_sites
    for method in SITE_METHODS:
        for name, rule in {MEAN: Mean(), best: CANDIDATES[best]}.items():
            for attack in (NOBODY, *(preset.attacks if method == "fedavg" or name != MEAN else ())):
                wanted[method, name, attack] = [
                    _run(sites, replace(site_method(sites, method), server=rule), attack, SITE_ATTACKERS, arm, seed,
                         f"{method} {name} {attack} sites")
                    for seed in sites.seeds(arm)
                ]  # fmt: skip
    lengths = dict(_lengths(runner, {MEAN: Mean(), best: CANDIDATES[best]}))
    spoilt = {str(length): spoilt_chains(runner, chains_of(runner, length)) for length in PLANNED_LENGTHS}
    spoilt["fedgsp"] = spoilt_chains(runner, runner.method("fedgsp").planner)
    return RobustRuns(choice, best, wanted, lengths, spoilt, dict(_grid(runner)))


def at_sites(runner: PaperRunner) -> PaperRunner:
    """The same runner on the data's clients dealt to sites. What is known of that data is stored, so pages need no data."""
    source, count = runner.facts.source, runner.preset.attack_sites
    dealt = with_option(source, "sites", count)
    told = runner.computed("sites", {"sites": count}, lambda: asdict(DataFacts.of(load(dealt), dealt)))
    data = None if runner.builder.data is None else load(dealt)
    other = copy(runner)
    other.facts = DataFacts(**told) if data is None else DataFacts.of(data, dealt)
    other.put_data(data)
    return other


def site_method(runner: PaperRunner, name: str) -> Method:
    """One of `SITE_METHODS` with all sites in every round."""
    method = runner.method("fedavg" if name == "fedavg" else "fedgsp")
    planner = method.planner
    assert isinstance(planner, Grouped)
    growth = {"fedavg": planner.growth, "fedgsp": Log(beta=SITE_GROUPS), "pairs": OfLength(2)}[name]
    local = replace(method.local, lr=runner.preset.attacked_lr)
    return replace(method, local=local, planner=replace(planner, growth=growth, kappa=1.0))


def asked_of(runner: PaperRunner, rules: Mapping[str, ServerRule]) -> dict[str, ServerRule]:
    """Those that the preset asks for; all where it names none."""
    return {name: rule for name, rule in rules.items() if name in (runner.preset.attack_rules or rules)}


def best_of(choice: Mapping[str, Mapping[str, float | None]]) -> str:
    """The rule whose worst attacker leaves the most.

    Example:
        >>> best_of({"a": {"x": 0.9, "y": 0.1}, "b": {"x": 0.5, "y": 0.4}, "c": {"x": 0.9, "y": None}})
        'b'
    """
    return max(choice, key=lambda name: min((figure or 0.0) for figure in choice[name].values()))


def attackers_of(share: float, clients: int, seed: int) -> tuple[int, ...]:
    """The clients that attack, drawn by the seed: a larger share contains a smaller one.

    Example:
        >>> few, many = (attackers_of(share, 20, seed=0) for share in (0.1, 0.4))
        >>> len(few), len(many), set(few) < set(many)
        (2, 8, True)
    """
    drawn = generator(seed, Purpose.ATTACKERS).permutation(clients)[: round(share * clients)]
    return tuple(int(client) for client in np.sort(drawn))


def attacked(method: Method, attack: str, attackers: tuple[int, ...]) -> Method:
    """The method with some of its clients attacking; its local rule must be plain SGD."""
    if attack == NOBODY or not attackers:
        return method
    common = {field.name: getattr(method.local, field.name) for field in fields(SGD)}
    return replace(method, local=replace(ATTACKS[attack], **common, attackers=attackers))


def chain_attacks(runner: PaperRunner) -> list[str]:
    """Nobody, and the attackers that chains are tried with."""
    return [NOBODY, *(attack for attack in CHAIN_ATTACKS if attack in runner.preset.attacks)]


def chain_method(runner: PaperRunner) -> Method:
    """FedGSP with the learning rate that the preset says."""
    method = runner.method("fedgsp")
    return replace(method, local=replace(method.local, lr=runner.preset.attacked_lr))


def chains_of(runner: PaperRunner, length: int) -> Grouped:
    """As many chains of one length as take the clients that FedAvg would sample."""
    taking_part = runner.preset.kappa_default * runner.facts.clients
    return Grouped(OfLength(length), ICG(), chains=max(1, round(taking_part / length)))


def spoilt_chains(runner: PaperRunner, planner: Planner) -> list[float]:
    """The share of the chains that have an attacker in them, round by round, with seed 0."""
    rounds, clients = runner.preset.attacked_chains.rounds, runner.facts.clients
    wrong = set(attackers_of(CHAIN_SHARE, clients, 0))

    def work() -> list[float]:
        plans = [planner.plan(r, runner.data.profiles(), Seeds(0)).chains for r in range(1, rounds + 1)]
        return [fmean(bool(wrong.intersection(chain.clients)) for chain in chains) for chains in plans]

    return list(runner.computed("dishonest chains", {"planner": repr(planner), "share": CHAIN_SHARE, "rounds": rounds}, work))


def _run(
    runner: PaperRunner, method: Method, attack: str, share: float, arm: Arm, seed: int, name: str, *, test: bool = True
) -> Trace:  # fmt: skip
    """A run that is evaluated after its last round, on test or on validation samples."""
    config = runner.config(attacked(method, attack, attackers_of(share, runner.facts.clients, seed)), arm, seed)
    config = config if test else config.on_validation()
    config = replace(config, run=replace(config.run, eval_every=arm.rounds), method=replace(config.method, name=name))
    return runner.trace(name, config)


def _on_validation(sites: PaperRunner, name: str, rule: ServerRule) -> dict[str, float | None]:
    arm = replace(sites.preset.attacked_sites, rounds=sites.preset.attacked_tune_rounds)
    method = replace(site_method(sites, "fedavg"), server=rule)
    found = {
        attack: _run(sites, method, attack, SITE_ATTACKERS, arm, 0, f"tuning {name} {attack} sites", test=False)
        for attack in sites.preset.attacks
    }
    return {attack: accuracy(trace) for attack, trace in found.items()}


def accuracy(trace: Trace) -> float | None:
    """The final figure; None where training diverged."""
    return None if trace.diverged else final(trace.history, "accuracy")


def _lengths(runner: PaperRunner, rules: Mapping[str, ServerRule]) -> Iterator[tuple[tuple[int, str, str], Trace]]:
    arm, method = runner.preset.attacked_chains, chain_method(runner)
    for length in runner.preset.chain_lengths:
        chains = replace(method, planner=chains_of(runner, length))
        for attack in chain_attacks(runner):
            for name, rule in rules.items():
                label = f"chains of {length} {name} {attack}"
                yield (length, name, attack), _run(runner, replace(chains, server=rule), attack, CHAIN_SHARE, arm, 0, label)


def _grid(runner: PaperRunner) -> Iterator[tuple[tuple[str, str, str, float], Trace]]:
    preset = runner.preset
    for name, share in grid_cells(runner):
        arm = preset.attacked_chains if name == "fedgsp" else preset.attacked_clients
        for rule, server in asked_of(runner, RULES).items():
            method = grid_method(runner, name, server)
            for attack in preset.attacks if share else (NOBODY,):
                label = f"{name} {rule} {attack} {share:g}"
                yield (name, rule, attack, share), _run(runner, method, attack, share, arm, 0, label)


def grid_cells(runner: PaperRunner) -> list[tuple[str, float]]:
    """(method, share of attackers) in the order in which they are run."""
    alone, chains = runner.preset.attack_shares, runner.preset.attack_chain_shares
    both = (("fedavg", alone), ("fedgsp", chains))
    return [(name, share) for share in dict.fromkeys((*alone, *chains)) for name, shares in both if share in shares]


def grid_method(runner: PaperRunner, name: str, server: ServerRule) -> Method:
    """FedGSP and FedAvg, each with its learning rate; of FedAvg's clients the share that the preset says."""
    if name == "fedgsp":
        return replace(chain_method(runner), server=server)
    method = runner.method(name)
    local, kappa = replace(method.local, lr=runner.preset.attacked_lr_alone), runner.preset.attacked_kappa
    return replace(method, local=local, planner=replace(method.planner, kappa=kappa), server=server)  # type: ignore[type-var]
