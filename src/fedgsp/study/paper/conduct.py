"""`fedgsp.study`: the paper's studies, run or only estimated, for the command line and for Python."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedgsp.core.errors import InputError
from fedgsp.data import load
from fedgsp.data.cache import Progress, silent
from fedgsp.progress import unit_bars
from fedgsp.run.overlay import changed
from fedgsp.study.findings import Findings, write_findings
from fedgsp.study.paper.catalog import PICTURES, STUDIES, studies_named
from fedgsp.study.paper.dry_runner import DryRunner, PlannedUnit
from fedgsp.study.paper.presets import Preset, asked_preset
from fedgsp.study.paper.runner import PaperRunner, check_data
from fedgsp.study.paper.table import all_methods
from fedgsp.study.records import DataFacts
from fedgsp.study.store import UnitStore, require_parquet

if TYPE_CHECKING:
    from fedgsp.data import FederatedData
    from fedgsp.run.callbacks import Callback

Watcher = Callable[[int], Callable[[str], Sequence["Callback"]]]
"""Gives what watches runs, by how many of them there will be."""
DECIDED = {
    "run.rounds": "rounds", "run.seed": "seeds", "run.workers": "workers", "data.source": "data", "model.name": "model",
    "method.name": "methods",
}  # fmt: skip
"""Entries that a study decides itself, and the option that changes each: its tables would say something else."""


@dataclass(frozen=True)
class StudyRequest:
    """What was asked for: as the options of `fedgsp study`."""

    names: Sequence[str]
    preset: str = "smoke"
    data: str | None = None
    model: str | None = None
    rounds: int | None = None
    seeds: int | None = None
    out: Path | None = None
    workers: int | str | None = None
    methods: Sequence[str] | None = None
    sets: Sequence[str] = field(default_factory=tuple)

    @property
    def place(self) -> Path:
        """The folder of the study."""
        return self.out or Path("runs") / f"study-{self.preset}"

    def command(self) -> str:
        """The command that gives the same again."""
        methods = None if self.methods is None else ",".join(self.methods)
        options = {"preset": self.preset, "data": self._source(), "model": self.model, "rounds": self.rounds,
                   "seeds": self.seeds, "out": self.out, "methods": methods}  # fmt: skip
        words = ["fedgsp", "study", *self.names]
        for option, value in options.items():
            words += [] if value is None else [f"--{option}", str(value)]
        for text in self.sets:
            words += ["--set", text]
        return shlex.join(words)

    def check(self) -> list[str]:
        """The studies' names; refused is what makes no sense."""
        for text in self.sets:
            path = text.partition("=")[0].strip()
            if path in DECIDED:
                raise InputError(f"`sets=` cannot change {path} in a study; use `{DECIDED[path]}=`.")
        wanted = studies_named(self.names)
        if self.seeds is not None and self.seeds < 1:
            raise InputError(f"`seeds=` must be at least 1, not {self.seeds}.")
        return wanted

    def chosen(self) -> Preset:
        """The preset with what was asked for in place."""
        return asked_preset(self.preset, self.model, self.rounds)

    def _source(self) -> str:
        return self.data or self.chosen().data

    def entrants(self) -> tuple[str, ...]:
        """The methods of studies that take any."""
        return () if self.methods is None else all_methods() if list(self.methods) == ["all"] else tuple(self.methods)

    def opened(self, loading: Progress = silent, *, trained: bool = True) -> tuple[FederatedData, DataFacts]:
        """The data, once everything else was found to make sense; `loading` is told how far a long reading has come."""
        self.chosen()
        self.check()
        if trained:
            require_parquet()
        federation = load(self._source(), progress=loading)
        check_data(federation)
        return federation, DataFacts.of(federation, self._source())

    def options(self, store: UnitStore) -> dict[str, Any]:
        """What every runner is told."""
        return {
            "store": store, "seeds": self.seeds, "workers": self.workers, "methods": self.entrants(),
            "adjust": lambda config: changed(config, self.sets),
        }  # fmt: skip


