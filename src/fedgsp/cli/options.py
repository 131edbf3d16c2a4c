"""From command-line options to a configuration: a file or the defaults, with what was said on the line in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedgsp.core.errors import InputError
from fedgsp.data.sources import absolute
from fedgsp.run.config import RunConfig, from_dict, read_config
from fedgsp.run.overlay import put, put_all
from fedgsp.study.entries import read_method

OPTIONS = {
    "rounds": "run.rounds", "seed": "run.seed", "workers": "run.workers", "device": "run.device",
    "eval_every": "run.eval_every", "target_accuracy": "run.target_accuracy", "stop_at_target": "run.stop_at_target",
    "holdout_clients": "run.holdout_clients", "fast": "run.fast",
    "data": "data.source", "data_seed": "data.seed", "clients": "data.clients", "validation": "data.validation",
    "standardise": "data.standardise", "transform": "data.transform",
    "model": "model.name", "init": "model.init",
    "engine": "engine.name", "address": "engine.address", "resources": "engine.resources",
    "hop_seconds": "engine.hop_seconds",
    "kappa": "method.planner.kappa", "order": "method.planner.order", "lr": "method.local.lr",
    "batch_size": "method.local.batch_size", "epochs": "method.local.epochs", "momentum": "method.local.momentum",
    "weight_decay": "method.local.weight_decay", "drop_last": "method.local.drop_last",
    "optim": "method.local.optim", "clip_norm": "method.local.clip_norm",
}  # fmt: skip
"""Which entry of a configuration an option sets; what is not given stays as the configuration has it."""


def build_config(file: Path | None, options: Mapping[str, Any], sets: Sequence[str] = (), *, trust: bool = False) -> RunConfig:
    """Overlay options on a configuration file (or the defaults).

    Args:
        file: A config.toml; None for the defaults.
        options: Values by the names in `OPTIONS`, and `method`, `growth`, `alpha`, `beta`; None means: not given. Other
            names are ignored.
        sets: PATH=VALUE texts into anything.
        trust: Whether code that the file names may run; what options name is the user's own word.

    Raises:
        InputError: An option makes no sense.
    """
    table = (read_config(file, trust=trust) if file is not None else RunConfig()).as_dict()
    if options.get("method") is not None:
        table["method"] = read_method(options["method"])[1].encode()
    for name, path in OPTIONS.items():
        if options.get(name) is not None:
            table.setdefault(path.split(".")[0], {})
            put(table, path, str(options[name]) if name == "init" else options[name])
    _set_growth(table, options.get("growth"), options.get("alpha"), options.get("beta"))
    put_all(table, sets)
    return _with_whole_paths(from_dict(table, str(file) if file else "the options"))


def _with_whole_paths(config: RunConfig) -> RunConfig:
    """Paths made absolute, so that a recorded run does not depend on where it was started."""
    init = config.model.init
    return replace(
        config,
        data=replace(config.data, source=absolute(config.data.source)),
        model=replace(config.model, init=str(Path(init).resolve()) if init else None),
    )


def _set_growth(table: dict[str, Any], kind: str | None, alpha: float | None, beta: int | None) -> None:
    """--growth, --alpha and --beta as entries of the planner's growth function."""
    if kind is not None:
        put(table, "method.planner.growth", _growth(kind, alpha, beta))
        return
    if alpha is not None:
        put(table, "method.planner.growth.alpha", alpha)
    if beta is not None:
        constant = table["method"]["planner"].get("growth", {}).get("kind") == "constant"
        put(table, f"method.planner.growth.{'count' if constant else 'beta'}", beta)


def _growth(kind: str, alpha: float | None, beta: int | None) -> dict[str, Any]:
    if kind in ("constant", "singletons"):
        if alpha is not None:
            raise InputError(f"--growth {kind} has no --alpha.")
        return {"kind": kind} if kind == "singletons" or beta is None else {"kind": kind, "count": beta}
    if kind == "length":
        if alpha is not None or beta is not None:
            raise InputError("--growth length has no --alpha and --beta; use --set method.planner.growth.length=4.")
        return {"kind": kind}
    if kind == "proportional":
        return {"kind": kind, "growth": _growth("log", alpha, beta)}
    rate = 2.0 if alpha is None and kind == "log" else alpha
    if rate is None:
        raise InputError(f"--growth {kind} needs --alpha, its rate of growth.")
    return {"kind": kind, "alpha": rate, "beta": 10 if beta is None else beta}
