"""`fedgsp.compare`: methods, one's own among them, and finished runs side by side."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedgsp.core.adding import added
from fedgsp.core.errors import InputError, did_you_mean
from fedgsp.core.tables import frame, text_table
from fedgsp.cost import FLEETS
from fedgsp.data import FederatedData, load
from fedgsp.data.sources import absolute
from fedgsp.methods import named
from fedgsp.progress import unit_bars
from fedgsp.report.notebook import Plot, curve
from fedgsp.report.study_figures import figure_of
from fedgsp.run.build import IN_MEMORY
from fedgsp.run.config import DataSection, ModelSection, RunConfig
from fedgsp.run.metrics import final
from fedgsp.study.compare import CompareOptions, Entrant, compared, cut_to, from_runs, run_methods
from fedgsp.study.entries import Entry, read_entries
from fedgsp.study.findings import Findings, Origin, write_findings
from fedgsp.study.finished import FinishedRun, read_finished
from fedgsp.study.noise import MORE_SEEDS, Estimate
from fedgsp.study.records import Arm, DataFacts
from fedgsp.study.study_runner import StudyRunner

if TYPE_CHECKING:
    from torch import nn

    from fedgsp.models import Task
    from fedgsp.run.callbacks import Callback
    from fedgsp.run.result import RunResult

ROUNDS, SEEDS, FLEET = 30, 3, "paper"


@dataclass(frozen=True, repr=False)
class Comparison:
    """What `fedgsp.compare` returns.

    Attributes:
        findings: Tables, pictures and facts, as the command line writes them.
        entrants: The runs of every method.
        directory: Where runs, tables and figures are; None: nothing was kept.
        figures_drawn: Whether figures are among the files; they need matplotlib.
    """

    findings: Findings
    entrants: Sequence[Entrant]
    directory: Path | None = None
    figures_drawn: bool = field(default=False, compare=False)

    @property
    def notes(self) -> list[str]:
        """Which differences are larger than the noise, and what else there is to say."""
        return [note.replace(MORE_SEEDS, "`seeds=3` or more") for note in self.findings.notes]

    @property
    def facts(self) -> dict[str, Any]:
        """The figures of every method and seed, and all differences, as plain data."""
        return self.findings.facts

    @property
    def score_name(self) -> str:
        """The metric that is compared."""
        return str(self.facts["metric"])

    @property
    def scores(self) -> dict[str, dict[int, float]]:
        """Method -> seed -> final figure; methods that diverged are not there."""
        name = self.score_name
        return {e.name: {seed: final(t.history, name) for seed, t in e.traces.items()} for e in self.entrants if not e.diverged}

    @property
    def best(self) -> str:
        """The method with the best mean, whether or not the difference is larger than the noise."""
        means = {name: Estimate.of(list(values.values())).mean for name, values in self.scores.items()}
        return (min if self.score_name == "loss" else max)(means, key=lambda name: means[name])

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The tables as a list of dicts, a method each; intervals stand beside their means."""
        return [row for table in self.findings.tables for row in table.records()]

    def to_pandas(self) -> Any:
        """The tables as a pandas DataFrame."""
        return frame("pandas", self.rows)

    def to_polars(self) -> Any:
        """The tables as a polars DataFrame."""
        return frame("polars", self.rows)

    def plot(self) -> Plot:
        """The curves of every method against rounds, serial steps, traffic and simulated time."""
        if not self.findings.pictures:
            raise InputError("there is no curve to draw: every method diverged.")
        return Plot(figure_of(self.findings.pictures[0]))

    def __repr__(self) -> str:
        shown = [
            (e.name, "diverged" if e.diverged else _interval(Estimate.of(list(self.scores[e.name].values()))), len(e.traces))
            for e in self.entrants
        ]
        table = text_table(("method", self.score_name, "seeds"), shown, most=6)
        return "\n".join([f"Comparison of {len(shown)} methods", *table, *self.notes[-1:]])

    def _repr_html_(self) -> str:
        lines: dict[str, list[tuple[float, float]]] = {}
        for entrant in self.entrants:
            seeds = [t.history for t in entrant.traces.values()]
            if seeds and not entrant.diverged:
                lines[entrant.name] = _mean_curve(seeds, self.score_name)
        return self.findings._repr_html_() + curve(lines, self.score_name)


