"""A run's configuration: complete, resolved, and enough (with the data) to repeat the run."""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import tomli_w

from fedgsp.core.errors import InputError, did_you_mean
from fedgsp.core.files import read_regular
from fedgsp.core.params import hints_of
from fedgsp.core.seeds import LARGEST_SEED
from fedgsp.data.sources import FINISH, parse, with_finish
from fedgsp.method import Method
from fedgsp.methods import decode_method, named
from fedgsp.parts import checked
from fedgsp.run.trust import Trust, check_trusted

SCHEMA = 1
VALIDATION = 0.1
"""The share of training samples that is kept for choosing, where the configuration does not say."""


@dataclass(frozen=True)
class RunSection:
    """[run]: how long, with which seed, on what, and how it is evaluated.

    Attributes:
        rounds: Number of rounds.
        seed: Seed of initial weights, plans and batches.
        workers: Worker processes: a number, "auto", or 0 for none.
        device: "cpu", "cuda", "cuda:N" or "mps".
        eval_every: Evaluate the model every so many rounds.
        target_accuracy: Report when this accuracy is first reached.
        stop_at_target: Stop training once `target_accuracy` is reached.
        holdout_clients: Number of clients that never train and are only evaluated.
        evaluate_on: The samples that the figures are about; on "validation" test samples are not looked at, for tuning.
        fast: Compiled training steps: where possible ("auto"), or an error without ("on"), or never ("off").
        checkpoint_every: Keep the checkpoint of every so many rounds, beside the last two; 0: only these. None: enough to go
            back 1, 2, 4, 8, ... rounds.
    """

    rounds: int = 60
    seed: int = 0
    workers: int | str = "auto"
    device: str = "cpu"
    eval_every: int = 1
    target_accuracy: float | None = None
    stop_at_target: bool = False
    holdout_clients: int = 0
    evaluate_on: Literal["test", "validation"] = "test"
    fast: Literal["auto", "on", "off"] = "auto"
    checkpoint_every: int | None = None


@dataclass(frozen=True)
class DataSection:
    """[data]: where the samples come from.

    Attributes:
        source: A source text, such as "glyphs:clients=100" or "npz:FILE". In a file, `standardise` and `transform` may stand
            beside it; they are options of the source.
        seed: Seed of generated data, splits and subsets.
        clients: Use only this many clients; None: all.
        validation: Share of the training samples kept for choosing settings.
    """

    source: str = "glyphs"
    seed: int = 0
    clients: int | None = None
    validation: float = 0.0


@dataclass(frozen=True)
class ModelSection:
    """[model]: what is trained.

    Attributes:
        name: A name, or package.module:callable.
        init: Weights to start from, a .safetensors file; None: drawn with the run's seed.
    """

    name: str = "small_cnn"
    init: str | None = None


@dataclass(frozen=True)
class EngineSection:
    """[engine]: where chains run. Never decides a bit.

    Attributes:
        name: "local", or "ray" for a Ray cluster (docs/ray.md).
        address: The cluster's; None: RAY_ADDRESS, else a new one on this machine.
        resources: What one worker takes of the cluster, such as "cpu=1,gpu=0.25".
        data: How samples get to the workers.
        hop_seconds: Replace a worker that trains one client for longer than this, and train its chain again; None: never.
            It needs workers. In a deployment [deploy] has limits of its own.
    """

    name: Literal["local", "ray"] = "local"
    address: str | None = None
    resources: str | None = None
    data: Literal["auto", "files", "store", "shards"] = "auto"
    hop_seconds: float | None = None

    def changed(self, entries: Mapping[str, Any]) -> EngineSection:
        """The same with some entries in place of what was said; those that are None were not said."""
        said = {name: value for name, value in entries.items() if value is not None}
        if not said:
            return self
        before = _without_none(asdict(self if said.get("name") != "local" else EngineSection(hop_seconds=self.hop_seconds)))
        changed: EngineSection = section(EngineSection, {**before, **said}, "[engine]")
        return changed