def estimate_study(asked: StudyRequest, opened: tuple[FederatedData, DataFacts]) -> dict[str, list[PlannedUnit]]:
    """What studies will train, with the time of a step measured; a unit that several want is with the first."""
    runner = DryRunner(asked.chosen(), *opened, asked.place, timed=True, **asked.options(UnitStore(asked.place)))
    return _planned(runner, asked.check())


def conduct(
    asked: StudyRequest,
    opened: tuple[FederatedData, DataFacts],
    watch: Watcher,
    done: Callable[[str, Findings, bool], None] | None = None,
) -> dict[str, Findings]:
    """Run studies one after the other: train what is missing, write the findings.

    Args:
        asked: What to run.
        opened: The data, and what pages say of it.
        watch: Gives what watches the runs.
        done: Is called after each study, with whether its figures were drawn.
    """
    chosen, wanted, (federation, facts) = asked.chosen(), asked.check(), opened
    store, place = UnitStore(asked.place), asked.place
    options = asked.options(store)
    dry = DryRunner(chosen, federation, facts, place, timed=False, **options)
    _planned(dry, wanted)
    options["watch"] = watch(sum(not unit.done and unit.rounds > 0 for unit in dry.planned.values()))
    record = {
        "preset": asked.preset, "model": asked.model, "rounds": asked.rounds, "seeds": asked.seeds,
        "methods": list(asked.entrants()), "set": list(asked.sets), "command": asked.command(), "data": asdict(facts),
    }  # fmt: skip
    told: dict[str, Findings] = {}
    for one in wanted:
        runner = PaperRunner(chosen, federation, facts, place, **options)
        try:
            found = STUDIES[one].show(runner, STUDIES[one].gather(runner))
            store.add_study(one, record)
        finally:
            store.save()
        drawn = write_findings(found, runner.origin(asked.command(), asked.preset), place / one, endings=PICTURES)
        told[one] = found
        if done is not None:
            done(one, found, drawn)
    return told


def _planned(runner: DryRunner, wanted: Sequence[str]) -> dict[str, list[PlannedUnit]]:
    by_study = {}
    for one in wanted:
        before = set(runner.planned)
        STUDIES[one].gather(runner)
        by_study[one] = [unit for key, unit in runner.planned.items() if key not in before]
    return by_study


def study(
    *names: str,
    preset: str = "smoke",
    data: str | None = None,
    model: str | None = None,
    rounds: int | None = None,
    seeds: int | None = None,
    out: str | Path | None = None,
    workers: int | str | None = None,
    methods: Sequence[str] | None = None,
    sets: Sequence[str] = (),
    progress: bool | None = None,
) -> dict[str, Findings]:
    """Reproduce the paper's figures, tables and claims. Call it again to go on; finished runs are reused.

    Args:
        names: cpd, curves, growth, kappa, table, cost-to-target, all (these six), rivals, fleets, ours, skew, few-clients,
            adaptive, ablation, advice or robustness.
        preset: Settings: "smoke" (minutes), "laptop" (hours) or "paper".
        data: A data source; None: the preset's.
        model: Use only this model; None: the preset's models.
        rounds: Rounds of every run; None: the preset's.
        seeds: Number of seeds; None: the preset's.
        out: Folder of the study; None: runs/study-PRESET.
        workers: Worker processes of a run; None: the preset's.
        methods: Methods of the studies table and rivals; None: the study's own.
        sets: PATH=VALUE texts that change an entry of every run's configuration.
        progress: Show a bar; None: in notebooks and on terminals.

    Returns:
        The findings of every study: tables, figures and facts.

    Raises:
        InputError: There is no such study or preset, or pyarrow is not installed.
    """
    place = None if out is None else Path(out)
    asked = StudyRequest(names, preset, data, model, rounds, seeds, place, workers, methods, tuple(sets))
    return conduct(asked, asked.opened(), lambda units: unit_bars(units, progress))