def compare(
    *entries: Entry,
    data: str | FederatedData | None = None,
    model: str | Callable[..., nn.Module] | nn.Module | None = None,
    task: Task | None = None,
    rounds: int | None = None,
    seeds: int = SEEDS,
    lr: float | None = None,
    clients: int | None = None,
    holdout_clients: int = 0,
    target: float | None = None,
    fleet: str = FLEET,
    workers: int | str = "auto",
    out: str | Path | None = None,
    adjust: Callable[[RunConfig], RunConfig] = lambda config: config,
    progress: bool | None = None,
    callbacks: Callable[[str], Sequence[Callback]] | None = None,
    command: str = "fedgsp.compare",
    trust: bool = False,
) -> Comparison:
    """Compare methods on the same data, with the same seeds: how good, for whom, at what cost, and is it more than noise?

    Args:
        entries: Methods: names, `Method` objects, config files (their [method] counts) or `package.module:METHOD` texts.
            Finished runs: directories, or what `fedgsp.train` returned. Methods and runs may stand side by side.
        data: A source text, or a `FederatedData`; None: the data of the runs, or glyphs.
        model: A name, a callable or a module; None: the model of the runs, or small_cnn.
        task: Loss and metrics; None: those of the runs, or as the data are.
        rounds: Rounds of every method; None: those of the shortest run, or 30.
        seeds: Number of seeds: 3 means 0, 1 and 2.
        lr: Learning rate of every method; None: each method's own.
        clients: Use only this many clients of a source.
        holdout_clients: Number of clients that never train and are only evaluated.
        target: Count rounds, steps, traffic and time until this score. None: what the weakest method has at its end.
        fleet: Fleet that times are estimated for, a name in `fedgsp.cost.FLEETS`.
        workers: Worker processes of a run: a number, "auto", or 0 for none.
        out: Folder of the comparison: give it again to go on. None: nothing is kept.
        adjust: Changes the configuration of every run that is trained.
        progress: Show a bar; None: in notebooks and on terminals.
        callbacks: Gives the callbacks of a run, by its name.
        command: What is written down as the command that made it.
        trust: Let code that config files and runs from elsewhere name run.

    Returns:
        Tables, curves and a sentence on the noise; it shows itself in a notebook.

    Raises:
        InputError: Something cannot be had, or cannot be compared.

    Example:
        >>> import fedgsp
        >>> found = fedgsp.compare("fedavg", "fedgsp", data="glyphs:clients=10", rounds=1, seeds=1, workers=0)
        >>> sorted(found.scores)
        ['fedavg', 'fedgsp']
    """
    if fleet not in FLEETS:
        raise InputError(f"unknown fleet '{fleet}': {did_you_mean(fleet, FLEETS)}")
    if seeds < 1:
        raise InputError(f"`seeds=` must be at least 1, not {seeds}.")
    given = read_entries(entries, trust=trust)
    finished = read_finished(given.runs, trust=trust) if given.runs else []
    entrants, notes = from_runs(finished) if finished else ([], [])
    used = {
        str(run.directory): {"method": run.name, "seed": run.config.run.seed, "rounds": len(run.history)} for run in finished
    }
    origin = Origin("runs", command, finished[0].facts["data"], used) if finished else None
    with tempfile.TemporaryDirectory() if out is None else nullcontext(str(out)) as place:
        if given.methods:
            setting = _setting(finished, data, model, task, clients)
            count = rounds or min((len(run.history) for run in finished), default=ROUNDS)
            runner = StudyRunner(
                setting.data, DataFacts.of(setting.data, setting.source), Path(place), seeds=seeds, workers=workers,
                clients=clients, model=setting.model, task=setting.task, adjust=adjust,
                watch=callbacks or unit_bars(len(given.methods) * seeds, progress),
            )  # fmt: skip
            arm = Arm(setting.model_name, count, seeds)
            trained = run_methods(runner, given.methods, arm, lr=lr, holdout=holdout_clients)
            if finished:
                _check_alike(finished[0], runner.config(named("fedavg"), arm, 0, holdout=holdout_clients), setting.data)
                entrants, notes = _cut_alike([*_renamed(entrants, trained), *trained], notes)
            else:
                entrants = trained
            made = runner.origin(command, "compare")
            origin = made if origin is None else Origin("compare", command, made.data, {**used, **made.used})
        found = compared(entrants, CompareOptions(fleet, target), notes)
        assert origin is not None
        drawn = write_findings(found, origin, Path(place)) if out is not None else False
    return Comparison(found, entrants, None if out is None else Path(out), drawn)


