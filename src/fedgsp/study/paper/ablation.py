"""`study ablation`: our methods piece by piece, and the other forms that they and FedGSP might have had.

Everything is on validation samples: here the form of `long-chains-then-adam` was chosen, and FedGSP gets as many forms to
choose from. What came of the choice, on other seeds and on test samples, is in `study ours`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fedgsp.client.schedule import Decay, Steady
from fedgsp.methods import named
from fedgsp.plan import ICG, Constant, Grouped, Growth, Log, Random, Singletons, Switch
from fedgsp.run.metrics import final
from fedgsp.server import Adam, Averaged, FedExP, Mean, WarmStart
from fedgsp.study.findings import Findings
from fedgsp.study.noise import Estimate, differences, sentence
from fedgsp.study.tables import Column, Table, bytes_, number, percent
from fedgsp.study.targets import as_fact, mean_costs, reached, window_of

if TYPE_CHECKING:
    from fedgsp.method import Method
    from fedgsp.plan import Grouper
    from fedgsp.study.paper.runner import PaperRunner
    from fedgsp.study.records import Trace

TITLE = "Our methods piece by piece, and other forms"
LONG, CAPPED, FEDGSP = "long-chains-then-adam", "fedgsp-capped", "fedgsp"
WHOLE = "as it is"
Forms = dict[str, "Method"]


@dataclass(frozen=True)
class AblationRuns:
    """Table -> row -> its runs, a seed each."""

    pieces: dict[str, dict[str, list[Trace]]]
    forms: dict[str, dict[str, list[Trace]]]


def long_chains(
    method: Method, *, chains: int = 2, groups: int = 10, rounds: int = 2, kappa: float = 0.2, lr: float = 0.0316,
    decay: float = 0.7, grouper: Grouper | None = None,
) -> Method:  # fmt: skip
    """`long-chains-then-adam` in another form.

    Args:
        method: The method, for its local rule.
        chains: Chains of a round of the start.
        groups: They are so many that a chain has one in this many of the clients.
        rounds: Rounds of the start.
        kappa: Share of the clients that train in a round afterwards.
        lr: Learning rate of the server.
        decay: Of the averaged models.
        grouper: Who is in a chain of the start; None: ICG.
    """
    start = Grouped(Constant(groups), grouper or ICG(), chains=chains)
    alone = Grouped(Singletons(), Random(), kappa=kappa)
    adam = Adam(lr=lr, beta1=0.7, beta2=0.99, tau=1e-3)
    server = Averaged(WarmStart(adam, rounds=rounds), decay=decay)
    return replace(method, planner=Switch(start, alone, rounds=rounds), server=server)


def pieces_of(methods: Mapping[str, Method]) -> dict[str, Forms]:
    """Method -> what is taken away -> the method without it."""
    long, capped = methods[LONG], methods[CAPPED]
    assert isinstance(long.planner, Switch)
    assert isinstance(long.server, Averaged)
    assert isinstance(capped.server, Averaged)
    warm, exp = long.server.server, capped.server.server
    assert isinstance(warm, WarmStart)
    assert isinstance(exp, FedExP)
    return {
        LONG: {
            WHOLE: long,
            "without chains": replace(long, planner=long.planner.then),
            "chains of random groups": long_chains(long, grouper=Random()),
            "moments kept from the start": replace(long, server=replace(long.server, server=replace(warm, fresh=False))),
            "a plain mean throughout": replace(long, server=replace(long.server, server=Mean())),
            "models not averaged": replace(long, server=warm),
            "a constant learning rate": replace(long, local=replace(long.local, schedule=Steady())),
        },
        CAPPED: {
            WHOLE: capped,
            "without a longer step": replace(capped, server=replace(capped.server, server=Mean())),
            "the step not capped": replace(capped, server=replace(capped.server, server=replace(exp, cap=None))),
            "models not averaged": replace(capped, server=exp),
            "neither": replace(capped, server=Mean()),
        },
    }


def forms_of(methods: Mapping[str, Method], beta: int) -> dict[str, Forms]:
    """Method -> form -> the method in that form."""
    long, gsp = methods[LONG], methods[FEDGSP]
    assert isinstance(gsp.planner, Grouped)
    planner, slower = gsp.planner, replace(gsp.local, schedule=Decay(0.98, floor=0.2))

    def grown(growth: Growth, kappa: float, decay: float | None = None) -> Method:
        server = gsp.server if decay is None else Averaged(Mean(), decay=decay)
        return replace(gsp, planner=replace(planner, growth=growth, kappa=kappa), server=server)

    usual = planner.kappa
    return {
        LONG: {
            WHOLE: long,
            "one round of chains": long_chains(long, rounds=1),
            "three rounds of chains": long_chains(long, rounds=3),
            "three chains": long_chains(long, chains=3),
            "four rounds of chains": long_chains(long, rounds=4),
            "chains of a fifth": long_chains(long, groups=5),
            "chains of a seventh": long_chains(long, groups=7),
            "chains of a 15th": long_chains(long, groups=15),
            "three chains of a 15th": long_chains(long, chains=3, groups=15),
            "kappa 0.15": long_chains(long, kappa=0.15),
            "kappa 0.3": long_chains(long, kappa=0.3),
            "server rate 0.01": long_chains(long, lr=0.01),
            "server rate 0.0215": long_chains(long, lr=0.0215),
            "server rate 0.045": long_chains(long, lr=0.045),
            "averaged by 0.5": long_chains(long, decay=0.5),
        },
        FEDGSP: {
            WHOLE: gsp,
            "kappa 0.2": grown(Log(2, beta), 0.2),
            "kappa 0.2, averaged": grown(Log(2, beta), 0.2, 0.5),
            "half as many groups at first, kappa 0.2": grown(Log(2, beta // 2), 0.2),
            "half as many again, kappa 0.2": grown(Log(2, beta * 3 // 2), 0.2),
            "twice as many": grown(Log(2, 2 * beta), usual),
            "twice as many, kappa 0.2, averaged": grown(Log(2, 2 * beta), 0.2, 0.5),
            "three times as many, kappa 0.2": grown(Log(2, 3 * beta), 0.2),
            "alpha 0.5, kappa 0.2": grown(Log(0.5, beta), 0.2),
            "alpha 1, kappa 0.1": grown(Log(1, beta), 0.1),
            "alpha 1, kappa 0.2": grown(Log(1, beta), 0.2),
            "alpha 1, kappa 0.2, averaged": grown(Log(1, beta), 0.2, 0.5),
            "alpha 4": grown(Log(4, beta), usual),
            "averaged by 0.7": grown(Log(2, beta), usual, 0.7),
            "averaged, learning rate falling": replace(grown(Log(2, beta), usual, 0.5), local=slower),
        },
    }


def gather(runner: PaperRunner) -> AblationRuns:
    """Every row with every seed, on validation samples."""
    preset = runner.preset
    methods = {FEDGSP: runner.tuned(FEDGSP, preset.table).method}
    for name in (LONG, CAPPED):
        method = named(name)
        methods[name] = replace(method, local=replace(method.local, batch_size=preset.batch_size))
    return AblationRuns(_run(runner, pieces_of(methods)), _run(runner, forms_of(methods, preset.beta)))


def _run(runner: PaperRunner, tables: dict[str, Forms]) -> dict[str, dict[str, list[Trace]]]:
    arm = runner.preset.ablation

    def runs(name: str, method: Method) -> list[Trace]:
        named_after = replace(method, name=name)
        return [
            runner.trace(f"tuning {name}", runner.config(named_after, arm, seed).on_validation()) for seed in runner.seeds(arm)
        ]

    return {
        name: {row: runs(name if row == WHOLE else f"{name}, {row}", method) for row, method in rows.items()}
        for name, rows in tables.items()
    }


def show(runner: PaperRunner, found: AblationRuns) -> Findings:
    """What each row took to the target and has at its end, and which pieces are worth more than the noise."""
    arm, target = runner.preset.ablation, runner.preset.ours_targets[0]
    facts: dict[str, Any] = {"model": arm.model, "rounds": arm.rounds, "target": target, "pieces": {}, "forms": {}}
    tables, notes = [], []
    for what, words, by_method in (("pieces", "piece by piece", found.pieces), ("forms", "in other forms", found.forms)):
        for name, rows in by_method.items():
            ends = {row: _ends(runner, runs) for row, runs in rows.items()}
            taken = {row: [reached(trace, target) for trace in runs] for row, runs in rows.items()}
            facts[what][name] = {row: {"final": list(ends[row].values()), "reached": as_fact(taken[row])} for row in rows}
            cells = [
                (row, Estimate.of(list(ends[row].values())) if ends[row] else "diverged", *mean_costs(taken[row]))
                for row in rows
            ]
            tables.append(_table(f"{what}-{name}", f"{name}, {words}", cells, target))
            if what == "pieces":
                notes.append(f"{name}, final accuracy against the whole: {sentence(differences(ends, WHOLE), 'accuracy')}")
    seeds = len(runner.seeds(arm))
    notes.append(
        f"{arm.model}, {arm.rounds} rounds, {seeds} seed(s), validation samples; accuracy: "
        f"{window_of(runs for rows in found.pieces.values() for runs in rows.values())}, ± 95 % interval over seeds. Costs are "
        f"means over the seeds that got there. Each row differs from the whole in what it says only."
    )
    return Findings("ablation", TITLE, tables, [], facts, notes)


def _ends(runner: PaperRunner, runs: Sequence[Trace]) -> dict[int, float]:
    seeds = runner.seeds(runner.preset.ablation)
    return {seed: final(t.history, "accuracy") for seed, t in zip(seeds, runs, strict=True) if not t.diverged}


def _table(name: str, title: str, rows: Sequence[tuple[Any, ...]], target: float) -> Table:
    return Table(
        name, f"{title}: to {100 * target:.0f} %, and at the end",
        (Column("form"), Column("accuracy %", percent), Column("seeds that got there"), Column("rounds", number(1)),
         Column("serial steps", number()), Column("bytes", bytes_)), rows, kept=False,
    )  # fmt: skip