@dataclass(frozen=True)
class RunConfig:
    """A run as text: with the data, enough to repeat it. `RunBuilder.build` makes a `Run` of it.

    The defaults of its sections are the defaults of `fedgsp.train` and of the command line.

    Attributes:
        run: How long, with which seed, on what, and how it is evaluated.
        data: Where the samples come from.
        model: What is trained.
        method: Planner, local rule, server rule and, rarely, a preparation.
        engine: Where chains run.

    Raises:
        InputError: An entry makes no sense.
    """

    run: RunSection = field(default_factory=RunSection)
    data: DataSection = field(default_factory=DataSection)
    model: ModelSection = field(default_factory=ModelSection)
    method: Method = field(default_factory=lambda: named("fedgsp"))
    engine: EngineSection = field(default_factory=EngineSection)

    def __post_init__(self) -> None:
        run, data = self.run, self.data
        limit = self.engine.hop_seconds
        if limit is not None and not (math.isfinite(limit) and limit > 0):
            raise InputError(f"hop_seconds must be a number of seconds above 0, not {limit}.")
        if self.engine.name == "local" and replace(self.engine, hop_seconds=None) != EngineSection():
            raise InputError("an address, resources and placed data are for a cluster: say `engine='ray'` too.")
        if self.engine.name == "ray" and run.workers == 0:
            raise InputError("`engine='ray'` needs workers: a number, or auto for as many as the cluster has room for.")
        _at_least("rounds", run.rounds, 1)
        _at_least("eval_every", run.eval_every, 1)
        _at_least("holdout_clients", run.holdout_clients, 0)
        _at_least("checkpoint_every", run.checkpoint_every or 0, 0)
        for name, seed in (("seed", run.seed), ("data seed", data.seed)):
            if not 0 <= seed <= LARGEST_SEED:
                raise InputError(f"the {name} must be a whole number from 0 to {LARGEST_SEED}, not {seed}.")
        if isinstance(run.workers, str) and run.workers != "auto":
            raise InputError(f"workers must be a number or 'auto', not '{run.workers}'.")
        if isinstance(run.workers, int):
            _at_least("workers", run.workers, 0)
        target = run.target_accuracy
        if target is not None and not (math.isfinite(target) and 0 < target <= 1):
            raise InputError(f"the target accuracy must be above 0 and at most 1, not {target}.")
        if run.stop_at_target and target is None:
            raise InputError("stop_at_target needs a target_accuracy.")
        if not 0 <= data.validation < 1:
            raise InputError(f"validation must be a fraction from 0 up to 1, not {data.validation}.")
        if run.evaluate_on == "validation" and not data.validation:
            raise InputError("evaluate_on = 'validation' needs a validation part: set [data] validation, to 0.1 say.")
        if data.clients is not None:
            _at_least("clients", data.clients, 1)

    def on_validation(self) -> RunConfig:
        """The same run, evaluated on a validation part and on nothing else."""
        data = self.data if self.data.validation else replace(self.data, validation=VALIDATION)
        run = replace(self.run, evaluate_on="validation", target_accuracy=None, stop_at_target=False, holdout_clients=0)
        return replace(self, run=run, data=data)

    def as_dict(self) -> dict[str, Any]:
        """Plain data without empty entries, for TOML and JSON."""
        sections = {name: _without_none(asdict(getattr(self, name))) for name in ("run", "data", "model")}
        if self.engine != EngineSection():
            sections["engine"] = _without_none(asdict(self.engine))
        return {"schema": SCHEMA, **sections, "method": self.method.encode()}

    def to_toml(self) -> str:
        """The text of config.toml."""
        return tomli_w.dumps(self.as_dict())

    def identity(self, fingerprint: str) -> str:
        """A digest of what decides the bits of the model: not of how many rounds, how many workers, or what is reported."""
        table = self.as_dict()
        held_out = self.run.holdout_clients
        decisive = {
            "run": {key: table["run"][key] for key in ("seed", "device")},
            "holdout": [held_out, self.data.seed] if held_out else None,  # the data's seed draws who is held out
            "data": fingerprint,
            "model": table["model"],
            "method": {key: value for key, value in table["method"].items() if key != "name"},
        }
        if self.method.preparation is not None:
            decisive["preparation_seed"] = self.data.seed
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def parse_toml(text: str, where: str) -> RunConfig:
    """A configuration from TOML text, refused with a sentence where it makes no sense."""
    return from_dict(_tables(text, where), where)


