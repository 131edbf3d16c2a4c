"""Where studies get their units from: a lab runs what is asked for; a rehearsal only counts it.

A study asks first (`gather`), and looks at the figures later (`show`): so the same code that runs a study also says what it
will take.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedgsp.core.errors import InputError
from fedgsp.data import FederatedData
from fedgsp.method import Method
from fedgsp.methods import named
from fedgsp.plan import Constant, Grouped, Singletons
from fedgsp.prepare import Once
from fedgsp.run.config import DataSection, ModelSection, RunConfig, RunSection
from fedgsp.run.drive import Objects
from fedgsp.run.files import write_whole
from fedgsp.run.forecast import expected_steps, timed_step
from fedgsp.run.observers import Observer
from fedgsp.study.findings import Origin
from fedgsp.study.grid import parse_grid, points
from fedgsp.study.grids import GRIDS, LR
from fedgsp.study.presets import Arm, Preset
from fedgsp.study.tune import SCHEMA as TUNE_SCHEMA
from fedgsp.study.tune import VALIDATION, tune
from fedgsp.study.units import UNIT, Trace, computed_unit, digest, is_done, key_of, trace_unit

LONGEST_UNIT = 40 * 60
"""Seconds. A run that would take longer comes to a whole end on the way, so that what is done can be kept."""
WORTH_TIMING = 50_000
"""A run of fewer steps is never so long."""
NO_MODELS = "checkpoint/\n*.safetensors\nevents.jsonl\nplans.jsonl\nscores.jsonl\n.lock\n.*.tmp\n"


def check_data(data: FederatedData) -> None:
    """Refuse data that the paper's studies say nothing of."""
    if not data.classes:
        raise InputError("the paper's studies are about classes; for other targets use fedgsp compare, which compares losses.")
    if data.test.sizes.sum() == 0:
        raise InputError("no client has a test sample, so there is nothing to study; keep some, with test=0.1 in the source.")


@dataclass(frozen=True)
class Tuned:
    """What tuning chose, on validation samples."""

    method: Method
    label: str