@dataclass(frozen=True)
class _Setting:
    """What methods are trained on: as told, else as the finished runs had it."""

    data: FederatedData
    source: str
    model_name: str
    model: Callable[..., nn.Module] | nn.Module | None
    task: Task | None


def _setting(
    runs: Sequence[FinishedRun], data: Any, model: Any, task: Task | None, clients: int | None
) -> _Setting:  # fmt: skip
    first: RunResult | None = next((run.in_memory for run in runs if run.in_memory is not None), None)
    config = runs[0].config if runs else None
    if data is None and first is not None:
        data = first.run.data
    if data is None:
        data = config.data.source if config is not None else DataSection.source
        if data == IN_MEMORY:
            raise InputError("the runs were made on data in memory; to train methods beside them give it again: `data=...`.")
    if model is None:
        model = first.run.worker_setup.model.build if first is not None else None
        model = (config.model.name if config is not None else ModelSection.name) if model is None else model
    if task is None and first is not None:
        task = first.run.worker_setup.task
    if isinstance(data, str):
        seed = config.data.seed if config is not None else DataSection.seed
        count = config.data.clients if config is not None and clients is None else clients
        source, data = absolute(data), load(data, data_seed=seed, clients=count)
    elif isinstance(data, FederatedData):
        source = data.source or IN_MEMORY
    else:
        raise InputError(f"data is a source text or a FederatedData, not {type(data).__name__}.")
    named_model = model if isinstance(model, str) else "custom"
    return _Setting(data, source, named_model, None if isinstance(model, str) else model, task)


def _check_alike(run: FinishedRun, ours: RunConfig, data: FederatedData) -> None:
    """Methods that are trained now, and runs that were finished before, must be evaluated on the same samples."""
    theirs = run.config
    same = theirs.run.evaluate_on == "test" and theirs.run.holdout_clients == ours.run.holdout_clients
    if not same or theirs.data.validation != ours.data.validation or run.fingerprint != data.fingerprint:
        raise InputError(
            f"{run.directory} was not run on the data of this comparison (its fingerprint is {run.fingerprint[:12]}, here it "
            f"is {data.fingerprint[:12]}; its validation share or held-out clients may differ too), so it cannot be compared."
        )


def _renamed(runs: Sequence[Entrant], trained: Sequence[Entrant]) -> list[Entrant]:
    taken = {entrant.name for entrant in trained}
    return [Entrant(f"{e.name} (run)", e.traces, e.yields, e.score) if e.name in taken else e for e in runs]


def _cut_alike(entrants: Sequence[Entrant], notes: Sequence[str]) -> tuple[list[Entrant], list[str]]:
    lengths = {len(t.history) for e in entrants if not e.diverged for t in e.traces.values()}
    if len(lengths) < 2:
        return list(entrants), list(notes)
    rounds = min(lengths)
    said = f"The runs have different numbers of rounds: the first {rounds} of each are compared."
    return [
        Entrant(e.name, {s: cut_to(t, rounds) for s, t in e.traces.items()}, e.yields, e.score) for e in entrants
    ], list(dict.fromkeys([*notes, said]))  # fmt: skip


def _interval(value: Estimate) -> str:
    return f"{value.mean:.4f}" + ("" if value.half is None else f" ± {value.half:.4f}")


def _mean_curve(seeds: Sequence[Sequence[Mapping[str, Any]]], metric: str) -> list[tuple[float, float]]:
    rounds = sorted(set.intersection(*({e["round"] for e in lines if metric in e} for lines in seeds)))
    at = [{e["round"]: e[metric] for e in lines if metric in e} for lines in seeds]
    return [(float(r), added(values[r] for values in at) / len(at)) for r in rounds]
