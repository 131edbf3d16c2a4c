"""Runs as the data of a page: compact, the same for a report and for a watched page, in one piece or from a round on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedgsp.core import __version__
from fedgsp.core.adding import added
from fedgsp.cost import FLEETS, RunCosts
from fedgsp.report.colours import looks
from fedgsp.report.encode import packed, packed_scores, rounded
from fedgsp.report.federation import federation
from fedgsp.report.labels import group_runs
from fedgsp.report.narrative import common_target, final_words, summary
from fedgsp.run.metrics import final_rounds, last, records, window_words

if TYPE_CHECKING:
    from fedgsp.report.runview import RunView

SCHEMA = 1
PLAN_BUDGET = 1_200_000
"""Stations (clients in plans) that all runs of a page may show; of more, rounds are left out evenly."""

ALWAYS = 10
"""The first so many rounds are always shown: there lanes multiply fastest."""

QUANTILES = ("0.1", "0.5", "0.9")
MOST_NAMED = 4


def payload(runs: Sequence[RunView], title: str | None = None, budget: int = PLAN_BUDGET) -> dict[str, Any]:
    """Everything a page shows."""
    strides = plan_strides(runs, budget)
    shelf = FederationShelf()
    bodies = [run_body(run, shelf, strides[index]) for index, run in enumerate(runs)]
    return {**frame(runs, title), "runs": bodies, "federations": shelf.made}


def frame(runs: Sequence[RunView], title: str | None = None) -> dict[str, Any]:
    """What belongs to no single run: how runs group, and the summary in words."""
    groups = group_runs(runs)
    return {
        "schema": SCHEMA,
        "fedgsp": __version__,
        "title": title or _title(runs, [group.label for group in groups]),
        "groups": [
            {
                "label": g.label,
                "method": g.method,
                "runs": [runs[i].id for i in g.runs],
                "window": final_words([runs[i] for i in g.runs]),
                "tone": look.tone,
                "dash": look.dash,
            }
            for g, look in zip(groups, looks([g.method for g in groups]), strict=True)
        ],
        "summary": summary(runs, groups),
        "target": common_target(runs),
        "fleets": list(FLEETS),
    }


def _title(runs: Sequence[RunView], labels: Sequence[str]) -> str:
    if not runs:
        return "Waiting for a run"
    if len(runs) == 1:
        return f"{labels[0]}, seed {runs[0].seed}"
    if len(labels) == 1:
        return f"{labels[0]}, {len(runs)} seeds"
    return f"{', '.join(labels[:-1])} and {labels[-1]}" if len(labels) <= MOST_NAMED else f"{len(labels)} methods compared"


class FederationShelf:
    """Federations by what they hold: runs on the same data share one."""

    def __init__(self) -> None:
        self.made: list[dict[str, Any]] = []
        self._known: dict[tuple[str, int, int], int] = {}

    def place(self, run: RunView) -> int | None:
        """The number of a run's federation; None while the run directory does not say."""
        if run.facts is None or not run.names or len(run.names) != len(run.facts.train):
            return None
        key = (run.facts.fingerprint, int(run.facts.train.sum()), int(run.facts.trains.sum()))
        if key not in self._known:
            self._known[key] = len(self.made)
            self.made.append(federation(run.facts, run.names))
        return self._known[key]


