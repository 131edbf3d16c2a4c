"""What the runs of `study robustness` say: the choice of a rule, 2 of 20 sites, chains by their length, every rule's grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fedgsp.report.study_figures import BarChart, Curve, LinePlot, Picture
from fedgsp.study.findings import Findings
from fedgsp.study.noise import Estimate
from fedgsp.study.paper.robustness import (
    ATTACKS,
    CANDIDATES,
    CHAIN_SHARE,
    MEAN,
    NOBODY,
    RULES,
    SITE_ATTACKERS,
    SITE_GROUPS,
    TITLE,
    RobustRuns,
    accuracy,
    asked_of,
    chain_attacks,
    chains_of,
    grid_cells,
)
from fedgsp.study.tables import Column, Table, number, percent

if TYPE_CHECKING:
    from fedgsp.study.paper.runner import PaperRunner
    from fedgsp.study.records import Trace

WITHIN = 0.03
"""How much less than with nobody attacking a recommended rule may leave."""
METHODS = {"fedavg": "FedAvg", "fedgsp": "FedGSP"}
AT_SITES = {**METHODS, "pairs": "chains of two"}


def show(runner: PaperRunner, found: RobustRuns) -> Findings:
    """A table for each question, and one picture of the grid."""
    preset = runner.preset
    losses = {(method, attack): _lost(found, method, attack) for method in AT_SITES for attack in (NOBODY, *preset.attacks)}
    facts: dict[str, Any] = {
        "recommended": found.best, "choice": found.choice, "within": WITHIN,
        "sites": {f"{m}, {r}, {a}": [accuracy(t) for t in runs] for (m, r, a), runs in found.sites.items()},
        "lost": {f"{m}, {a}": None if lost is None else lost.mean for (m, a), lost in losses.items()},
        "lengths": {f"{n}, {r}, {a}": accuracy(t) for (n, r, a), t in found.lengths.items()}, "spoilt": found.spoilt,
        "grid": {f"{m}, {r}, {a}, {s:g}": accuracy(t) for (m, r, a, s), t in found.grid.items()},
    }  # fmt: skip
    tables = [_sites(runner, found, losses), _chains(runner, found), _choice(runner, found)]
    tables += [_grid(runner, found)] if found.grid else []
    notes = [_setting(runner), _verdict(runner, found, losses), _about_chains(found), *_left_out(runner)]
    return Findings("robustness", TITLE, tables, [_picture(runner, found)], facts, notes)


def _setting(runner: PaperRunner) -> str:
    preset = runner.preset
    scales = ", ".join(f"{name} {attack.scale:g}" for name, attack in ATTACKS.items() if name in preset.attacks)
    return (
        f"Accuracy in per cent on test samples after the last round, {preset.attacked_sites.model}, batches of "
        f"{preset.batch_size}. Attackers and their `scale`: {scales}; what each hands on is in `client/attacks.py`. They are "
        f"drawn by the run's seed, attack in every round in which they are sampled, and do not know each other. Learning "
        f"rates: {preset.attacked_lr:g}; FedAvg of single clients {preset.attacked_lr_alone:g} (on femnist-368 `study "
        f"table` chose these for FedGSP and FedAvg, on validation samples)."
    )


def _verdict(runner: PaperRunner, found: RobustRuns, losses: dict[tuple[str, str], Estimate | None]) -> str:
    said = []
    for method, words in AT_SITES.items():
        lost = {attack: losses[method, attack] for attack in runner.preset.attacks}
        beyond = [f"{a} ({_points(loss)})" for a, loss in lost.items() if loss is None or loss.mean > WITHIN]
        if not beyond:
            worst = max((loss.mean, a) for a, loss in lost.items() if loss is not None)
            said.append(f"{words}: within {100 * WITHIN:.0f} points of nobody attacking for every attacker (worst: {worst[1]}, "
                        f"{100 * worst[0]:.1f} points lost)")  # fmt: skip
        else:
            said.append(f"{words}: not within {100 * WITHIN:.0f} points for {', '.join(beyond)}")
    sites = runner.preset.attack_sites
    return (
        f"**{round(SITE_ATTACKERS * sites)} of {sites} sites attack.** Recommended, by the worst attacker on validation "
        f"samples: `{found.best}` (rules within a point of it cannot be told apart with one seed). With it, {'; '.join(said)}."
    )


def _left_out(runner: PaperRunner) -> list[str]:
    """Which cells of the whole grid this preset does without."""
    there, every = grid_cells(runner), (0.0, 0.1, 0.2, 0.3, 0.4)
    lacking = {words: [f"{s:.0%}" for s in every if (method, s) not in there] for method, words in METHODS.items()}
    said = [f"{words} with {', '.join(shares)} of all clients attacking" for words, shares in lacking.items() if shares]
    return [f"Not run, to save time: every rule for {' and '.join(said)}."] if said else []


def _points(lost: Estimate | None) -> str:
    return "diverged" if lost is None else f"{100 * lost.mean:.1f} points lost"


def _about_chains(found: RobustRuns) -> str:
    lengths = sorted((length for length in found.spoilt if length != "fedgsp"), key=int)
    measured = ", ".join(f"{fmean(found.spoilt[n]):.0%} of chains of {n}" for n in lengths if found.spoilt[n])
    rounds = found.spoilt["fedgsp"]
    first = f"; of FedGSP's {rounds[0]:.0%} in round 1 and {rounds[-1]:.0%} in round {len(rounds)}" if rounds else ""
    return (
        f"**A chain is as honest as its worst client.** An attacker spoils what the clients before it have learnt, and those "
        f"behind it train on what it left. With {CHAIN_SHARE:.0%} of the clients attacking, one is in {measured}{first}."
        f" No rule withstands a majority of dishonest chains: what helps is shorter chains, which is what FedGSP's grow into."
    )


def _lost(found: RobustRuns, method: str, attack: str) -> Estimate | None:
    """Accuracy with nobody attacking and the plain mean, minus that under attack, paired over seeds; None if one diverged."""
    pairs = list(zip(found.sites[method, MEAN, NOBODY], found.sites[method, found.best, attack], strict=True))
    figures = [(accuracy(before), accuracy(after)) for before, after in pairs]
    gaps = [before - after for before, after in figures if before is not None and after is not None]
    return Estimate.of(gaps) if gaps and len(gaps) == len(figures) else None


def _mean(runs: list[Trace]) -> Estimate | str:
    figures = [figure for trace in runs if (figure := accuracy(trace)) is not None]
    return Estimate.of(figures) if len(figures) == len(runs) else "diverged"


def _sites(runner: PaperRunner, found: RobustRuns, losses: dict[tuple[str, str], Estimate | None]) -> Table:
    preset, best = runner.preset, found.best
    arm = preset.attacked_sites
    columns = [Column("attackers"), Column("FedAvg, mean", percent)]
    for words in AT_SITES.values():
        columns += [Column(f"{words}, {best}", percent), Column(f"{words}: points lost", _hundredfold)]
    rows = []
    for attack in (NOBODY, *preset.attacks):
        row: list[Any] = [attack, _mean(found.sites["fedavg", MEAN, attack])]
        for method in AT_SITES:
            row += [_mean(found.sites[method, best, attack]), losses[method, attack]]
        rows.append(row)
    plain = {words: _mean(found.sites[method, MEAN, NOBODY]) for method, words in AT_SITES.items()}
    means = ", ".join(f"{words} {_hundredfold(p.mean) if isinstance(p, Estimate) else p}" for words, p in plain.items())
    attackers = round(SITE_ATTACKERS * preset.attack_sites)
    return Table(
        "robustness-sites", f"{attackers} of {preset.attack_sites} sites attack, {arm.rounds} rounds", columns, rows,
        f"The federation's {runner.facts.clients} clients are dealt at random to {preset.attack_sites} sites, which all take "
        f"part in every round. Means over {len(list(runner.seeds(arm)))} seed(s), ± 95 % interval. Points lost: against nobody "
        f"attacking and the plain mean of the same method ({means}), paired over seeds. FedGSP has {SITE_GROUPS} chains in "
        f"round 1 and more later; chains of two are FedGSP's with two sites each in every round.", kept=False,
    )  # fmt: skip


def _hundredfold(value: float) -> str:
    return f"{100 * value:.1f}"


def _choice(runner: PaperRunner, found: RobustRuns) -> Table:
    attacks = runner.preset.attacks
    rows = [
        (name, *(_or_diverged(found.choice[name][attack]) for attack in attacks),
         min(found.choice[name][attack] or 0.0 for attack in attacks)) for name in asked_of(runner, CANDIDATES)
    ]  # fmt: skip
    return Table(
        "robustness-choice", f"The choice of a rule: validation samples, {runner.preset.attacked_tune_rounds} rounds, seed 0",
        (Column("rule"), *(Column(attack, percent) for attack in attacks), Column("worst", percent)), rows,
        "FedAvg at the same sites. A number behind a rule is its `share`. Test samples had no part in the choice.", kept=False,
    )  # fmt: skip


def _or_diverged(figure: float | None) -> float | str:
    return "diverged" if figure is None else figure


def _chains(runner: PaperRunner, found: RobustRuns) -> Table:
    preset, rules = runner.preset, (MEAN, found.best)
    columns = [Column("clients of a chain"), Column("chains", number()), Column("with an attacker", percent),
               Column("by the formula", percent)]  # fmt: skip
    columns += [Column(f"{attack}, {rule}", percent) for attack in chain_attacks(runner) for rule in rules]
    rows = []
    for length in sorted(preset.chain_lengths):
        told = found.spoilt[str(length)]
        figures = [_or_diverged(accuracy(found.lengths[length, rule, a])) for a in chain_attacks(runner) for rule in rules]
        rows.append(
            (str(length), chains_of(runner, length).chains, fmean(told) if told else None, 1 - (1 - CHAIN_SHARE) ** length,
             *figures)
        )  # fmt: skip
    return Table(
        "robustness-chains", f"Chains of one length, {CHAIN_SHARE:.0%} of the clients attack, "
        f"{preset.attacked_chains.rounds} rounds, seed 0", columns, rows,
        "As many chains as take the clients of a FedAvg round. By the formula: 1 - (1 - p)^L. Longer chains learn more in a "
        "round, so the columns with nobody attacking say what a length is worth without attackers.", kept=False,
    )  # fmt: skip


def _grid(runner: PaperRunner, found: RobustRuns) -> Table:
    preset, rules = runner.preset, asked_of(runner, RULES)
    rows: list[tuple[Any, ...]] = []
    for method, words in METHODS.items():
        for attack in (NOBODY, *preset.attacks):
            for share in sorted(share for name, share in grid_cells(runner) if name == method):
                if (attack == NOBODY) == (share == 0):
                    cells = (_or_diverged(accuracy(found.grid[method, rule, attack, share])) for rule in rules)
                    rows.append((words, attack, share, *cells))
    alone, chains = preset.attacked_clients.rounds, preset.attacked_chains.rounds
    return Table(
        "robustness", f"A share of the {runner.facts.clients} clients attacks",
        (Column("method"), Column("attackers"), Column("share", "{:.0%}".format),
         *(Column(rule, percent) for rule in rules)), rows,
        f"One seed. FedAvg: {alone} rounds, {preset.attacked_kappa:.0%} of the clients in each; FedGSP: {chains} rounds, "
        f"{preset.kappa_default:.0%} of the groups. So the share of attackers in a round varies. A number behind a rule is its "
        f"`share`: rules are set for two fifths of the chains, whatever attacks.",
    )  # fmt: skip


def _picture(runner: PaperRunner, found: RobustRuns) -> Picture:
    rules, attacks = asked_of(runner, RULES), runner.preset.attacks
    lines = [
        Curve(f"{attack}, {rule}", sorted(runner.preset.chain_lengths),
              [accuracy(found.lengths[n, rule, attack]) or 0.0 for n in sorted(runner.preset.chain_lengths)])
        for attack in chain_attacks(runner) for rule in (MEAN, found.best)
    ]  # fmt: skip
    shown = [("fedavg", MEAN), *((method, found.best) for method in AT_SITES)]
    sites = [_bars(f"{AT_SITES[method]}, {rule}", found, method, rule, attacks) for method, rule in shown]
    spoilt = [
        Curve("FedGSP" if name == "fedgsp" else f"chains of {name}", list(range(1, len(told) + 1)), told)
        for name, told in found.spoilt.items()
    ]
    rows: list[list[Any]] = [
        sites,
        [LinePlot("chains of one length", "clients of a chain", "accuracy", lines, log_x=True),
         LinePlot("chains with an attacker", "round", "share of the chains", spoilt)],
    ]  # fmt: skip
    for method, words in METHODS.items():
        shares = sorted(share for name, share in grid_cells(runner) if name == method)
        if len(shares) > 1:
            rows += [
                [LinePlot(f"{words}, {attack}", "share of attackers", "accuracy",
                          list(_curves(found, method, attack, shares, rules))) for attack in attacks]
            ]  # fmt: skip
    return Picture(
        "robustness", f"Above: {runner.preset.attack_sites} sites, accuracy by who attacks. Second: {CHAIN_SHARE:.0%} of all "
        f"clients attack, chains of one length, and how many chains have an attacker. Below, where it was run, accuracy "
        f"over the share of clients that attack; a curve ends where training diverged.", rows,
    )  # fmt: skip


def _bars(title: str, found: RobustRuns, method: str, rule: str, attacks: Sequence[str]) -> BarChart:
    """Accuracy by attacker; 0 where training diverged."""
    figures = [_mean(found.sites[method, rule, attack]) for attack in (NOBODY, *attacks)]
    whole = [figure if isinstance(figure, Estimate) else Estimate(0.0, None, 0) for figure in figures]
    return BarChart(title, "", "accuracy", [NOBODY, *attacks], [("", [one.mean for one in whole])])


def _curves(found: RobustRuns, method: str, attack: str, shares: Sequence[float], rules: Any) -> Iterator[Curve]:
    for rule in rules:
        points = []
        for share in sorted(shares):
            figure = accuracy(found.grid[method, rule, attack if share else NOBODY, share])
            if figure is None:
                break
            points.append((share, figure))
        yield Curve(rule, [x for x, _ in points], [y for _, y in points])