class Lab:
    """Runs units in folders below `out`/units, each once."""

    def __init__(
        self,
        preset: Preset,
        data: FederatedData,
        source: str,
        out: Path,
        *,
        seeds: int | None = None,
        workers: int | str | None = None,
        methods: Sequence[str] = (),
        clients: int | None = None,
        adjust: Callable[[RunConfig], RunConfig] = lambda config: config,
        watch: Callable[[str], Sequence[Observer]] = lambda unit: (),
    ) -> None:
        self.preset, self.source, self.out, self.methods = preset, source, out, tuple(methods)
        self.data = replace(data, source=source)
        self._objects = Objects(data=self.data, once=Once())
        self.fingerprint = data.fingerprint
        self.used: dict[str, dict[str, Any]] = {}
        self._clients, self._seeds, self._adjust, self._watch = clients, seeds, adjust, watch
        self._workers = preset.workers if workers is None else workers
        self._step_seconds: dict[tuple[str, type], float] = {}

    def seeds(self, arm: Arm) -> range:
        """The seeds of a series: as told, or as many as the preset says."""
        return range(arm.seeds if self._seeds is None else self._seeds)

    def data_seeds(self, count: int) -> range:
        """Seeds for what takes no training: as told, or so many."""
        return range(count if self._seeds is None else self._seeds)

    def method(self, name: str) -> Method:
        """A named method with the preset's values in place."""
        method, preset = named(name), self.preset
        local = replace(method.local, lr=preset.lr, batch_size=preset.batch_size)
        planner = method.planner
        if isinstance(planner, Grouped):
            growth = planner.growth
            if isinstance(growth, Constant):
                growth = Constant(preset.beta)
            elif not isinstance(growth, Singletons):
                growth = replace(growth, beta=preset.beta)  # type: ignore[type-var]
            kappa = planner.kappa if getattr(method.server, "needs_everybody", False) else preset.kappa_default
            planner = replace(planner, kappa=kappa, growth=growth)
        return replace(method, local=local, planner=planner)

    def config(self, method: Method, arm: Arm, seed: int, *, holdout: int = 0) -> RunConfig:
        """One run of a series, judged on test samples."""
        return self._adjust(
            RunConfig(
                run=RunSection(rounds=arm.rounds, seed=seed, workers=self._workers, holdout_clients=holdout),
                data=DataSection(self.source, clients=self._clients),
                model=ModelSection(arm.model),
                method=method,
            )
        )

    def traces(self, name: str, method: Method, arm: Arm, *, holdout: int = 0) -> list[Trace]:
        """A finished run for each seed of a series."""
        named_after = replace(method, name=name)
        return [self.trace(name, self.config(named_after, arm, seed, holdout=holdout)) for seed in self.seeds(arm)]

    def trace(self, name: str, config: RunConfig) -> Trace:
        """A finished run."""
        directory = self.folder(name, config)
        self.make_units()
        done = is_done(directory, config.run.rounds)
        watching = self._watch(f"{name}, {config.model.name}, seed {config.run.seed}")
        found = trace_unit(config, directory, self._objects, watching, [] if done else self.legs(config))
        self.used[directory.name] = {"method": name, "model": config.model.name, "seed": config.run.seed,
                                     "rounds": config.run.rounds, "diverged": bool(found.diverged)}  # fmt: skip
        return found

    def tuned(self, name: str, arm: Arm) -> Tuned:
        """The method with the best values of its grid, chosen on validation samples with seed 0."""
        self.make_units()
        config, grid = self._tuning(name, arm)
        watch = self._watch
        found = tune(
            config, grid, self._tuning_folder(name, config), objects=self._objects,
            observers=lambda unit: watch(f"tuning {name}: {unit}"),
        )  # fmt: skip
        return Tuned(found.best.point.method, found.best.point.label)

    def computed(self, name: str, key: Mapping[str, Any], work: Callable[[], Any]) -> Any:
        """A piece of computing that is done once for this data and `key`."""
        self.make_units()
        directory = self.computing_folder(name, key)
        self.used[directory.name] = {"computing": name, **key}
        return computed_unit(directory, work)

    def origin(self, command: str) -> Origin:
        """Where the figures of what was run here come from."""
        data = {"source": self.source, "fingerprint": self.fingerprint, "clients": len(self.data), "samples": self.data.samples}
        return Origin(self.preset.name, command, data, dict(self.used))

    def folder(self, name: str, config: RunConfig) -> Path:
        """Where a run's unit is: under the name that was first given to it."""
        units, key = self.out / "units", key_of(config, self.fingerprint)
        known = sorted(units.glob(f"*-{key}"))
        return known[0] if known else units / f"{_slug(name)}-{config.model.name}-{key}"

    def computing_folder(self, name: str, key: Mapping[str, Any]) -> Path:
        """Where a piece of computing is."""
        return self.out / "units" / f"{_slug(name)}-{digest({'data': self.fingerprint, **key})}"

    def make_units(self) -> None:
        """The folder of units, which asks git to leave models and event logs out."""
        units = self.out / "units"
        units.mkdir(parents=True, exist_ok=True)
        if not (units / ".gitignore").exists():
            write_whole(units / ".gitignore", NO_MODELS.encode())

    def steps(self, config: RunConfig) -> int:
        """SGD steps that a run will take."""
        data = self.data
        if config.data.validation:
            data = data.with_validation(config.data.validation, config.data.seed)
        training, _ = data.holdout(config.run.holdout_clients, config.data.seed)
        sizes = data.train.sizes[training]
        return expected_steps(config.method, config.run.rounds, sizes[sizes > 0])

    def step_seconds(self, config: RunConfig) -> float:
        """Seconds of one SGD step, measured once for every model and local rule."""
        kind = (config.model.name, type(config.method.local))
        if kind not in self._step_seconds:
            self._step_seconds[kind] = timed_step(self._objects.prepare(config))
        return self._step_seconds[kind]

    def legs(self, config: RunConfig) -> list[int]:
        """Rounds at which a long run comes to a whole end on the way: none for most."""
        steps = self.steps(config)
        if steps < WORTH_TIMING:
            return []
        seconds = steps * self.step_seconds(config) / max(1, self._objects.prepare(config).workers())
        count = math.ceil(seconds / LONGEST_UNIT)
        ends = (round(config.run.rounds * leg / count) for leg in range(1, count))
        every = config.run.eval_every
        return sorted({end // every * every for end in ends if end >= every})

    def _tuning(self, name: str, arm: Arm) -> tuple[RunConfig, Sequence[str]]:
        grid = self.preset.grid or GRIDS.get(name, (LR,))
        return self.config(self.method(name), replace(arm, rounds=self.preset.tune_rounds), 0), grid

    def _tuning_folder(self, name: str, config: RunConfig) -> Path:
        key = digest(["tune", key_of(config, self.fingerprint)])  # not the key of the run with the same values
        return self.out / "units" / f"tune-{_slug(name)}-{config.model.name}-{key}"


@dataclass(frozen=True)
class Planned:
    """A unit that a study will want: its steps, whether it is finished already, and a step's seconds."""

    name: str
    folder: str
    rounds: int
    steps: int
    step_seconds: float
    done: bool

    @property
    def seconds(self) -> float:
        """Of one core, if it is not finished."""
        return 0.0 if self.done else self.steps * self.step_seconds


class Rehearsal(Lab):
    """Runs nothing: `planned` has every unit that a study asked for, once."""

    def __init__(self, *arguments: Any, timed: bool = False, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.planned: dict[str, Planned] = {}
        self._timed = timed

    def trace(self, name: str, config: RunConfig) -> Trace:
        """Count a run."""
        directory = self.folder(name, config)
        label = f"{name}, {config.model.name}, seed {config.run.seed}"
        self._count(key_of(config, self.fingerprint), label, directory, config)
        return Trace(directory.name, [], {}, {}, "not run")

    def tuned(self, name: str, arm: Arm) -> Tuned:
        """Count every point of the grid; what it will choose is only known if it is finished."""
        config, grid = self._tuning(name, arm)
        place = self._tuning_folder(name, config)
        axes = parse_grid(grid, config.method)
        all_points = list(points(axes, config.method))
        for point in all_points:
            unit = replace(config, method=point.method, data=replace(config.data, validation=VALIDATION))
            directory = place / point.label / "seed-0"
            self._count(str(directory), f"tuning {name}, {config.model.name}: {point.label}", directory, unit)
        with suppress(OSError, ValueError, KeyError):
            told = json.loads((place / "tune.json").read_text())
            if told["schema"] == TUNE_SCHEMA:  # an older version chose by another figure
                return next(Tuned(p.method, p.label) for p in all_points if p.values == told["best"]["values"])
        other = config.method.local.lr * (1 + 1e-9)  # stands for the one that will be chosen: a unit of its own
        return Tuned(replace(config.method, local=replace(config.method.local, lr=other)), "?")

    def computed(self, name: str, key: Mapping[str, Any], work: Callable[[], Any]) -> Any:
        """Count a piece of computing, which takes seconds at most."""
        directory = self.computing_folder(name, key)
        self.planned[directory.name] = Planned(name, directory.name, 0, 0, 0.0, (directory / UNIT).exists())
        return {}

    def _count(self, key: str, name: str, directory: Path, config: RunConfig) -> None:
        known = self.planned.get(key)
        if known is None or known.rounds < config.run.rounds:
            done = is_done(directory, config.run.rounds)
            seconds = self.step_seconds(config) if self._timed and not done else 0.0
            self.planned[key] = Planned(name, directory.name, config.run.rounds, self.steps(config), seconds, done)


def _slug(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_=.,+" else "-" for letter in name).strip("-")
