"""Where studies get their runs from: found if they are finished, else trained.

A study asks first (`gather`), and looks at the figures later (`show`): so the same code that runs a study also says what it
will take (`paper/dry_runner.py`), and makes its pages anew from what is stored (`paper/report.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedgsp.core.errors import InputError
from fedgsp.core.tensors import digest as tensor_digest
from fedgsp.parts import code_of
from fedgsp.prepare import Once
from fedgsp.run.build import RunBuilder
from fedgsp.run.config import DataSection, ModelSection, RunConfig, RunSection
from fedgsp.run.files import write_whole
from fedgsp.run.forecast import expected_steps, timed_step
from fedgsp.run.reader import read_history
from fedgsp.run.versions import versions
from fedgsp.study.commit import source_commit
from fedgsp.study.findings import Origin
from fedgsp.study.units import computed_unit, digest, is_done, key_of, run_record, trace_unit

if TYPE_CHECKING:
    from torch import nn

    from fedgsp.data import FederatedData
    from fedgsp.method import Method
    from fedgsp.models import Task
    from fedgsp.run.callbacks import Callback
    from fedgsp.study.records import Arm, DataFacts, Trace
    from fedgsp.study.store import UnitStore

LONGEST_UNIT = 40 * 60
"""Seconds. A run that would take longer comes to a whole end on the way, so that what is done can be kept."""
WORTH_TIMING = 50_000
"""A run of fewer steps is never so long."""
NO_MODELS = "checkpoint/\n*.safetensors\nevents.jsonl\nplans.jsonl\nscores.jsonl\n.lock\n.*.tmp\n"
"""What git is asked to leave out of the runs' folders; where a store has all that is needed of them, it is everything."""