def read_config(
    path: Path, method: Method | None = None, *, trust: Trust = False, unread: frozenset[str] = frozenset()
) -> RunConfig:
    """A configuration from a file.

    Args:
        path: The file.
        method: Given in Python, takes the place of what the file says, which may not be found.
        trust: Whether code that the file names may run (`fedgsp.run.trust`).
        unread: Sections in whose place something was given in Python: code that they name does not run.

    Raises:
        InputError: It cannot be read, makes no sense, or names code that nobody trusts.
    """
    try:
        text = read_regular(path).decode()
    except OSError as error:
        raise InputError(f"cannot read the configuration {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file in UTF-8.") from error
    table = _tables(text, str(path))
    check_trusted(path, {name: value for name, value in table.items() if name not in unread}, trust)
    return from_dict(table, str(path), method)


def _tables(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{where} is not valid TOML: {error}.") from error


def from_dict(table: dict[str, Any], where: str, method: Method | None = None) -> RunConfig:
    """A configuration from plain data."""
    schema = table.get("schema", SCHEMA)
    if schema != SCHEMA:
        raise InputError(f"{where} has schema {schema}; this version of fedgsp reads schema {SCHEMA}.")
    sections = {"run": RunSection, "data": DataSection, "model": ModelSection, "engine": EngineSection}
    table = _with_finished_data(table, where)
    for name in table.keys() - sections.keys() - {"schema", "method"}:
        raise InputError(f"{where} has no section '{name}': {did_you_mean(name, [*sections, 'method'])}")
    values: dict[str, Any] = {name: section(cls, table.get(name, {}), f"{where} [{name}]") for name, cls in sections.items()}
    if method is not None:
        values["method"] = method
    elif "method" in table:
        values["method"] = decode_method(table["method"])
    return RunConfig(**values)


def _with_finished_data(table: dict[str, Any], where: str) -> dict[str, Any]:
    """[data] standardise and transform are options of the source: there they stand wherever a source is named."""
    data = table.get("data")
    if not isinstance(data, dict) or not any(name in data for name in FINISH):
        return table
    standardise, transform = (data.get(name) for name in FINISH)
    source = data.get("source", DataSection.source)
    if not isinstance(transform, str | None) or not isinstance(standardise, str | bool | None) or not isinstance(source, str):
        raise InputError(f"{where} [data]: standardise is true, false or 'client', and transform a text.")
    rest = {name: value for name, value in data.items() if name not in FINISH}
    return {**table, "data": {**rest, "source": str(with_finish(parse(source), standardise, transform))}}


def section(cls: type, table: Any, where: str) -> Any:
    """A frozen dataclass of settings from its table, refused with a sentence where it makes no sense."""
    if not isinstance(table, dict):
        raise InputError(f"{where} must be a table.")
    hints = hints_of(cls)
    names = [f.name for f in fields(cls)]
    for name in table:
        if name not in names:
            raise InputError(f"{where} has no entry '{name}': {did_you_mean(name, names)}")
    return cls(**{name: checked(value, hints[name], f"{where} {name}") for name, value in table.items()})


def _without_none(table: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if value is not None}


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise InputError(f"{name} must be at least {least}, not {value}.")
