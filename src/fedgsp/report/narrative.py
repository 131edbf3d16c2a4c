"""A report's summary in words that a person without the field's vocabulary follows; every figure is read off the runs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import TYPE_CHECKING, Any

from fedgsp.run.metrics import best, final_rounds, first_reaching, last, window_words

if TYPE_CHECKING:
    from fedgsp.report.labels import RunGroup
    from fedgsp.report.runview import RunView

MOST_LISTED = 8
Sentences = list[dict[str, str]]


def summary(runs: Sequence[RunView], groups: Sequence[RunGroup]) -> Sentences:
    """Sentences, each with a kind: "lead" (what this is), "fact", or "caution" (what not to read into it)."""
    if not runs:
        return [_said("lead", "There is no run here yet; this page shows it as soon as it begins.")]
    said: Sentences = [_said("lead", _about(runs))]
    for text in (_outcome(runs, groups), _race(runs, groups), _spread(runs, groups), _shape(runs)):
        if text:
            said.append(_said("fact", text))
    said += [_said("caution", text) for text in _cautions(runs, groups)]
    return said


def _said(kind: str, text: str) -> dict[str, str]:
    return {"kind": kind, "text": text}


def _about(runs: Sequence[RunView]) -> str:
    sources = {run.facts.fingerprint: run for run in runs if run.facts is not None}
    if len(sources) == 1:
        (run,) = sources.values()
        facts = run.facts
        assert facts is not None
        samples = int(facts.train.sum() + facts.validation.sum() + facts.test.sum())
        kind = f" of {facts.classes} classes" if facts.classes else ""
        where = f"{len(facts.train):,} clients that hold {samples:,} samples{kind} and keep them to themselves"
    else:
        where = (
            f"clients of {len(sources)} different federations" if sources else "clients that keep their samples to themselves"
        )
    models = sorted({run.model for run in runs})
    model = f"The model {models[0]}" if len(models) == 1 else f"{len(models)} different models"
    going = any(run.status == "running" for run in runs)
    verb = ("is being" if going else "was") if len(models) == 1 else ("are being" if going else "were")
    return (
        f"{model} {verb} trained on {where}. In every round some clients train: those of a group one after the other, "
        f"handing the model on; groups side by side, their results averaged."
    )


def _best_first(runs: Sequence[RunView], groups: Sequence[RunGroup]) -> list[tuple[float, RunGroup, list[float]]]:
    """(mean final figure, group, final figure of each seed), best first."""
    rows = []
    for group in groups:
        finals = [run.final(run.score or "loss") for run in (runs[i] for i in group.runs)]
        known = [value for value in finals if value is not None]
        if known:
            rows.append((mean(known), group, known))
    higher = all(run.score for run in runs)
    return sorted(rows, key=lambda row: -row[0] if higher else row[0])


def _outcome(runs: Sequence[RunView], groups: Sequence[RunGroup]) -> str:
    rows = _best_first(runs, groups)
    if not rows:
        return "Nothing has been evaluated yet."
    first = runs[rows[0][1].runs[0]]
    figure = _figure_name(first)
    told = [f"{group.label} {_value(first, value)}{_seeds(first, each)}" for value, group, each in rows[:MOST_LISTED]]
    more = f" and {len(rows) - MOST_LISTED} more" if len(rows) > MOST_LISTED else ""
    what = f"{figure[0].upper()}{figure[1:]}, {final_words([runs[i] for _, group, _ in rows for i in group.runs])}"
    if len(told) == 1 and not more:
        return f"{what}: {told[0]}{_last_and_best(runs, rows[0][1])}."
    return f"{what}: {', '.join(told)}{more}."


def _figure_name(run: RunView) -> str:
    if run.score == "accuracy":
        samples = f"{run.evaluated_on} samples"
        return f"accuracy (the share of {samples} that the model gets right, clients weighed by how many samples they have)"
    return run.score or "loss (lower is better)"


def _value(run: RunView, value: float) -> str:
    return f"{100 * value:.1f}\u00a0%" if run.score == "accuracy" else f"{value:.4g}"


def _seeds(run: RunView, each: list[float]) -> str:
    if len(each) == 1:
        return ""
    return f" ({len(each)} seeds, {_value(run, min(each))} to {_value(run, max(each))})"


def final_words(runs: Sequence[RunView]) -> str:
    """Which rounds the final figures of these runs are of."""
    words = {window_words(final_rounds(run.history, run.score or "loss")) for run in runs}
    return words.pop() if len(words) == 1 else "each over its last rounds"


def _last_and_best(runs: Sequence[RunView], group: RunGroup) -> str:
    run = runs[group.runs[0]]
    score = run.score or "loss"
    end, top = last(run.history, score), best(run.history, score)
    if len(group.runs) > 1 or end is None or top is None or len(run.evaluated) < 2:
        return ""
    return (
        f"; round {end[0]['round']} had {_value(run, end[1][score])}, the best single one was {_value(run, top[1][score])} in "
        f"round {top[0]['round']}"
    )


def common_target(runs: Sequence[RunView]) -> float | None:
    """An accuracy that every run reached, as high as possible, in steps of five percent: what a race is run to."""
    tops = [best(run.history, "accuracy") for run in runs]
    target = int(min((0.0 if top is None else top[1]["accuracy"] for top in tops), default=0.0) * 20) / 20
    return target if target > 0 else None


def _race(runs: Sequence[RunView], groups: Sequence[RunGroup]) -> str:
    target = common_target(runs) if len(groups) > 1 else None
    if target is None:
        return ""
    rows = []
    for group in groups:
        entries = [entry for i in group.runs if (entry := first_reaching(runs[i].history, target, "accuracy")) is not None]
        rows.append((mean(e["round"] for e in entries), mean(e["serial_steps_total"] for e in entries), group.label))
    rows.sort()
    told = [f"{label} {_count(r, 'round')} and {_count(steps, 'step')}" for r, steps, label in rows[:MOST_LISTED]]
    return (
        f"To {100 * target:.0f}\u00a0% accuracy (reached by all) it took, in rounds and in training steps that had to wait for "
        f"each other: {', '.join(told)}."
    )


def _count(value: float, word: str) -> str:
    text = f"{value:,.0f}" if value == round(value) or value >= 100 else f"{value:,.1f}"
    return f"{text} {word}" if text == "1" else f"{text} {word}s"


def _spread(runs: Sequence[RunView], groups: Sequence[RunGroup]) -> str:
    rows = _best_first(runs, groups)
    run = next((runs[i] for i in rows[0][1].runs if runs[i].evaluated), None) if rows else None
    if run is None or run.score is None:
        return ""
    spread = run.evaluated[-1].get("quantiles", {}).get(run.score or "", {})
    if not {"0.1", "0.5", "0.9"} <= spread.keys():
        return ""
    low, middle, high = (_value(run, spread[q]) for q in ("0.1", "0.5", "0.9"))
    name = f"With {rows[0][1].label}, client" if len(groups) > 1 else "Client"
    return (
        f"{name} by client, in the last evaluation: half of them got {middle} or more, the worst-off tenth at most {low}, "
        f"the best-off tenth at least {high}."
    )


def _shape(runs: Sequence[RunView]) -> str:
    growing = next((run for run in runs if run.plans and len(run.plans[-1]["chains"]) > len(run.plans[0]["chains"])), None)
    if growing is None:
        return ""
    first, last = growing.plans[0], growing.plans[-1]
    return (
        f"From sequential to parallel: {growing.method} began with {_lanes(first)} in round {first['round']} and "
        f"had {_lanes(last)} in round {last['round']}."
    )


def _lanes(plan: dict[str, Any]) -> str:
    lengths = [len(chain["clients"]) for chain in plan["chains"]]
    if not lengths:
        return "no chain"
    low, high = min(lengths), max(lengths)
    chains = "1 chain" if len(lengths) == 1 else f"{len(lengths)} chains"
    clients = f"{low} client{'s' * (low != 1)}" if low == high else f"{low} to {high} clients"
    return f"{chains} of {clients}{' each' if len(lengths) > 1 else ''}"


def _cautions(runs: Sequence[RunView], groups: Sequence[RunGroup]) -> list[str]:
    told = []
    if len(groups) > 1 and all(len(group.runs) == 1 for group in groups):
        told.append("There is one seed of each method: small differences between methods may be chance.")
    lengths = {run.round for run in runs if run.history}
    if len(groups) > 1 and len(lengths) > 1:
        told.append(f"The runs are of different lengths ({min(lengths)} to {max(lengths)} rounds).")
    if len({run.facts.fingerprint for run in runs if run.facts is not None}) > 1:
        told.append("The runs are on different data, so their figures cannot be compared.")
    endings = {"failed": "failed", "interrupted": "was interrupted", "paused": "was paused", "stopped": "was stopped"}
    for status, verb in endings.items():
        named = [run.path.name for run in runs if run.status == status]
        if named:
            many = len(named) > 1
            what = f"{len(named)} runs {verb.replace('was', 'were')}" if many else f"{named[0]} {verb}"
            told.append(f"{what} before the end; fedgsp resume goes on.")
    told += [
        f"{run.path.name} is damaged, and only what could be read of it is shown: {run.damage[0]}" for run in runs if run.damage
    ]
    told += [f"{run.path.name}: {text}" for run in runs for text in _privacy(run)]
    if any(run.facts is None for run in runs):
        told.append("Some runs were recorded without their clients' class counts, so their groups have no colours.")
    return told


def _privacy(run: RunView) -> list[str]:
    """What the privacy of a run's clients has cost so far."""
    last = run.history[-1] if run.history else {}
    told = {"epsilon": "its models show", "epsilon_local": "what a client handed on shows"}
    return [
        f"{what} one client's samples by at most epsilon {last[name]:g} after {run.round} rounds (docs/privacy.md)."
        for name, what in told.items()
        if name in last
    ]