class StudyRunner:
    """Runs what a study asks for in folders below `out`/units, each once.

    Args:
        data: What is trained on. None: only what is in the store is given, and nothing is trained.
        facts: The data's source, fingerprint and sizes.
        out: Folder of the study.
        store: Where finished runs are kept. None: their folders are all there is.
        seeds: How many seeds every series has. None: as many as the series says.
        workers: Worker processes of a run.
        clients: How many clients of the data are used. None: all.
        model: The model, if it is given as an object; series then say "custom".
        task: Loss and metrics, if they are given as an object.
        adjust: Changes the configuration of every run.
        watch: Gives the callbacks of a run, by the name of its unit.
    """

    def __init__(
        self,
        data: FederatedData | None,
        facts: DataFacts,
        out: Path,
        *,
        store: UnitStore | None = None,
        seeds: int | None = None,
        workers: int | str = "auto",
        clients: int | None = None,
        model: Callable[..., nn.Module] | nn.Module | None = None,
        task: Task | None = None,
        adjust: Callable[[RunConfig], RunConfig] = lambda config: config,
        watch: Callable[[str], Sequence[Callback]] = lambda unit: (),
    ) -> None:
        self.facts, self.out, self.store = facts, out, store
        self.used: dict[str, dict[str, Any]] = {}
        self._builder = RunBuilder(None, model, task)
        self.put_data(data)
        self._clients, self._seeds, self._workers, self._adjust, self._watch = clients, seeds, workers, adjust, watch
        self._step_seconds: dict[tuple[str, type], float] = {}

    def put_data(self, data: FederatedData | None) -> None:
        """Train on this from now on; `facts` are of it."""
        self._data = None if data is None else replace(data, source=self.facts.source)
        self._builder = replace(self._builder, data=self._data, once=Once())

    @property
    def data(self) -> FederatedData:
        """What is trained on."""
        return self._needed("the data")

    @property
    def builder(self) -> RunBuilder:
        """Makes runs on this data; for a study that looks at more than a journal has."""
        return self._builder

    @property
    def score(self) -> str | None:
        """The metric of the task that was given. None: the data decide."""
        return None if self._builder.task is None else self._builder.task.score

    def seeds(self, arm: Arm) -> range:
        """The seeds of a series: as told, or as many as the series says."""
        count = arm.seeds if self._seeds is None else self._seeds
        return range(arm.first_seed, arm.first_seed + count)

    def data_seeds(self, count: int) -> range:
        """Seeds for what takes no training: as told, or so many."""
        return range(count if self._seeds is None else self._seeds)

    def config(self, method: Method, arm: Arm, seed: int, *, holdout: int = 0) -> RunConfig:
        """The configuration of one run of a series, evaluated on test samples."""
        return self._adjust(
            RunConfig(
                run=RunSection(rounds=arm.rounds, seed=seed, workers=self._workers, holdout_clients=holdout),
                data=DataSection(self.facts.source, clients=self._clients),
                model=ModelSection(arm.model),
                method=method,
            )
        )

    def traces(self, name: str, method: Method, arm: Arm, *, holdout: int = 0) -> list[Trace]:
        """A finished run for each seed of a series."""
        named_after = replace(method, name=name)
        return [self.trace(name, self.config(named_after, arm, seed, holdout=holdout)) for seed in self.seeds(arm)]

    def trace(self, name: str, config: RunConfig) -> Trace:
        """A finished run: read from the store, else from its folder, else trained.

        Args:
            name: What the study calls it.
            config: Its configuration.

        Returns:
            Its journal, and its seconds on the named fleets.
        """
        found = self._stored(config) or self._run(name, config)
        before = self.used.get(found.unit)
        if before is not None and before["rounds"] != config.run.rounds:  # the same run, looked at after fewer rounds
            before["also"] = {**before.get("also", {}), name: config.run.rounds}
            return found
        self.used[found.unit] = {"method": name, "model": config.model.name, "seed": config.run.seed,
                                 "rounds": config.run.rounds, "diverged": bool(found.diverged)}  # fmt: skip
        return found

    def computed(self, name: str, key: Mapping[str, Any], work: Callable[[], Any]) -> Any:
        """A piece of computing that is done once for this data and `key`.

        Args:
            name: What it is called.
            key: What it depends on beside the data.
            work: Does it; its result is plain data.

        Returns:
            The result.
        """
        unit = self.computing_unit(name, key)
        self.used[unit] = {"computing": name, **key}
        if self.store is not None and unit in self.store.units:
            return self.store.result(unit)
        self._needed(name)
        self._make_units()
        result = computed_unit(self.out / "units" / unit, work)
        if self.store is not None:
            told = {
                "computing": name,
                "key": dict(key),
                "data": asdict(self.facts),
                "versions": versions(),
                "commit": source_commit(),
            }
            self.store.add_result(unit, told, result)
        return result

    def origin(self, command: str, preset: str) -> Origin:
        """Where the figures of what was asked for here come from."""
        made = [versions()] if self.store is None else [self.store.units[unit]["versions"] for unit in self.used]
        return Origin(preset, command, asdict(self.facts), dict(self.used), merged(made))

    def folder(self, name: str, config: RunConfig) -> Path:
        """Where a run is trained: under the name that was first given to it."""
        units, key = self.out / "units", self._key(config)
        known = sorted(units.glob(f"*-{key}"))
        return known[0] if known else units / f"{slug(name)}-{config.model.name}-{key}"

    def _key(self, config: RunConfig) -> str:
        """What names the folder of a run: for objects and code of the user's, also what they are."""
        key, theirs = key_of(config, self.facts.fingerprint), code_of(config.method)
        if self._builder.model is None and self._builder.task is None and not theirs:
            return key
        built = self._builder.build(replace(config, run=replace(config.run, workers=0)))
        return digest([key, theirs, tensor_digest(built.initial_model), built.worker_setup.task.name])

    def computing_unit(self, name: str, key: Mapping[str, Any]) -> str:
        """The name of a piece of computing."""
        return f"{slug(name)}-{digest({'data': self.facts.fingerprint, **key})}"

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
            self._step_seconds[kind] = timed_step(self._builder.build(config))
        return self._step_seconds[kind]

    def stops(self, config: RunConfig) -> list[int]:
        """Rounds at which a long run comes to a whole end on the way: none for most."""
        steps = self.steps(config)
        if steps < WORTH_TIMING:
            return []
        seconds = steps * self.step_seconds(config) / max(1, self._builder.build(config).workers())
        count = math.ceil(seconds / LONGEST_UNIT)
        ends = (round(config.run.rounds * part / count) for part in range(1, count))
        every = config.run.eval_every
        return sorted({end // every * every for end in ends if end >= every})

    def _stored(self, config: RunConfig) -> Trace | None:
        return None if self.store is None else self.store.find(key_of(config, self.facts.fingerprint), config.run.rounds)

    def _run(self, name: str, config: RunConfig) -> Trace:
        """Train it (or go on, or read what its folder has), and put it into the store."""
        self._needed(f"{name}, {config.model.name}, seed {config.run.seed}, {config.run.rounds} rounds")
        self._make_units()
        directory = self.folder(name, config)
        stops = [] if is_done(directory, config.run.rounds) else self.stops(config)
        watching = self._watch(f"{name}, {config.model.name}, seed {config.run.seed}")
        found = trace_unit(config, directory, replace(self._builder, method=config.method), watching, stops)
        if self.store is None:
            return found
        record = run_record(config, directory, asdict(self.facts), found.diverged)
        lines = read_history(directory) if found.diverged else found.history
        unit = self.store.add_run(f"{slug(name)}-{config.model.name}", record, replace(found, history=lines))
        return replace(found, unit=unit)

    def _needed(self, what: str) -> FederatedData:
        """The data, to make `what` of it; refused where there is none."""
        if self._data is None:
            raise InputError(
                f"{self.out} lacks what its studies need ({what}), and nothing is trained to make a page; give the study's own "
                f"command again."
            )
        return self._data

    def _make_units(self) -> None:
        """The folder of units, which asks git to leave out what need not be kept."""
        if self.store is not None:
            self.store.make_units()
            return
        units = self.out / "units"
        units.mkdir(parents=True, exist_ok=True)
        if not (units / ".gitignore").exists():
            write_whole(units / ".gitignore", NO_MODELS.encode())


def merged(made: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Versions of several runs as one table; where they differ, all of them."""
    names = dict.fromkeys(name for one in made for name in one)
    return {name: " and ".join(dict.fromkeys(one[name] for one in made if name in one)) for name in names}


def slug(name: str) -> str:
    """A name that a folder can have."""
    return "".join(letter if letter.isalnum() or letter in "-_=.,+" else "-" for letter in name).strip("-")