def plan_strides(runs: Sequence[RunView], budget: int) -> list[int]:
    """How many rounds lie between two that are shown, for each run, so that all plans together stay within the budget."""
    share = max(1, budget // max(1, len(runs)))
    strides = []
    for run in runs:
        sizes = [sum(len(chain["clients"]) for chain in plan["chains"]) for plan in run.plans[:ALWAYS]]
        stations = (sum(sizes) / len(sizes) if sizes else 0.0) * max(run.rounds_planned, len(run.plans))
        strides.append(max(1, int(np.ceil(stations / share))))
    return strides


def run_body(run: RunView, shelf: FederationShelf, stride: int, after: int = 0) -> dict[str, Any]:
    """A run for a page; with `after`, rounds and plans up to that one are left out (the page has them)."""
    entries = [entry for entry in run.history if entry["round"] > after]
    score = run.score or "loss"
    scores = run.client_scores()
    return {
        "id": run.id,
        "epoch": run.epoch,
        "after": after,
        "last": run.round,
        "name": run.path.name or str(run.path),
        "path": str(run.path),
        "method": run.method,
        "seed": run.seed,
        "status": run.status,
        "cause": run.cause,
        "planned": run.rounds_planned,
        "score": run.score,
        "final": figures_of(run),
        "records": [[entry["round"], figures[score]] for entry, figures in records(run.history, score)],
        "federation": shelf.place(run),
        "columns": columns(run, entries),
        "plans": plans(run, stride, after),
        "stride": stride,
        "scores": None if scores is None else packed_scores(scores),
        "costs": _costs(run),
        "model": run.model,
        "parameters": run.facts.parameters if run.facts else None,
        "config": run.config_text,
        "versions": run.result.get("versions", run.events.versions),
        "command": run.command,
        "lost": run.events.kinds["lost"],
        "skipped": run.events.kinds["skipped"],
        "resumed": run.events.kinds["resumed"],
        "now": _now(run),
    }


def figures_of(run: RunView) -> dict[str, Any] | None:
    """What the run reports, as `run/metrics.py` has it: the page shows these and works out none itself."""
    score = run.score or "loss"
    end = last(run.history, score)
    return end and {
        "value": run.final(score),
        "window": window_words(final_rounds(run.history, score)),
        "last": {"round": end[0]["round"], "value": end[1][score]},
    }


def columns(run: RunView, entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A journal as columns; `time` has the estimated seconds of each round on each fleet."""
    score = run.score or "loss"
    names = {
        "round": "round", "groups": "groups", "chains": "chains", "clients": "clients", "steps": "serial_steps_total",
        "bytes": "bytes_total", "trainLoss": "train_loss", "loss": "loss", "score": score, "plain": f"{score}_plain",
    }  # fmt: skip
    made: dict[str, Any] = {short: rounded(_number(entry.get(name)) for entry in entries) for short, name in names.items()}
    for quantile in QUANTILES:
        spread = [entry.get("quantiles", {}).get(score, {}).get(quantile) for entry in entries]
        made[f"q{quantile}"] = rounded(_number(value) for value in spread)
    made["wall"] = rounded(
        sum(entry.get("timings", {}).get(lap, 0.0) for lap in ("plan", "train", "evaluate")) for entry in entries
    )
    costs = [run.events.costs_of(entry["round"]) for entry in entries]
    made["time"] = {fleet: rounded(_seconds(cost.get(fleet)) for cost in costs) for fleet in FLEETS}
    return made


def _number(value: Any) -> float | int | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _seconds(cost: RunCosts | None) -> float | None:
    return None if cost is None else cost.seconds


def _costs(run: RunView) -> dict[str, dict[str, float]]:
    """Seconds by fleet over all finished rounds: computing, transfers of the longest chains, waiting for the server's link."""
    every = [run.events.costs_of(entry["round"]) for entry in run.history]
    made = {}
    for fleet in FLEETS:
        each = [cost[fleet] for cost in every if fleet in cost]
        if each and len(each) == len(run.history):
            computing, chains, seconds = (added(getattr(c, name) for c in each) for name in ("computing", "chains", "seconds"))
            made[fleet] = {"computing": computing, "transfers": chains - computing, "waiting": seconds - chains}
    return made


def plans(run: RunView, stride: int, after: int) -> dict[str, Any]:
    """Plans of the shown rounds: how long each chain is, and all clients one after the other."""
    last = run.plans[-1]["round"] if run.plans else 0
    shown = [
        plan
        for plan in run.plans
        if plan["round"] > after and (plan["round"] <= ALWAYS or plan["round"] % stride == 0 or plan["round"] == last)
    ]
    clients = [client for plan in shown for chain in plan["chains"] for client in chain["clients"]]
    return {
        "rounds": [plan["round"] for plan in shown],
        "groups": [plan.get("groups", len(plan["chains"])) for plan in shown],
        "leftOut": [plan.get("left_out", 0) for plan in shown],
        "lengths": [_runs_of([len(chain["clients"]) for chain in plan["chains"]]) for plan in shown],
        "passes": [max((chain.get("passes", 1) for chain in plan["chains"]), default=1) for plan in shown],
        "starts": {
            str(plan["round"]): [chain.get("start", "global") for chain in plan["chains"]]
            for plan in shown
            if any("start" in chain for chain in plan["chains"])
        },
        "clients": packed(np.array(clients, dtype=np.int64)),
        "longest": max((len(chain["clients"]) for plan in run.plans for chain in plan["chains"]), default=1),
        "lanes": max((len(plan["chains"]) for plan in run.plans), default=1),
    }


def _runs_of(lengths: list[int]) -> list[int]:
    """[36, 36, 36, 12] as [3, 36, 1, 12]."""
    made: list[int] = []
    for length in lengths:
        if made and made[-1] == length:
            made[-2] += 1
        else:
            made += [1, length]
    return made


def _now(run: RunView) -> dict[str, Any] | None:
    """The round under way, where there is one."""
    events = run.events
    if run.status != "running" or events.round is None or events.round <= run.round:
        return None
    return {"round": events.round, "chains": events.chains, "lanes": events.lanes()}
