"""From command-line options to a configuration: a file or the defaults, with what was said on the line in place."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedgsp.core.errors import InputError
from fedgsp.data.sources import absolute
from fedgsp.methods import named
from fedgsp.run.config import RunConfig, from_dict, read_config


def build_config(
    file: Path | None, sections: dict[str, dict[str, Any]], method: str | None, parts: dict[str, Any], sets: list[str]
) -> RunConfig:
    """Overlay options on a configuration file (or the defaults).

    `sections` are entries of [run], [data], [model] and [engine]; `parts` are paths into [method] such as `local.lr`; `sets`
    are PATH=VALUE texts into anything. None means: not said.
    """
    base = read_config(file) if file is not None else RunConfig()
    table = base.as_dict()
    if method is not None:
        table["method"] = named(method).encode()
    for section, entries in sections.items():
        table.setdefault(section, {}).update({name: value for name, value in entries.items() if value is not None})
    constant = table["method"]["planner"].get("growth", {}).get("kind") == "constant"
    for path, value in parts.items():
        if value is not None and path == "planner.growth.beta" and constant:
            _place(table, "method.planner.growth.count", value)
        elif value is not None:
            _place(table, f"method.{path}", value)
    _set(table, sets)
    return _with_whole_paths(from_dict(table, str(file) if file else "the options"))


def changed(config: RunConfig, sets: list[str]) -> RunConfig:
    """The configuration with PATH=VALUE texts put in place."""
    if not sets:
        return config
    table = config.as_dict()
    _set(table, sets)
    return from_dict(table, "the options")


def _set(table: dict[str, Any], sets: list[str]) -> None:
    for text in sets:
        path, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--set wants PATH=VALUE, not '{text}'.")
        _place(table, path.strip(), _literal(value.strip()))


def _with_whole_paths(config: RunConfig) -> RunConfig:
    """Paths made absolute, so that a recorded run does not depend on where it was started."""
    init = config.model.init
    return replace(
        config,
        data=replace(config.data, source=absolute(config.data.source)),
        model=replace(config.model, init=str(Path(init).resolve()) if init else None),
    )


def growth_parts(kind: str | None, alpha: float | None, beta: int | None) -> dict[str, Any]:
    """--growth, --alpha and --beta as entries of the planner's growth function."""
    if kind is None:
        return {"planner.growth.alpha": alpha, "planner.growth.beta": beta}
    growth: dict[str, Any] = {"kind": kind}
    if kind == "constant":
        growth.update({} if beta is None else {"count": beta})
    elif kind != "singletons":
        growth.update({"alpha": 2.0 if alpha is None and kind == "log" else alpha, "beta": 10 if beta is None else beta})
        if growth["alpha"] is None:
            raise InputError(f"--growth {kind} needs --alpha, its rate of growth.")
        return {"planner.growth": growth}
    if alpha is not None:
        raise InputError(f"--growth {kind} has no --alpha.")
    return {"planner.growth": growth}


def _place(table: dict[str, Any], path: str, value: Any) -> None:
    *folders, name = path.split(".")
    at: Any = table
    for folder in folders:
        at = at.get(folder) if isinstance(at, dict) else None
        if not isinstance(at, dict):
            raise InputError(f"there is nothing called '{path}' in this configuration.")
    at[name] = value


def _literal(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
